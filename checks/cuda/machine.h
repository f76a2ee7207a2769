// Executes kernels in PTX as NVIDIA's PTX ISA describes them: section 9.7 for instructions, 5 for memory, 8 for what
// threads see of each other. Each thread has a program counter of its own; those that stand at one place go on
// together.
#pragma once

#include "checks/cuda/memory.h"

#include <array>
#include <map>
#include <span>
#include <string_view>

namespace emulated_cuda {

struct Instruction;
class Block;

/// The number of a register, a constant or a special register. Each has 64 bits, of which an opcode reads what it
/// takes.
using Operand = std::uint32_t;

/// Threads of a block that execute an instruction together: all of first … first + n - 1, or those that are listed.
struct Threads {
    Block &block;
    const std::uint16_t *list;
    unsigned n;
    bool is_dense;

    std::uint64_t *values(Operand operand) const;

    template <typename Body>
    void each(const Body &body) const {
        if (is_dense) {
            for (unsigned lane = list[0], end = list[0] + n; lane < end; lane++) {
                body(lane);
            }
        } else {
            for (unsigned i = 0; i < n; i++) {
                body(list[i]);
            }
        }
    }
};

using Execute = void (*)(const Instruction &, const Threads &);

enum class Flow : std::uint8_t { next, branch, branch_if, branch_if_not, barrier, shuffle, exit };
enum class Space : std::uint8_t { parameter, shared, global };

struct Instruction {
    Execute execute = nullptr;
    Flow flow = Flow::next;
    Space space = Space::global;
    bool is_nc = false;
    std::uint8_t n_elements = 0, element_bytes = 0;  // of a load, a store or a list in braces
    std::array<Operand, 5> operands = {};  // what is set comes first; the last is an address, or what a list is part of
    std::int64_t displacement = 0;         // of the address
    std::uint32_t target = 0;              // of a branch: the number of an instruction
    std::uint32_t line = 0;                // in the module
};

/// All that the machine knows of opcodes that change nothing but registers.
const std::map<std::string, Execute, std::less<>> &operations();

/// Loads and stores, of any space, and what joins elements or takes them apart.
void execute_load(const Instruction &instruction, const Threads &threads);
void execute_store(const Instruction &instruction, const Threads &threads);
void execute_pack(const Instruction &instruction, const Threads &threads);
void execute_unpack(const Instruction &instruction, const Threads &threads);

struct Parameter {
    std::uint32_t offset, n_bytes;
};

struct Function {
    std::string name;
    std::vector<Parameter> parameters;
    std::uint32_t parameter_bytes = 0;
    std::vector<Instruction> code;
    std::map<std::string, Operand> registers;  // by name: %r1, %tid.x, or the literal of a constant
    std::map<Operand, std::uint64_t> constants;
};

struct Module {
    std::vector<std::string> lines;
    std::map<std::string, Function> functions;
};

/// Throws Fault, which names the line, where a module has an opcode or a directive that the machine does not know.
Module decode(const std::string &ptx);

/// Where a block's shared memory begins. On sm_90 and later the first 1,024 bytes are the system's.
inline constexpr Address shared_begin = 0x400;

struct Launch {
    std::shared_ptr<const Module> module;
    const Function *function = nullptr;
    std::array<unsigned, 3> grid = {}, block = {};
    unsigned shared_bytes = 0;
    std::vector<std::uint8_t> parameters;
};

/// Runs all blocks of a launch, four at a time and some threads of one of them at a time, as the seed has it. Throws
/// Fault, which says where. `number` is never 0, and one more with each launch.
void execute(const Launch &launch, const Memory &memory, std::uint32_t number, std::uint64_t seed);

}  // namespace emulated_cuda
