#include "checks/cuda/machine.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <sstream>

namespace emulated_cuda {

namespace {

constexpr unsigned warp_size = 32;

enum class ThreadState : std::uint8_t { running, waiting, shuffling, ended };

struct Thread {
    std::uint32_t at = 0;  // the index of the next instruction
    ThreadState state = ThreadState::running;
    bool operator==(const Thread &) const = default;
};

/// The coordinates of a thread or block from its number: x varies fastest.
std::array<unsigned, 3> place_in(const std::array<unsigned, 3> &size, std::uint64_t number) {
    return {static_cast<unsigned>(number % size[0]), static_cast<unsigned>(number / size[0] % size[1]),
            static_cast<unsigned>(number / size[0] / size[1])};
}

std::string text_of(const std::array<unsigned, 3> &place) {
    return "(" + std::to_string(place[0]) + ", " + std::to_string(place[1]) + ", " + std::to_string(place[2]) + ")";
}

/// A CUDA thread block while it runs.
class Block {
public:
    Block(const Launch &launch, Memory &memory, std::uint32_t launch_number, std::uint64_t number,
          std::uint64_t garbage)
        : launch_(launch), function_(*launch.function), memory_(memory), launch_number_(launch_number),
          number_(static_cast<std::uint32_t>(number)), place_(place_in(launch.grid, number)),
          threads_(launch.block[0] * launch.block[1] * launch.block[2]), shared_(shared_begin, launch.shared_bytes) {
        set_registers(garbage);
    }

    void run() {
        try {
            do {
                for (current_ = 0; current_ < threads_.size(); current_++) {
                    run_thread();
                }
            } while (release_threads());
        } catch (const Fault &fault) {
            fail(fault.what());
        }
    }

private:
    const Launch &launch_;
    const Function &function_;
    Memory &memory_;
    std::uint32_t launch_number_, number_;
    std::array<unsigned, 3> place_;
    std::vector<Thread> threads_;
    std::size_t n_registers_ = function_.registers.size() + 1;  // at least 1: run_thread always reads operands[0]
    std::vector<std::uint64_t> registers_;                      // [thread, register]
    Region shared_;
    unsigned current_ = 0;  // the index of the running thread
    std::uint16_t epoch_ = 0;
    Region *last_region_ = nullptr;

    std::uint64_t *registers_of(std::size_t thread) { return &registers_[thread * n_registers_]; }

    /// Fills registers and shared memory with garbage, which shows uninitialised reads, and sets special registers.
    void set_registers(std::uint64_t garbage) {
        const auto next = [&] { return garbage += 0x9e3779b97f4a7c15; };
        std::generate_n(shared_.bytes(shared_begin), shared_.size(), [&] { return next() >> 56; });
        std::vector<std::uint64_t> of_thread(n_registers_);
        std::ranges::generate(of_thread, next);
        for (const auto &[operand, value] : function_.constants) {
            of_thread[operand] = value;
        }
        for (std::size_t i = 0; i < threads_.size(); i++) {
            registers_.insert(registers_.end(), of_thread.begin(), of_thread.end());
        }
        for (const auto &[name, operand] : function_.registers) {
            const auto axis = static_cast<std::size_t>(name.back() - 'x');
            for (unsigned i = 0; i < threads_.size() && name.find('.') != name.npos; i++) {
                registers_of(i)[operand] = (name.starts_with("%tid")     ? place_in(launch_.block, i)
                                            : name.starts_with("%ntid")  ? launch_.block
                                            : name.starts_with("%ctaid") ? place_
                                                                         : launch_.grid)[axis];
            }
        }
    }

    /// Runs the current thread until it exits, or waits at a barrier or shuffle.
    void run_thread() {
        std::uint64_t *const registers = registers_of(current_);
        Thread &thread = threads_[current_];
        while (thread.state == ThreadState::running) {
            const Instruction &instruction = function_.code[thread.at];
            const bool is_set = registers[instruction.operands[0]] != 0;
            std::uint32_t next = thread.at + 1;
            switch (instruction.flow) {
            case Flow::compute: instruction.compute(instruction, registers); break;
            case Flow::load:
            case Flow::store: access(instruction, registers); break;
            case Flow::branch: next = instruction.target; break;
            case Flow::branch_if: next = is_set ? instruction.target : next; break;
            case Flow::branch_if_not: next = is_set ? next : instruction.target; break;
            case Flow::barrier: thread.state = ThreadState::waiting; return;
            case Flow::shuffle: thread.state = ThreadState::shuffling; return;
            case Flow::exit: thread.state = ThreadState::ended; return;
            }
            thread.at = next;
        }
    }

