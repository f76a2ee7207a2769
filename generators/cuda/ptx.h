// Changes to a CUDA kernel's PTX.
#pragma once

#include "Halide.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <utility>

namespace halyard {

/// Properties of a kernel that Halide 21 cannot express.
struct DeviceCode {
    bool loads_y = false;      // x may be y, so vectors of x must not be loaded by ld.global.nc, for read-only memory
    bool stores_bf16 = false;  // change conversions of pairs to f16 into conversions to bf16
    bool stores_e4m3 = false;  // change them into conversions to two e4m3 in the lower half of a word; needs sm_89
    int most_registers = 0;    // of a thread; 0: 64, the default of Halide's runtime
};

/// Returns PTX with two things that Halide 21 leaves open:
/// - The address of shared memory. Halide uses addresses from 0 on, without declaring any. Since sm_90 the first KiB
///   belongs to the system, and a launch's shared memory follows it. So this declares shared memory, and adds its
///   address to all of Halide's.
/// - The rounding of products and sums. Without .rn ptxas may contract them to fma, which changes bits.
inline std::string complete_ptx(std::string ptx, const DeviceCode &code) {
    const auto replace = [&](const char *pattern, const char *by) {
        ptx = std::regex_replace(ptx, std::regex(pattern), by);
    };
    if (code.loads_y) {
        replace(R"(\bld\.global\.nc\.v)", "ld.global.v");
    }
    if (code.stores_bf16) {
        replace(R"(\bcvt\.rn\.f16x2\.f32\b)", "cvt.rn.bf16x2.f32");
    }
    if (code.stores_e4m3) {
        replace(R"(\bcvt\.rn\.f16x2\.f32\s+(%\w+), (%\w+), (%\w+);)",
                "cvt.rn.satfinite.e4m3x2.f32 \t%halyard_pair, $2, $3;\n\tcvt.u32.u16 \t$1, %halyard_pair;");
        replace(R"(\.version 7\.\d\n\.target sm_8\d)", ".version 8.1\n.target sm_89");
    }
    _halide_user_assert((!code.stores_bf16 && !code.stores_e4m3) || ptx.find("cvt.rn.f16.") == std::string::npos)
        << "Not all is rounded by pairs.";
    static const std::regex rounded(R"(\b(add|mul|sub)\.f32\b)");
    static const std::regex access(R"((.*\b(?:ld|st)\.shared\.[^[]*)\[(%\w+)(.*))");
    const bool has_shared = ptx.find(".shared") != std::string::npos;
    std::istringstream lines(ptx);
    std::ostringstream complete;
    for (std::string line; std::getline(lines, line);) {
        if (line.find(".shared") == std::string::npos) {
            complete << std::regex_replace(line, rounded, "$1.rn.f32") << "\n";
        } else {
            std::smatch part;  // what comes before the address, its register, what comes after that
            _halide_user_assert(std::regex_match(line, part, access)) << "Another access to shared memory:" << line;
            complete << "\tadd.s64 \t%shared1, %shared0, " << part[2] << ";\n"
                     << part[1] << "[%shared1" << part[3] << "\n";
        }
        if (has_shared && line.rfind(".address_size", 0) == 0) {
            complete << "\n.extern .shared .align 16 .b8 halyard_shared[];\n";
        } else if (code.most_registers > 0 && line.rfind(")", 0) == 0) {
            complete << ".maxnreg " << code.most_registers << "\n";
        } else if (has_shared && line == "{") {
            complete << (code.stores_e4m3 ? "\t.reg .b16 \t%halyard_pair;\n" : "")
                     << "\t.reg .b64 \t%shared<2>;\n\tmov.b64 \t%shared0, halyard_shared;\n";
        }
    }
    return complete.str();
}

/// Compiles the kernels to PTX, which Halide itself would do right after its custom passes, and completes the PTX.
class CompletePtx : public Halide::Internal::IRMutator {
public:
    CompletePtx(Halide::Target target, const DeviceCode &code) : target_(std::move(target)), code_(code) {}

    Halide::Internal::Stmt mutate(const Halide::Internal::Stmt &stmt) override {
        const bool is_whole = !std::exchange(is_split_, true);
        return IRMutator::mutate(is_whole ? Halide::Internal::inject_gpu_offload(stmt, target_) : stmt);
    }
    using IRMutator::mutate;

private:
    using Call = Halide::Internal::Call;
    using IRMutator::visit;

    Halide::Target target_;
    DeviceCode code_;
    bool is_split_ = false;

    /// Replaces the PTX in the call that passes it to the driver. The arguments of the call are the state, the
    /// zero-terminated text and its size.
    Halide::Expr visit(const Call *op) override {
        if (op->name != "halide_cuda_initialize_kernels") {
            return IRMutator::visit(op);
        }
        Halide::Buffer<> code = op->args[1].as<Call>()->args[0].as<Halide::Internal::Variable>()->image;
        const std::string ptx = complete_ptx(static_cast<const char *>(code.data()), code_);
        const int size = static_cast<int>(ptx.size()) + 1;
        Halide::Runtime::Buffer<uint8_t> text(size);
        std::copy_n(ptx.c_str(), size, text.begin());
        *code.get() = std::move(text);  // all references to the buffer now see the new text
        return Call::make(op->type, op->name, {op->args[0], op->args[1], size}, op->call_type);
    }
};

/// Adds CompletePtx to a pipeline for CUDA. Call it after all other passes were added.
inline void complete_device_code(Halide::Pipeline pipeline, const Halide::Target &target, const DeviceCode &code = {}) {
    if (target.has_feature(Halide::Target::CUDA)) {
        pipeline.add_custom_lowering_pass(new CompletePtx(target, code));
    }
}

}  // namespace halyard
