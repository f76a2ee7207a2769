#include "server/variants.h"

#include "checks/kernel_checker.h"
#include "checks/row_checker.h"
#include "server/call.h"
#include "walk/dispatch.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace halyard::bench {

namespace {

using nlohmann::json;

constexpr const char *non_temporal_mib = "non_temporal_mib";  // only the runtime reads this number
constexpr std::uint64_t seed = 1;
constexpr int quick_check = 2, thorough_check = 20;  // how often each count of pairs comes up

}  // namespace

struct Variants::Place {
    std::string name;
    Arena arena;
    Placed placed;
    Call call;

    Place(std::string its_name, const Work &work, const std::string &target)
        : name(std::move(its_name)), arena(Placed::bytes_needed(work)), placed(work, arena),
          call(placed, {target, nullptr, work.angles}) {}
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

    bool enter(Call &call) const { return rotate.function != nullptr ? call.use(rotate) : call.use(rows); }
};

Variants::Variants(const json &request)
    : kernel_(request.at("kernel")), target_(request.at("target")), patience_(request.at("patience")) {
    for (const json &work : request.at("works")) {
        places_.push_back(std::make_unique<Place>(work.at("name"), read_work(work), target_));
    }
}

Variants::~Variants() = default;

json Variants::load(const json &request) {
    void *const object = dlopen(request.at("file").get<std::string>().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) {
        return {{"fault", std::string("can't be loaded: ") + dlerror()}};
    }
    auto variant = std::make_unique<Variant>(object);
    void *const function = dlsym(object, kernel_.c_str());
    if (function == nullptr) {
        return {{"fault", "has no function " + kernel_}};
    }
    if (kernel_.starts_with("halyard_rows_phase_")) {
        variant->rows.phase = reinterpret_cast<halyard_rows_phase_kernel *>(function);
    } else {
        const auto known = kernels();
        variant->rotate =
            *std::find_if(known.begin(), known.end(), [&](const Kernel &kernel) { return kernel.name == kernel_; });
        variant->rotate.function = reinterpret_cast<halyard_rotate_kernel *>(function);
        variant->rotate.non_temporal_mib =
            request.at("parameters").value(non_temporal_mib, variant->rotate.non_temporal_mib);
    }
    std::string fault = check(*variant, seed, quick_check);
    fault = fault.empty() ? check_on_works(*variant) : fault;
    if (fault.empty()) {
        variants_.push_back(std::move(variant));
    }
    return {{"fault", fault}, {"variant", variants_.size() - 1}};
}

json Variants::prove(const json &request) const {
    return {{"fault", check(*variants_.at(request.at("variant")), seed + 1, thorough_check)}};
}

std::string Variants::check(const Variant &variant, std::uint64_t its_seed, int times) const {
    const int n_trials = times * 20;
    if (variant.rows.phase != nullptr) {
        return check_phase_rows(kernel_, variant.rows.phase, its_seed, n_trials, patience_).fault;
    }
    return check_kernel(variant.rotate, its_seed, times, patience_).fault;
}

/// Runs each work once, in a process of its own, and compares it with the exact result before it is timed.
std::string Variants::check_on_works(const Variant &variant) {
    const KernelReport report = check_apart(kernel_, patience_, [&](TrialText &text) {
        KernelReport found;
        for (auto place = places_.begin(); place != places_.end() && found.fault.empty(); place++) {
            Placed &placed = (*place)->placed;
            const std::string &name = (*place)->name;
            std::snprintf(text, sizeof(text), "%s", name.c_str());
            placed.reset();
            if (!variant.enter((*place)->call)) {
                found.fault = name + ": no plan takes the kernel";
                break;
            }
            (*place)->call.run(0);
            if (const Placed::Found result = placed.check(0.0); result.n_wrong > 0) {
                found.fault = name + ": off by " + std::to_string(result.max_error) + " of a pair's length";
            }
        }
        return found;
    });
    if (!report.fault.empty()) {
        for (auto &place : places_) {  // the process shared their memory, and may have written anywhere
            const std::string name = place->name;
            const Work work = place->placed.work();
            place.reset();
            place = std::make_unique<Place>(name, work, target_);
        }
    }
    return report.fault;
}

std::vector<Subject> Variants::choose(const json &request) const {
    Place &place = *places_.at(request.at("work"));
    place.placed.reset();
    std::vector<Subject> subjects;
    for (const std::size_t i : request.at("variants")) {
        const Variant &made = *variants_.at(i);
        subjects.push_back({std::to_string(i), "variant", [&place, &made](long n_calls) {
                                made.enter(place.call);
                                const double start = now();
                                for (long i = 0; i < n_calls; i++) {
                                    const std::size_t copy = place.placed.next_copy();
                                    place.call.run(copy);
                                    if (place.placed.work().read_back) {
                                        place.placed.read_output(copy);
                                    }
                                }
                                return now() - start;
                            }});
    }
    return subjects;
}

}  // namespace halyard::bench
