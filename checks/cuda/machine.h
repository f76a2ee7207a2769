// Interprets PTX kernels by NVIDIA's PTX ISA: section 9.7 (instructions), section 5 (state spaces), section 8 (memory
// consistency). Blocks run one after the other, and a thread runs until it waits at a barrier or shuffle. This order is
// good enough because correct kernels do not depend on it: Memory reports data races.
#pragma once

#include "checks/cuda/memory.h"

#include <array>
#include <memory>
#include <string>

namespace emulated_cuda {

/// The index of a 64-bit register. Constants and special registers (%tid.x) have registers too. An opcode reads as many
/// low bits as its type has.
using Operand = std::uint32_t;

enum class Flow : std::uint8_t { compute, load, store, branch, branch_if, branch_if_not, barrier, shuffle, exit };
enum class Space : std::uint8_t { parameter, shared, global };

struct Instruction {
    Flow flow = Flow::compute;
    void (*compute)(const Instruction &, std::uint64_t *registers) = nullptr;
    Space space = Space::global;
    bool is_nc = false;
    unsigned n_elements = 0, element_bytes = 0;  // of loads, stores and lists in braces
    std::array<Operand, 5> operands = {};  // first the destination; the last is an address, or mov.b64's wide register
    std::int64_t displacement = 0;         // added to the address
    std::uint32_t target = 0;              // the index of the instruction that a branch jumps to
};

/// An opcode that reads and writes registers only.
struct Operation {
    void (*compute)(const Instruction &, std::uint64_t *registers);
    std::size_t n_operands;
};

/// All opcodes that compute on registers, by name. pack_vector and unpack_vector are mov.b64 wide, {low, high} and its
/// reverse.
const std::map<std::string, Operation> &operations();
void pack_vector(const Instruction &instruction, std::uint64_t *registers);
void unpack_vector(const Instruction &instruction, std::uint64_t *registers);

struct Parameter {
    std::uint32_t offset, n_bytes;
};

struct Function {
    std::string name;
    std::vector<Parameter> parameters;
    std::uint32_t parameter_bytes = 0;
    std::vector<Instruction> code;
    std::vector<std::string> places;           // the line number and text of each instruction, for messages
    std::map<std::string, Operand> registers;  // by name: %r1, %tid.x, or a constant's literal
    std::map<Operand, std::uint64_t> constants;
    unsigned store_bits = 0;  // the width of the widest store to global memory
};

using Module = std::map<std::string, std::shared_ptr<const Function>>;

/// Throws a Fault that names the line if the PTX uses anything that the machine does not implement.
Module decode(const std::string &ptx_text);

/// The address of a block's shared memory. On sm_90 and later the system reserves the first 1,024 bytes.
inline constexpr Address shared_begin = 0x400;

struct Launch {
    std::shared_ptr<const Function> function;
    std::array<unsigned, 3> grid = {}, block = {};
    unsigned shared_bytes = 0;
    std::vector<std::uint8_t> parameters;  // followed by 16 bytes of padding, since loads copy 16 bytes
};

/// Runs all blocks of a launch. Throws a Fault that names the thread and the instruction. `launch_number` counts
/// launches from 1. Uninitialised registers and shared memory hold garbage that depends on the seed.
void execute(const Launch &launch, Memory &memory, std::uint32_t launch_number, std::uint64_t seed);

}  // namespace emulated_cuda
