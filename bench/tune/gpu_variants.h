// Variants of a GPU's kernel. Each is a program of its own (gpu_variant.cpp), because a wrong kernel can break the
// whole context of a device.
#pragma once

#include "rivals/conversation.h"
#include "tune/variants.h"

namespace halyard::bench {

/// A device, as halyard_gpu_variant describes it.
struct GpuDevice {
    std::string short_name, name, driver;
};

/// Throws where the target's device cannot be used.
GpuDevice find_gpu(const std::string &program, const std::string &target, const std::filesystem::path &folder);

class GpuVariants : public Emitter {
public:
    GpuVariants(Recipe recipe, std::vector<Work> works, std::filesystem::path folder, unsigned patience,
                std::function<void(const std::string &)> say)
        : Emitter(std::move(recipe), std::move(folder), patience, std::move(say)), works_(std::move(works)) {}

    std::vector<std::string> shapes() override;
    std::string prove(const Parameters &variant) override;
    std::vector<Samples> measure(const std::vector<Parameters> &variants, const Effort &effort) override;

private:
    std::vector<Work> works_;
    std::map<Parameters, std::filesystem::path> made_;  // the programs
    std::map<Parameters, std::unique_ptr<Conversation>> running_;

    std::string take(const Parameters &variant, const std::filesystem::path &folder) override;
    std::string check(const std::filesystem::path &program, std::uint64_t seed, int times) const;
};

/// The works by which a GPU's kernel is tuned, of these models: decoding steps of one request and of a batch, and a
/// prompt, for each that differs in its heads and in what is rotated of them.
std::vector<Work> list_gpu_works(pairing in, pairing out, dtype type, bool in_place, const std::vector<Model> &models);

}  // namespace halyard::bench
