#include "tune/variants.h"

#include "checks/kernel_checker.h"
#include "checks/row_checker.h"
#include "report/table.h"
#include "walk/dispatch.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <set>
#include <utility>

namespace halyard::bench {

namespace {

constexpr std::size_t n_at_once = 2;
constexpr std::uint64_t seed = 1;
constexpr const char *non_temporal_mib = "non_temporal_mib";  // only the runtime reads this number
constexpr int quick_check = 2, thorough_check = 20;           // how often each count of pairs comes up

/// The angles that a kernel works with, by its name: kernels that make rows say which, all others rotate by a table.
std::int32_t angles_made_by(const std::string &kernel) {
    return kernel.starts_with("halyard_rows_phase_")      ? HALYARD_ANGLES_PHASE
           : kernel.starts_with("halyard_rows_factored_") ? HALYARD_ANGLES_FACTORED
                                                          : HALYARD_ANGLES_TABLE;
}

}  // namespace

Emitter::Emitter(Recipe recipe, std::filesystem::path folder, unsigned patience,
                 std::function<void(const std::string &)> say)
    : recipe_(std::move(recipe)), folder_(std::move(folder)), patience_(patience), say_(std::move(say)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
}

Emitter::~Emitter() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

std::string Emitter::command_for(const Parameters &variant, const std::filesystem::path &folder) const {
    std::vector<std::string> emit = recipe_.emit;
    const std::string emitted = folder / (recipe_.kernel + recipe_.suffix);
    emit.push_back(folder);
    for (const auto &[name, value] : variant) {
        emit.push_back(name + "=" + std::to_string(value));
    }
    std::string command = join(emit);
    if (!recipe_.check.empty()) {
        command += " && " + join(recipe_.check) + " " + quote(emitted);
    }
    std::vector<std::string> link = recipe_.link;
    std::replace(link.begin(), link.end(), std::string("{from}"), emitted);
    std::replace(link.begin(), link.end(), std::string("{to}"), (folder / Recipe::product).string());
    return command + " && " + join(link);
}

std::vector<std::string> Emitter::make(const std::vector<Parameters> &variants, double until) {
    struct Running {
        std::size_t i;
        pid_t child;
        double until;
        std::filesystem::path folder;
    };
    std::vector<std::string> faults(variants.size(), not_tried);
    std::deque<Running> running;
    std::size_t next = 0;
    try {
        for (;;) {
            while (running.size() < n_at_once && next < variants.size() && now() < until) {
                const auto folder = folder_ / std::to_string(n_folders_++);
                std::filesystem::create_directories(folder);
                running.push_back(
                    {next, start(command_for(variants[next], folder), folder / "log"), now() + patience_, folder});
                next++;
            }
            if (running.empty()) {
                return faults;
            }
            say_("variant " + std::to_string(running.front().i + 1) + " of " + std::to_string(variants.size()));
            const Running first = running.front();
            std::string fault = wait_for(first.child, first.until, first.folder / "log");
            running.pop_front();
            faults[first.i] = fault.empty() ? take(variants[first.i], first.folder) : "making it " + fault;
        }
    } catch (...) {
        for (const Running &one : running) {
            end(one.child);
        }
        throw;
    }
}

struct Variants::Site {
    Arena arena;
    PlacedWork placed;
    Rotation rotation;

    Site(const Work &work, const std::string &target)
        : arena(PlacedWork::bytes_needed(work)), placed(work, arena), rotation(placed, target.c_str(), nullptr) {}
};

/// A kernel in a shared object: it rotates, or it makes rows.
struct Variants::Variant {
    void *object;
    Kernel rotate = {};
    RowKernels rows = {};

    explicit Variant(void *o) : object(o) {}
    Variant(const Variant &) = delete;
    Variant &operator=(const Variant &) = delete;
    ~Variant() { dlclose(object); }

