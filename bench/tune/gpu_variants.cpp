#include "tune/gpu_variants.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

namespace halyard::bench {

namespace {

constexpr std::uint64_t seed = 1;
constexpr int quick_check = 8, thorough_check = 32;  // random runs

}  // namespace

GpuDevice find_gpu(const std::string &program, const std::string &target, const std::filesystem::path &folder) {
    const std::filesystem::path log = folder / "device.log";
    const std::string why = wait_for(start(join({program, "device", target}), log), now() + 60.0, log);
    if (!why.empty()) {
        throw std::runtime_error("no device for " + target + ": " + why);
    }
    GpuDevice device;
    std::ifstream said(log);
    std::getline(said, device.short_name);
    std::getline(said, device.name);
    std::getline(said, device.driver);
    return device;
}

std::vector<std::string> GpuVariants::shapes() {
    std::vector<std::string> names;
    for (const Work &work : works_) {
        names.push_back(work.name());
    }
    return names;
}

std::string GpuVariants::check(const std::filesystem::path &program, std::uint64_t its_seed, int times) const {
    const std::filesystem::path log = folder_ / "check.log";
    const std::string command =
        join({program, "check", recipe_.kernel, std::to_string(its_seed), std::to_string(times)});
    const std::string why = wait_for(start(command, log), bench::now() + patience_, log);
    return why.empty() ? "" : "checking it " + why;
}

std::string GpuVariants::take(const Parameters &variant, const std::filesystem::path &folder) {
    const std::filesystem::path program = folder / Recipe::product;
    std::string fault = check(program, seed, quick_check);
    if (fault.empty()) {
        made_[variant] = program;
    }
    return fault;
}

std::string GpuVariants::prove(const Parameters &variant) {
    say_("checking " + label(variant));
    return check(made_.at(variant), seed + 1, thorough_check);
}

std::vector<Samples> GpuVariants::measure(const std::vector<Parameters> &variants, const Effort &effort) {
    // A search narrows: variants that are not asked for now will not be again, and the others need their memory.
    std::erase_if(running_, [&](const auto &one) {
        return std::find(variants.begin(), variants.end(), one.first) == variants.end();
    });
    for (const Parameters &variant : variants) {
        std::unique_ptr<Conversation> &program = running_[variant];
        if (program == nullptr) {
            program =
                std::make_unique<Conversation>(std::vector<std::string>{made_.at(variant), "time", recipe_.kernel});
        }
    }
    std::vector<Samples> samples(variants.size());
    for (const Work &work : works_) {
        stop_if_interrupted();
        say_("timing " + std::to_string(variants.size()) + " variants on " + work.name());
        const std::string shape = std::to_string(work.n_tokens) + " " + std::to_string(work.model.n_heads()) + " " +
                                  std::to_string(work.model.head_dim) + " " + std::to_string(work.model.rotary_dim);
        std::vector<Subject> subjects;
        for (const Parameters &variant : variants) {
            Conversation &program = *running_.at(variant);
            subjects.push_back({label(variant), [&, this](long n_calls) {
                                    try {
                                        return std::stod(program.ask(shape + " " + std::to_string(n_calls), patience_));
                                    } catch (const std::exception &) {
                                        return -1.0;  // it is lost
                                    }
                                }});
        }
        bench::measure(subjects, effort);
        for (std::size_t i = 0; i < subjects.size(); i++) {
            std::vector<double> &seconds = subjects[i].seconds;
            if (seconds.empty() && i == 0) {
                throw std::runtime_error(
                    "the schedule " + subjects[i].name +
                    ", with which others are compared, ended: " + running_.at(variants[i])->last_words());
            }
            if (seconds.empty()) {  // it never wins
                seconds.assign(static_cast<std::size_t>(effort.n_rounds), INFINITY);
            }
            samples[i].push_back(std::move(seconds));
        }
    }
    return samples;
}

std::vector<Work> list_gpu_works(pairing in, pairing out, dtype type, bool in_place, const std::vector<Model> &models) {
    std::vector<Work> works;
    std::set<std::pair<std::int64_t, std::int64_t>> seen;
    for (const Model &model : models) {
        if (model.in != in || model.out != out || !seen.emplace(model.head_dim, model.rotary_dim).second) {
            continue;
        }
        for (const std::int64_t n_tokens : {1, 64, 4096}) {
            Work work = {model, n_tokens, type, in_place};
            works.push_back(work);
        }
    }
    return works;
}

}  // namespace halyard::bench
