#include "tune/variants.h"

#include "checks/kernel_checker.h"
#include "checks/row_checker.h"
#include "report/table.h"
#include "rotate/dispatch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

namespace halyard::bench {

namespace {

constexpr std::size_t n_at_once = 2;
constexpr std::uint64_t seed = 1;
constexpr const char *non_temporal_mib = "non_temporal_mib";  // the one number that is the runtime's
constexpr int quick_check = 2, thorough_check = 20;         // how often each count of pairs comes up

/// Of a maker of rows, by its name; of other kernels that of a table.
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
    if (!recipe_.link.empty()) {
        std::vector<std::string> link = recipe_.link;
        std::replace(link.begin(), link.end(), std::string("{from}"), emitted);
        std::replace(link.begin(), link.end(), std::string("{to}"), (folder / Recipe::product).string());
        command += " && " + join(link);
    }
    return command;
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
    Cell cell;
    Rotation rotation;

    Site(const Work &work, const std::string &target)
        : arena(Cell::bytes_needed(work)), cell(work, arena), rotation(cell, target.c_str(), nullptr) {}
};

/// A kernel of a shared object: of a rotation, or one of the makers of rows.
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
        names.push_back(site->cell.work().name());
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

/// In a process of its own, that what will be timed is right: each work once, against the exact result.
std::string Variants::check_on_sites(const Variant &variant) {
    int ends[2];
    if (pipe(ends) != 0) {
        throw std::system_error(errno, std::generic_category(), "can't make a pipe");
    }
    const pid_t child = fork();
    if (child == 0) {
        alarm(patience_);
        const auto say = [&](const std::string &text) {
            if (write(ends[1], text.data(), text.size()) < 0) {
                _exit(1);
            }
        };
        for (const auto &site : sites_) {
            const Cell &cell = site->cell;
            say(cell.work().name());
            cell.reset();
            if (!variant.enter(site->rotation)) {
                say(": no plan takes the kernel");
                _exit(1);
            }
            site->rotation.run(0);
            if (const double error = cell.max_error(cell.y(0)); !(error <= cell.promised_error())) {
                say(": off by " + std::to_string(error) + " of a pair's length");
                _exit(1);
            }
            say("\n");
        }
        _exit(0);
    }
    close(ends[1]);
    std::string said;
    char text[256];
    for (ssize_t n = 0; child > 0 && (n = read(ends[0], text, sizeof(text))) > 0;) {
        said.append(text, static_cast<std::size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return "no process could be started";
    }
    if (status == 0) {
        return "";
    }
    for (auto &site : sites_) {  // whose memory the process shared
        const Work work = site->cell.work();
        site.reset();
        site = std::make_unique<Site>(work, recipe_.target);
    }
    said = said.substr(said.find_last_of('\n') + 1);
    if (WIFSIGNALED(status)) {
        said += WTERMSIG(status) == SIGALRM ? ": takes more than " + std::to_string(patience_) + " seconds"
                                            : ": crashes with signal " + std::to_string(WTERMSIG(status));
    }
    return said;
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
        say_("timing " + std::to_string(variants.size()) + " variants on " + site->cell.work().name());
        Cell &cell = site->cell;
        Rotation &rotation = site->rotation;
        cell.reset();
        std::vector<Subject> subjects;
        for (const Parameters &variant : variants) {
            const Variant &made = *made_.at(variant);
            subjects.push_back({label(variant), [&](long n_calls) {
                                    made.enter(rotation);
                                    const double start = bench::now();
                                    for (long i = 0; i < n_calls; i++) {
                                        const std::size_t slot = cell.next_slot();
                                        rotation.run(slot);
                                        if (cell.work().read_back) {
                                            cell.read_output(slot);
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

std::string ModelledVariants::take(const Parameters &variant, const std::filesystem::path &folder) {
    made_[variant] = folder;
    return "";
}

std::vector<Samples> ModelledVariants::measure(const std::vector<Parameters> &variants, const Effort &effort) {
    say_("modelling " + std::to_string(variants.size()) + " variants");
    std::vector<std::string> command = model_;
    for (const Parameters &variant : variants) {
        command.push_back(made_.at(variant));
    }
    const std::string rows = folder_ / "rows.json";
    command.insert(command.end(), {"--json", rows});
    const std::filesystem::path log = folder_ / "log";
    if (const std::string why = wait_for(start(join(command), log), now() + 10.0 * patience_, log); !why.empty()) {
        throw std::runtime_error("the variants can't be modelled: " + why);
    }
    const nlohmann::json modelled = load_json(rows).at("rows");
    std::vector<Samples> samples;
    for (std::size_t i = 0; i < variants.size(); i++) {  // a model has no noise
        samples.push_back({std::vector<double>(static_cast<std::size_t>(effort.n_rounds),
                                               modelled.at(i).at("cycles_per_pair").get<double>())});
    }
    return samples;
}

void check_model(std::vector<std::string> model, const std::filesystem::path &folder) {
    model.emplace_back("--help");  // which comes after the CPU's name
    const std::filesystem::path log = folder / "model.log";
    if (const std::string why = wait_for(start(join(model), log), now() + 60.0, log); !why.empty()) {
        throw std::runtime_error("nothing can be modelled: " + why);
    }
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
