// Variants of a kernel: the generator emits them, then they are checked and timed.
#pragma once

#include "measure/placed_work.h"
#include "measure/rotation.h"
#include "tune/process.h"
#include "tune/tuner.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace halyard::bench {

/// How a kernel's variants are made, as generators/emit/variants.py knows it.
struct Recipe {
    std::string kernel, target;
    std::vector<std::string> emit;   // the command, without the folder and the parameters
    std::vector<std::string> check;  // the command that checks the assembly, without its path
    std::vector<std::string> link;   // the command that links {from} into {to}
    std::string suffix;              // of the file that was emitted

    static constexpr const char *product = "variant";  // the name of what is linked
};

/// Emits variants, some at once, each in a process of its own.
class Emitter : public Workshop {
public:
    /// Works in the folder, which it makes and removes. `patience` is the seconds that making a variant may take, and
    /// each check of it. `say` is told what is going on.
    Emitter(Recipe recipe, std::filesystem::path folder, unsigned patience,
            std::function<void(const std::string &)> say);
    ~Emitter() override;

    std::vector<std::string> make(const std::vector<Parameters> &variants, double until) override;
    double now() override { return bench::now(); }

protected:
    Recipe recipe_;
    std::filesystem::path folder_;
    unsigned patience_;
    std::function<void(const std::string &)> say_;

private:
    int n_folders_ = 0;

    std::string command_for(const Parameters &variant, const std::filesystem::path &folder) const;
    /// Takes what has been emitted into the folder. Returns why that can't be done, or nothing.
    virtual std::string take(const Parameters &variant, const std::filesystem::path &folder) = 0;
};

/// Variants for this machine: checked in processes of their own, timed on works.
class Variants : public Emitter {
public:
    Variants(Recipe recipe, const std::vector<Work> &works, std::filesystem::path folder, unsigned patience,
             std::function<void(const std::string &)> say);
    ~Variants() override;

    std::vector<std::string> shapes() override;
    std::string prove(const Parameters &variant) override;
    std::vector<Samples> measure(const std::vector<Parameters> &variants, const Effort &effort) override;

private:
    struct Site;     // a work, its memory and a rotation
    struct Variant;  // a kernel and the shared object that it is in

    std::vector<std::unique_ptr<Site>> sites_;
    std::map<Parameters, std::unique_ptr<Variant>> made_;

    std::string take(const Parameters &variant, const std::filesystem::path &folder) override;
    std::string check(const Variant &variant, std::uint64_t seed, int times) const;
    std::string check_on_sites(const Variant &variant);
};

/// Has `command` write a schedule from a draft. A log of it is left beside the draft.
void seal_schedule(std::vector<std::string> command, const std::filesystem::path &draft,
                   const std::filesystem::path &schedule);

/// The works by which a kernel is tuned, of these models: a decoding step and a batch of each that differs in its heads
/// and in what is rotated of them, and a prompt of the first that is in no cache. A kernel that stores past the caches
/// gets outputs from 6 to 96 MiB, which are read afterwards as a model's next step would. A strided kernel gets heads
/// whose elements lie between each other.
std::vector<Work> list_tuning_works(const Kernel &kernel, const std::vector<Model> &models);

/// The works by which a kernel that makes rows is tuned: one head of the first model, which costs little beside its
/// rows.
std::vector<Work> list_row_works(const std::string &kernel, const std::vector<Model> &models);

}  // namespace halyard::bench
