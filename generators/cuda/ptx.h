// What is done to a CUDA kernel once it is PTX.
#pragma once

#include "Halide.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <utility>

namespace halyard {

/// What a kernel has besides, for which Halide 21 has no word.
struct DeviceCode {
    bool loads_y = false;      // x, of which vectors are loaded, may be y: ld.global.nc is for what nobody writes
    bool stores_bf16 = false;  // pairs that are rounded to f16 are rounded to bf16 instead
    bool stores_e4m3 = false;  // and so are those that become two e4m3 in the lower half of a word; needs sm_89
    int most_registers = 0;    // of a thread; 0: 64, which Halide's runtime tells the driver
};

/// PTX that says two things which Halide 21 leaves open:
/// - Where shared memory is. Halide takes it from address 0 on, without declaring any. Since sm_90 the first KiB is the
///   system's, and what a launch asks for begins behind it. So it is declared, and its address added to every other.
/// - That products and sums are rounded. Without .rn ptxas may contract them, and the canonical form is lost.
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

/// Splits off the kernels, which Halide itself does right after its custom passes, and completes their PTX.
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

    /// Of the call that hands the PTX to the driver: (state, the text, which ends with a zero, and its size).
    Halide::Expr visit(const Call *op) override {
        if (op->name != "halide_cuda_initialize_kernels") {
            return IRMutator::visit(op);
        }
        Halide::Buffer<> code = op->args[1].as<Call>()->args[0].as<Halide::Internal::Variable>()->image;
        const std::string ptx = complete_ptx(static_cast<const char *>(code.data()), code_);
        const int size = static_cast<int>(ptx.size()) + 1;
        Halide::Runtime::Buffer<uint8_t> text(size);
        std::copy_n(ptx.c_str(), size, text.begin());
        *code.get() = std::move(text);  // whoever refers to the code refers to this
        return Call::make(op->type, op->name, {op->args[0], op->args[1], size}, op->call_type);
    }
};

/// To be called last of what adds passes to a pipeline.
inline void complete_device_code(Halide::Pipeline pipeline, const Halide::Target &target, const DeviceCode &code = {}) {
    if (target.has_feature(Halide::Target::CUDA)) {
        pipeline.add_custom_lowering_pass(new CompletePtx(target, code));
    }
}

}  // namespace halyard