    bool enter(Rotation &rotation) const {
        return rotate.function != nullptr ? rotation.use(rotate) : rotation.use(rows);
    }
};

Variants::Variants(Recipe recipe, const std::vector<Work> &works, std::filesystem::path folder, unsigned patience,
                   std::function<void(const std::string &)> say)
    : Emitter(std::move(recipe), std::move(folder), patience, std::move(say)) {
    for (const Work &work : works) {
        sites_.push_back(std::make_unique<Site>(work, recipe_.target));
    }
}

Variants::~Variants() = default;

std::vector<std::string> Variants::shapes() {
    std::vector<std::string> names;
    for (const auto &site : sites_) {
        names.push_back(site->placed.work().name());
    }
    return names;
}

/// Loads a variant and checks it. It counts as made where nothing is wrong with it.
std::string Variants::take(const Parameters &parameters, const std::filesystem::path &folder) {
    void *const object = dlopen((folder / Recipe::product).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) {
        return std::string("can't be loaded: ") + dlerror();
    }
    auto variant = std::make_unique<Variant>(object);
    void *const function = dlsym(object, recipe_.kernel.c_str());
    if (function == nullptr) {
        return "has no function " + recipe_.kernel;
    }
    if (const std::int32_t angles = angles_made_by(recipe_.kernel); angles == HALYARD_ANGLES_PHASE) {
        variant->rows.phase = reinterpret_cast<halyard_rows_phase_kernel *>(function);
    } else if (angles == HALYARD_ANGLES_FACTORED) {
        variant->rows.factored = reinterpret_cast<halyard_rows_factored_kernel *>(function);
    } else {
        const auto known = kernels();
        variant->rotate = *std::find_if(known.begin(), known.end(),
                                        [&](const Kernel &kernel) { return kernel.name == recipe_.kernel; });
        variant->rotate.function = reinterpret_cast<halyard_rotate_kernel *>(function);
        if (const auto found = parameters.find(non_temporal_mib); found != parameters.end()) {
            variant->rotate.non_temporal_mib = found->second;
        }
    }
    stop_if_interrupted();
    std::string fault = check(*variant, seed, quick_check);
    if (fault.empty()) {
        fault = check_on_sites(*variant);
    }
    if (fault.empty()) {
        made_[parameters] = std::move(variant);
    }
    return fault;
}

std::string Variants::check(const Variant &variant, std::uint64_t seed, int times) const {
    const bool fused = recipe_.target != "x86_sse41";
    const int n_trials = times * 20;
    if (variant.rows.phase != nullptr) {
        return check_phase_rows(recipe_.kernel, variant.rows.phase, fused, seed, n_trials, patience_).fault;
    }
    if (variant.rows.factored != nullptr) {
        return check_factored_rows(recipe_.kernel, variant.rows.factored, fused, seed, n_trials, patience_).fault;
    }
    return check_kernel(variant.rotate, seed, times, patience_).fault;
}

/// Runs each work once, in a process of its own, and compares it with the exact result before it is timed.
std::string Variants::check_on_sites(const Variant &variant) {
    const KernelReport report = check_apart(recipe_.kernel, patience_, [&](TrialText &text) {
        KernelReport found;
        for (auto site = sites_.begin(); site != sites_.end() && found.fault.empty(); site++) {
            const PlacedWork &placed = (*site)->placed;
            const std::string name = placed.work().name();
            std::snprintf(text, sizeof(text), "%s", name.c_str());
            placed.reset();
            if (!variant.enter((*site)->rotation)) {
                found.fault = name + ": no plan takes the kernel";
                break;
            }
            (*site)->rotation.run(0);
            if (const double error = placed.max_error(placed.y(0)); !(error <= placed.promised_error())) {
                found.fault = name + ": off by " + std::to_string(error) + " of a pair's length";
            }
        }
        return found;
    });
    if (!report.fault.empty()) {
        for (auto &site : sites_) {  // the process shared their memory, and may have written anywhere
            const Work work = site->placed.work();
            site.reset();
            site = std::make_unique<Site>(work, recipe_.target);
        }
    }
    return report.fault;
}

std::string Variants::prove(const Parameters &variant) {
    say_("checking " + label(variant));
    stop_if_interrupted();
    return check(*made_.at(variant), seed + 1, thorough_check);
}

std::vector<Samples> Variants::measure(const std::vector<Parameters> &variants, const Effort &effort) {
    std::vector<Samples> samples(variants.size());
    pin_to_one_cpu(true);
    for (const auto &site : sites_) {
        say_("timing " + std::to_string(variants.size()) + " variants on " + site->placed.work().name());
        PlacedWork &placed = site->placed;
        Rotation &rotation = site->rotation;
        placed.reset();
        std::vector<Subject> subjects;
        for (const Parameters &variant : variants) {
            const Variant &made = *made_.at(variant);
            subjects.push_back({label(variant), [&](long n_calls) {
                                    made.enter(rotation);
                                    const double start = bench::now();
                                    for (long i = 0; i < n_calls; i++) {
                                        const std::size_t slot = placed.next_slot();
                                        rotation.run(slot);
                                        if (placed.work().read_back) {
                                            placed.read_output(slot);
                                        }
                                    }
                                    return bench::now() - start;
                                }});
        }
        bench::measure(subjects, effort);
        for (std::size_t i = 0; i < subjects.size(); i++) {
            samples[i].push_back(subjects[i].seconds);
        }
        if (is_interrupted()) {
            break;
        }
    }
    pin_to_one_cpu(false);
    stop_if_interrupted();
    return samples;
}

void seal_schedule(std::vector<std::string> command, const std::filesystem::path &draft,
                   const std::filesystem::path &schedule) {
    const std::filesystem::path log = draft.string() + ".log";
    command.insert(command.end(), {draft, schedule});
    if (const std::string why = wait_for(start(join(command), log), now() + 60.0, log); !why.empty()) {
        throw std::runtime_error("a schedule can't be written: " + why);
    }
}

std::vector<Work> list_tuning_works(const Kernel &kernel, const std::vector<Model> &models) {
    const bool non_temporal = kernel.place == Place::non_temporal, strided = !kernel.pairing;
    const Pairing in = kernel.pairing.value_or(Pairing::half), out = kernel.out_pairing.value_or(Pairing::half);
    std::vector<Work> works;
    std::set<std::pair<std::int64_t, std::int64_t>> seen;
    for (const Model &model : models) {
        if (static_cast<std::int32_t>(model.in) != static_cast<std::int32_t>(in) ||
            static_cast<std::int32_t>(model.out) != static_cast<std::int32_t>(out) ||
            !seen.emplace(model.head_dim, model.rotary_dim).second || (non_temporal && !works.empty())) {
            continue;
        }
        Work work = {model, 1, static_cast<dtype>(kernel.dtype), kernel.place == Place::in_place};
        work.strided = strided;
        if (non_temporal) {
            // On either side of each size from which on a run may store non-temporally.
            work.read_back = true;
            for (const std::size_t n_mib : {6, 12, 24, 48, 96}) {
                work.n_tokens = 1;
                work.n_tokens = static_cast<std::int64_t>((n_mib << 20) / work.tensor_bytes());
                works.push_back(work);
            }
            continue;
        }
        if (works.empty()) {
            Work cold = work;
            cold.n_tokens = 512;
            cold.cold = true;
            works.push_back(cold);
        }
        for (const std::int64_t n_tokens : {1, 64}) {
            work.n_tokens = n_tokens;
            works.push_back(work);
        }
    }
    return works;
}

std::vector<Work> list_row_works(const std::string &kernel, const std::vector<Model> &models) {
    Work work = {models.front()};
    work.model.name += "-one-head";
    work.model.n_q_heads = 1;
    work.model.n_k_heads = 0;
    work.angles = angles_made_by(kernel);
    std::vector<Work> works;
    for (const std::int64_t n_tokens : {1, 64, 512}) {
        work.n_tokens = n_tokens;
        works.push_back(work);
    }
    return works;
}

}  // namespace halyard::bench
