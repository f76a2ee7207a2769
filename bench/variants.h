// Variants of a kernel: emitted by the generator, checked in processes of their own, timed on the shapes of models.
#pragma once

#include "cell.h"
#include "rotation.h"
#include "tuner.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace halyard::bench {

/// How a kernel's variants are made, as CMake knows it.
struct Recipe {
    std::string kernel, target;
    std::vector<std::string> emit;    // the command, without the folder and the parameters
    std::vector<std::string> finish;  // what is done to the assembly, by its path; nothing for most
    std::vector<std::string> check;   // what looks at the assembly, by its path
    std::vector<std::string> link;    // from the assembly's path to a shared object's
};

class Variants : public Workshop {
public:
    /// Works in the folder, which it makes and removes. `patience` is the seconds that making a variant may take, and
    /// each check of it. `say` is told what is going on.
    Variants(Recipe recipe, const std::vector<Work> &works, std::filesystem::path folder, unsigned patience,
             std::function<void(const std::string &)> say);
    ~Variants() override;

    std::vector<std::string> shapes() override;
    std::vector<std::string> make(const std::vector<Parameters> &variants, double until) override;
    std::string prove(const Parameters &variant) override;
    std::vector<Samples> measure(const std::vector<Parameters> &variants, const Effort &effort) override;
    double now() override { return bench::now(); }

private:
    struct Site;     // a work, its memory and a rotation
    struct Variant;  // a kernel and the shared object that it is in

    Recipe recipe_;
    std::filesystem::path folder_;
    unsigned patience_;
    std::function<void(const std::string &)> say_;
    std::vector<std::unique_ptr<Site>> sites_;
    std::map<Parameters, std::unique_ptr<Variant>> made_;

    std::string command_for(const Parameters &variant, const std::filesystem::path &folder) const;
    std::string take(const Parameters &parameters, const std::filesystem::path &folder);
    std::string check_on_sites(const Kernel &kernel);
};

/// The works by which a kernel is tuned, of these models: a decoding step and a batch of each that differs in its heads
/// and in what is rotated of them, and of the first a prompt that is in no cache. For a kernel that stores past the
/// caches, outputs of the size that it is taken for.
std::vector<Work> list_tuning_works(const Kernel &kernel, const std::vector<Model> &models);

/// From now on Ctrl-C throws Interrupted out of a Variants, once what is at hand has been ended.
void watch_for_interrupts();

}  // namespace halyard::bench
