// A block while it runs.
#pragma once

#include "checks/cuda/machine.h"

namespace emulated_cuda {

enum class State : std::uint8_t { running, waiting, shuffling, ended };

class Block {
public:
    Block(const Launch &launch, const Memory &memory, std::uint32_t launch_number);

    /// Begins with a block of the grid, counted along x, then y, then z.
    void begin(std::uint64_t number, std::uint32_t shared_number, std::uint64_t &random);
    bool is_done() const { return n_ended_ == n_threads_; }
    /// Has some threads go on for a while. Throws Fault.
    void go_on(std::uint64_t &random);

    const Launch &launch() const { return launch_; }
    std::uint64_t *registers() { return registers_.data(); }
    unsigned n_threads() const { return n_threads_; }

    /// The memory of a load or store by a thread, of n bytes in all.
    Region &region_of(const Instruction &instruction, Address at, unsigned n);
    Access access_by(unsigned thread, const Instruction &instruction) const;
    void set_last_thread(unsigned thread) { last_thread_ = thread; }

private:
    const Launch &launch_;
    const Memory &memory_;
    std::uint32_t launch_number_;
    unsigned n_threads_;
    Region shared_;
    std::vector<std::uint64_t> registers_;  // [register, thread]
    std::vector<std::uint32_t> at_;         // the instruction that each thread comes to
    std::vector<State> states_;
    std::vector<std::uint16_t> together_;
    std::array<unsigned, 3> place_ = {};
    std::uint32_t number_ = 0, shared_number_ = 0, barrier_at_ = 0;
    std::uint16_t epoch_ = 0;
    unsigned n_waiting_ = 0, n_ended_ = 0, last_thread_ = 0;
    Region *last_region_ = nullptr;

    void set_registers(std::uint64_t &random);
    void set_all(Operand operand, std::uint64_t value);
    std::uint32_t gather(std::uint64_t &random);
    void run(std::uint32_t at, unsigned n_instructions);
    bool flow(const Instruction &instruction, std::uint32_t &at);
    void stand(std::uint32_t at, State state);
    void leave_barrier();
    void shuffle(const Instruction &instruction, std::uint32_t at);
    [[noreturn]] void fail(const Instruction &instruction, const char *what) const;
};

inline std::uint64_t *Threads::values(Operand operand) const {
    return block.registers() + std::size_t{operand} * block.n_threads();
}

}  // namespace emulated_cuda
