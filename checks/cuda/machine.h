// Executes kernels in PTX as NVIDIA's PTX ISA describes them: section 9.7 for instructions, 5 for memory, 8 for what
// threads see of each other. What threads do between barriers must not depend on their order, and Memory finds where it
// does, so blocks run one after the other, and each thread goes on until it waits for others.
#pragma once

#include "checks/cuda/memory.h"

#include <array>
#include <memory>
#include <string>

namespace emulated_cuda {

/// The number of a register, a constant or a special register. Each has 64 bits, of which an opcode reads what it
/// takes.
using Operand = std::uint32_t;

enum class Flow : std::uint8_t { compute, load, store, branch, branch_if, branch_if_not, barrier, shuffle, exit };
enum class Space : std::uint8_t { parameter, shared, global };

struct Instruction {
    Flow flow = Flow::compute;
    void (*compute)(const Instruction &, std::uint64_t *registers) = nullptr;
    Space space = Space::global;
    bool is_nc = false;
    unsigned n_elements = 0, element_bytes = 0;  // of a load, a store or a list in braces
    std::array<Operand, 5> operands = {};  // what is set comes first; the last is an address, or what a list is part of
    std::int64_t displacement = 0;         // of the address
    std::uint32_t target = 0;              // of a branch: the number of an instruction
};

/// An opcode that changes nothing but registers.
struct Operation {
    void (*compute)(const Instruction &, std::uint64_t *registers);
    std::size_t n_operands;
};

/// All that the machine knows, and what joins the elements of a list or takes them apart.
const std::map<std::string, Operation> &operations();
void join(const Instruction &instruction, std::uint64_t *registers);
void take_apart(const Instruction &instruction, std::uint64_t *registers);

struct Parameter {
    std::uint32_t offset, n_bytes;
};

struct Function {
    std::string name;
    std::vector<Parameter> parameters;
    std::uint32_t parameter_bytes = 0;
    std::vector<Instruction> code;
    std::vector<std::string> places;           // of each instruction: its line's number and text
    std::map<std::string, Operand> registers;  // by name: %r1, %tid.x, or the literal of a constant
    std::map<Operand, std::uint64_t> constants;
    unsigned store_bits = 0;  // of the widest store to global memory
};

using Module = std::map<std::string, std::shared_ptr<const Function>>;

/// Throws Fault, which names the line, where a module has what the machine does not know.
Module decode(const std::string &ptx);

/// Where a block's shared memory begins. On sm_90 and later the first 1,024 bytes are the system's.
inline constexpr Address shared_begin = 0x400;

struct Launch {
    std::shared_ptr<const Function> function;
    std::array<unsigned, 3> grid = {}, block = {};
    unsigned shared_bytes = 0;
    std::vector<std::uint8_t> parameters;  // and 16 bytes behind them
};

/// Runs all blocks of a launch. Throws Fault, which says where. `number` is never 0, and one more with each launch.
/// What nothing has set is other garbage for each seed.
void execute(const Launch &launch, Memory &memory, std::uint32_t number, std::uint64_t seed);

}  // namespace emulated_cuda