    /// Executes a load or a store.
    void access(const Instruction &instruction, std::uint64_t *registers) {
        const unsigned bytes = instruction.element_bytes, n = instruction.n_elements * bytes;
        const Address at = registers[instruction.operands[4]] + static_cast<std::uint64_t>(instruction.displacement);
        const Access by = {instruction.space == Space::shared ? 1 : launch_number_, number_,
                           static_cast<std::uint16_t>(current_), epoch_, instruction.is_nc};
        std::uint8_t moved[16 + 8];  // each element is copied as 8 bytes, so that the compiler knows the length
        if (instruction.flow == Flow::store) {
            for (unsigned i = 0; i < instruction.n_elements; i++) {
                std::memcpy(moved + i * bytes, &registers[instruction.operands[i]], 8);
            }
            region_of(instruction.space, at, n).store(at, n, by, moved);
            return;
        }
        if (instruction.space == Space::parameter) {
            std::memcpy(moved, &launch_.parameters[static_cast<std::size_t>(instruction.displacement)], 16);
        } else {
            region_of(instruction.space, at, n).load(at, n, by, moved);
        }
        for (unsigned i = 0; i < instruction.n_elements; i++) {
            std::uint64_t &to = registers[instruction.operands[i]];
            std::memcpy(&to, moved + i * bytes, 8);
            to &= UINT64_MAX >> (64 - 8 * bytes);
        }
    }

    Region &region_of(Space space, Address at, unsigned n) {
        Region *const region = space == Space::shared                                  ? &shared_
                               : last_region_ != nullptr && last_region_->holds(at, n) ? last_region_
                                                                                       : memory_.find(at, n);
        const bool is_held = region != nullptr && region->holds(at, n);
        if (at % n != 0 || !is_held) {
            std::ostringstream text;
            text << "has the address 0x" << std::hex << at << std::dec;
            if (at % n != 0) {
                text << ", which is not aligned to " << n << " bytes";
            } else if (space == Space::shared) {
                text << " in shared memory, of which a launch has " << shared_.size() << " bytes from 0x400";
            } else {
                text << ", which is in no memory that is allocated";
            }
            throw Fault(text.str());
        }
        last_region_ = space == Space::shared ? last_region_ : region;
        return *region;
    }

    /// Executes the shuffles or the barrier at which threads wait. Returns true if threads can then go on, and false if
    /// all have ended. Throws if waiting threads can never go on.
    bool release_threads() {
        bool has_shuffled = false;
        const auto n_threads = static_cast<unsigned>(threads_.size());
        for (unsigned first = 0; first < n_threads; first += warp_size) {
            const auto warp = std::span(threads_).subspan(first, std::min(warp_size, n_threads - first));
            if (warp[0].state == ThreadState::shuffling && std::ranges::count(warp, warp[0]) == std::ssize(warp)) {
                shuffle(function_.code[warp[0].at], first, first + static_cast<unsigned>(warp.size()));
                has_shuffled = true;
            }
        }
        for (current_ = 0; current_ < n_threads && !has_shuffled; current_++) {
            const Thread &thread = threads_[current_];
            if (thread.state == ThreadState::shuffling) {
                throw Fault("waits for threads of its warp that do not come");
            }
            if (thread.state == ThreadState::waiting ? thread != threads_[0] : thread.state != threads_[0].state) {
                throw Fault("ends, or waits at a barrier, where other threads of the block do not");
            }
        }
        current_ = 0;
        if (!has_shuffled && threads_[0].state == ThreadState::waiting) {
            if (++epoch_ == 0) {
                throw Fault("waits at more barriers than the machine counts");
            }
            std::ranges::fill(threads_, Thread{threads_[0].at + 1});
            return true;
        }
        return has_shuffled;
    }

    /// Executes shfl.sync.idx. As in the code that Halide makes, all threads of a warp must take part, and no value may
    /// cross from one segment of the warp to another.
    void shuffle(const Instruction &instruction, unsigned first, unsigned end) {
        const auto &[to, value, from_lane, part_of, members] = instruction.operands;
        std::array<std::uint64_t, warp_size> results = {};
        for (current_ = first; current_ < end; current_++) {
            const std::uint64_t *const own = registers_of(current_);
            const auto lane = current_ - first, part = static_cast<unsigned>(own[part_of] >> 8 & 31);
            const auto from = (lane & part) | (static_cast<unsigned>(own[from_lane]) & 31 & ~part);
            if (static_cast<std::uint32_t>(own[members]) != UINT32_MAX) {
                throw Fault("shuffles with some of its warp");
            }
            if (from > ((lane & part) | (own[part_of] & 31 & ~part)) || first + from >= end) {
                throw Fault("shuffles from a lane that there is not");
            }
            results[lane] = registers_of(first + from)[value];
        }
        for (unsigned i = first; i < end; i++) {
            registers_of(i)[to] = results[i - first];
            threads_[i] = {threads_[i].at + 1};
        }
    }

    [[noreturn]] void fail(const char *what) const {
        throw Fault("thread " + text_of(place_in(launch_.block, current_)) + " of block " + text_of(place_) + " of " +
                    function_.name + ", grid " + text_of(launch_.grid) + " of " + text_of(launch_.block) +
                    " threads, " + what + ", in " + function_.places[threads_[current_].at]);
    }
};

}  // namespace

void execute(const Launch &launch, Memory &memory, std::uint32_t launch_number, std::uint64_t seed) {
    const std::uint64_t n_blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    for (std::uint64_t i = 0; i < n_blocks; i++) {
        Block(launch, memory, launch_number, i, (seed + i) * 0xd1342543de82ef95).run();
    }
}

}  // namespace emulated_cuda
