// Little kernels for the machine of checks/cuda, and memory for them.
#pragma once

#include "checks/cuda/machine.h"

#include <cstring>

namespace cuda_scene {

using emulated_cuda::Address;

/// A module whose function k has some statements, registers of every width, four addresses in %rd10 to %rd13, a byte as
/// its parameter `byte`, and in %rd14 the place of shared memory.
inline std::string module_of(const std::string &body) {
    std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 shared[];\n"
                       ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, "
                       ".param .u8 byte)\n{\n"
                       "\t.reg .pred %p<20>;\n\t.reg .b16 %rs<20>;\n\t.reg .b32 %r<20>;\n\t.reg .b64 %rd<20>;\n";
    for (const char *const i : {"0", "1", "2", "3"}) {
        text += std::string("\tld.param.b64 %rd1") + i + ", [p" + i + "];\n";
    }
    return text + "\tmov.b64 %rd14, shared;\n" + body + "\n\tret;\n}\n";
}

struct Size {
    std::array<unsigned, 3> grid = {1, 1, 1}, block = {1, 1, 1};
    unsigned shared_bytes = 64;
};

/// A device with four regions of 60 bytes, %rd10 to %rd13 for a kernel. The last one is freed.
class Scene {
public:
    static constexpr std::size_t n_bytes = 60;

    Scene() {
        for (Address &region : regions_) {
            region = memory_.allocate(n_bytes);
        }
        memory_.release(regions_[3]);
    }

    template <typename T>
    void write(unsigned region, T value, std::size_t at = 0) {
        std::memcpy(bytes(region) + at, &value, sizeof(value));
    }
    void fill(unsigned region, std::uint8_t value) { std::memset(bytes(region), value, n_bytes); }
    template <typename T>
    T read(unsigned region, std::size_t at = 0) const {
        T value{};
        std::memcpy(&value, bytes(region) + at, sizeof(value));
        return value;
    }

    /// Runs a kernel. Returns its fault, or "".
    std::string run(const std::shared_ptr<const emulated_cuda::Module> &module, const Size &size,
                    std::uint64_t seed = 1) {
        emulated_cuda::Launch launch = {
            module,     &module->functions.at("k"), size.grid,
            size.block, size.shared_bytes,          std::vector<std::uint8_t>(4 * sizeof(Address) + 1, 0x81)};
        std::memcpy(launch.parameters.data(), regions_.data(), sizeof(regions_));
        try {
            emulated_cuda::execute(launch, memory_, ++n_launches_, seed);
        } catch (const emulated_cuda::Fault &fault) {
            return fault.what();
        }
        return "";
    }
    std::string run(const std::string &body, const Size &size = {}, std::uint64_t seed = 1) {
        try {
            return run(std::make_shared<const emulated_cuda::Module>(emulated_cuda::decode(module_of(body))), size,
                       seed);
        } catch (const emulated_cuda::Fault &fault) {
            return fault.what();
        }
    }

private:
    std::uint8_t *bytes(unsigned region) const { return memory_.find(regions_[region])->bytes(regions_[region]); }

    emulated_cuda::Memory memory_;
    std::array<Address, 4> regions_ = {};
    std::uint32_t n_launches_ = 0;
};

}  // namespace cuda_scene
