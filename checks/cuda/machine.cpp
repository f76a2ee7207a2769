#include "checks/cuda/machine.h"

#include "checks/cuda/threads.h"

#include <algorithm>
#include <cstring>
#include <sstream>

namespace emulated_cuda {

namespace {

constexpr unsigned blocks_at_once = 4;

std::uint64_t next(std::uint64_t &random) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random >> 11;
}

/// 1, 2, 4 or 8 bytes. Machines spend much of their time here, and a memcpy() of any length would be slow.
void copy_word(void *to, const void *from, unsigned n_bytes) {
    switch (n_bytes) {
    case 1: std::memcpy(to, from, 1); break;
    case 2: std::memcpy(to, from, 2); break;
    case 4: std::memcpy(to, from, 4); break;
    default: std::memcpy(to, from, 8);
    }
}

Address address_of(const Instruction &instruction, const Threads &threads, unsigned lane) {
    return threads.values(instruction.operands[4])[lane] + static_cast<std::uint64_t>(instruction.displacement);
}

}  // namespace

void execute_load(const Instruction &instruction, const Threads &threads) {
    const unsigned n = instruction.n_elements, bytes = instruction.element_bytes;
    const bool is_parameter = instruction.space == Space::parameter;  // the same for all threads
    std::uint8_t loaded[16] = {};
    if (is_parameter) {
        std::memcpy(loaded, threads.block.launch().parameters.data() + instruction.displacement, n * bytes);
    }
    threads.each([&](unsigned lane) {
        threads.block.set_last_thread(lane);
        if (!is_parameter) {
            const Address at = address_of(instruction, threads, lane);
            Region &region = threads.block.region_of(instruction, at, n * bytes);
            region.load(at, n * bytes, threads.block.access_by(lane, instruction), loaded);
        }
        for (unsigned i = 0; i < n; i++) {
            std::uint64_t &to = threads.values(instruction.operands[i])[lane] = 0;
            copy_word(&to, loaded + i * bytes, bytes);
        }
    });
}

void execute_store(const Instruction &instruction, const Threads &threads) {
    const unsigned n = instruction.n_elements, bytes = instruction.element_bytes;
    threads.each([&](unsigned lane) {
        threads.block.set_last_thread(lane);
        std::uint8_t stored[16] = {};
        for (unsigned i = 0; i < n; i++) {
            copy_word(stored + i * bytes, threads.values(instruction.operands[i]) + lane, bytes);
        }
        const Address at = address_of(instruction, threads, lane);
        Region &region = threads.block.region_of(instruction, at, n * bytes);
        region.store(at, n * bytes, threads.block.access_by(lane, instruction), stored);
    });
}

void execute_pack(const Instruction &instruction, const Threads &threads) {
    const unsigned n = instruction.n_elements, bytes = instruction.element_bytes;
    threads.each([&](unsigned lane) {
        std::uint64_t whole = 0;
        for (unsigned i = 0; i < n; i++) {
            const std::uint64_t element = threads.values(instruction.operands[i])[lane];
            whole |= (element & UINT64_MAX >> (64 - 8 * bytes)) << i * 8 * bytes;
        }
        threads.values(instruction.operands[4])[lane] = whole;
    });
}

void execute_unpack(const Instruction &instruction, const Threads &threads) {
    threads.each([&](unsigned lane) {
        const std::uint64_t whole = threads.values(instruction.operands[4])[lane];
        for (unsigned i = 0; i < instruction.n_elements; i++) {
            threads.values(instruction.operands[i])[lane] = whole >> i * 8 * instruction.element_bytes;
        }
    });
}

// ---- A block -------------------------------------------------------------------------------------------------------

Block::Block(const Launch &launch, const Memory &memory, std::uint32_t launch_number)
    : launch_(launch), memory_(memory), launch_number_(launch_number),
      n_threads_(launch.block[0] * launch.block[1] * launch.block[2]), shared_(shared_begin, launch.shared_bytes),
      registers_(launch.function->registers.size() * n_threads_), at_(n_threads_), states_(n_threads_) {}

void Block::set_all(Operand operand, std::uint64_t value) {
    std::fill_n(registers_.begin() + static_cast<std::ptrdiff_t>(std::size_t{operand} * n_threads_), n_threads_, value);
}

void Block::begin(std::uint64_t number, std::uint32_t shared_number, std::uint64_t &random) {
    number_ = static_cast<std::uint32_t>(number);
    shared_number_ = shared_number;
    place_ = {static_cast<unsigned>(number % launch_.grid[0]),
              static_cast<unsigned>(number / launch_.grid[0] % launch_.grid[1]),
              static_cast<unsigned>(number / launch_.grid[0] / launch_.grid[1])};
    std::ranges::fill(at_, 0u);
    std::ranges::fill(states_, State::running);
    n_waiting_ = n_ended_ = 0;
    epoch_ = 0;
    set_registers(random);
}

/// What nothing has set has any value, in registers and in shared memory: what depends on it comes out wrong.
void Block::set_registers(std::uint64_t &random) {
    std::uint64_t garbage = next(random);
    const auto next_of_garbage = [&] { return garbage += 0x9e3779b97f4a7c15; };
    std::ranges::generate(registers_, next_of_garbage);
    std::vector<std::uint64_t> words(shared_.size() / 8 + 1);
    std::ranges::generate(words, next_of_garbage);
    std::memcpy(shared_.bytes(shared_begin), words.data(), shared_.size());
    for (const auto &[operand, value] : launch_.function->constants) {
        set_all(operand, value);
    }
    for (const auto &[name, operand] : launch_.function->registers) {
        const auto axis = static_cast<std::size_t>(name.back() - 'x');
        if (name.starts_with("%tid.")) {
            const unsigned before[] = {1, launch_.block[0], launch_.block[0] * launch_.block[1]};
            for (unsigned i = 0; i < n_threads_; i++) {
                registers_[std::size_t{operand} * n_threads_ + i] = i / before[axis] % launch_.block[axis];
            }
        } else if (name.find('.') != name.npos) {
            set_all(operand, name.starts_with("%ntid")    ? launch_.block[axis]
                             : name.starts_with("%ctaid") ? place_[axis]
                                                          : launch_.grid[axis]);
        }
    }
}

Access Block::access_by(unsigned thread, const Instruction &instruction) const {
    return {instruction.space == Space::shared ? shared_number_ : launch_number_, number_,
            static_cast<std::uint16_t>(thread), epoch_, instruction.is_nc};
}

Region &Block::region_of(const Instruction &instruction, Address at, unsigned n) {
    const auto hex = [](Address address) {
        std::ostringstream text;
        text << "0x" << std::hex << address;
        return text.str();
    };
    if (at % n != 0) {
        throw Fault("has the address " + hex(at) + ", which is not aligned to " + std::to_string(n) + " bytes");
    }
    if (instruction.space == Space::shared) {
        if (!shared_.holds(at, n)) {
            throw Fault("has the address " + hex(at) + " in shared memory, of which a launch has " +
                        std::to_string(shared_.size()) + " bytes from " + hex(shared_begin));
        }
        return shared_;
    }
    if (last_region_ == nullptr || !last_region_->holds(at, n)) {
        last_region_ = memory_.find(at);
        if (last_region_ == nullptr || !last_region_->holds(at, n)) {
            throw Fault("has the address " + hex(at) + ", which is in no memory that is allocated");
        }
    }
    return *last_region_;
}

/// Threads that stand at one place, and which: as a rule the first of all places where some do, so that those that are
/// behind catch up. Now and then it is another place, or some of them alone.
std::uint32_t Block::gather(std::uint64_t &random) {
    std::uint32_t first = UINT32_MAX;
    if (std::find(states_.begin(), states_.end(), State::running) == states_.end()) {
        throw Fault("waits for threads of its warp that do not come");
    }
    for (unsigned i = 0; i < n_threads_; i++) {
        first = states_[i] == State::running ? std::min(first, at_[i]) : first;
    }
    const std::uint64_t luck = next(random);
    if (luck % 16 == 0) {
        const auto any = static_cast<unsigned>(luck / 16 % n_threads_);
        first = states_[any] == State::running ? at_[any] : first;
    }
    together_.clear();
    for (unsigned i = 0; i < n_threads_; i++) {
        if (states_[i] == State::running && at_[i] == first) {
            together_.push_back(static_cast<std::uint16_t>(i));
        }
    }
    if (luck / 4096 % 8 == 0) {
        const std::uint16_t kept = together_[luck / 65536 % together_.size()];
        const std::uint64_t chosen = next(random) | std::uint64_t{1} << kept % 32;
        std::erase_if(together_, [&](std::uint16_t thread) { return (chosen >> thread % 32 & 1) == 0; });
    }
    return first;
}

void Block::go_on(std::uint64_t &random) {
    const std::uint32_t at = gather(random);
    run(at, 1 + static_cast<unsigned>(next(random) % 128));
}

void Block::run(std::uint32_t at, unsigned n_instructions) {
    const auto &code = launch_.function->code;
    const auto n = static_cast<unsigned>(together_.size());
    const Threads threads = {*this, together_.data(), n, together_.back() - together_.front() + 1u == n};
    last_thread_ = together_.front();
    for (unsigned i = 0; i < n_instructions; i++) {
        const Instruction &instruction = code[at];
        try {
            if (instruction.flow == Flow::next) {
                instruction.execute(instruction, threads);
                at++;
            } else if (!flow(instruction, at)) {
                return;
            }
        } catch (const Fault &fault) {
            fail(instruction, fault.what());
        }
    }
    stand(at, State::running);
}

void Block::stand(std::uint32_t at, State state) {
    for (const std::uint16_t thread : together_) {
        at_[thread] = at;
        states_[thread] = state;
    }
}

/// Moves on by anything but computing. Returns whether the threads are still together and running.
bool Block::flow(const Instruction &instruction, std::uint32_t &at) {
    const auto n = static_cast<unsigned>(together_.size());
    switch (instruction.flow) {
    case Flow::branch: at = instruction.target; return true;
    case Flow::branch_if:
    case Flow::branch_if_not: {
        const Threads threads = {*this, together_.data(), n, false};
        const std::uint64_t *const predicate = threads.values(instruction.operands[0]);
        unsigned n_taken = 0;
        for (const std::uint16_t thread : together_) {
            const bool is_taken = (predicate[thread] != 0) == (instruction.flow == Flow::branch_if);
            at_[thread] = is_taken ? instruction.target : at + 1;
            n_taken += is_taken ? 1 : 0;
        }
        at = at_[together_.front()];
        return n_taken == 0 || n_taken == n;
    }
    case Flow::barrier:
        if (n_waiting_ != 0 && barrier_at_ != at) {
            throw Fault("waits at another barrier than other threads of the block");
        }
        barrier_at_ = at;
        n_waiting_ += n;
        stand(at + 1, State::waiting);
        break;
    case Flow::shuffle:
        stand(at, State::shuffling);
        shuffle(instruction, at);
        return false;
    case Flow::exit:
        n_ended_ += n;
        stand(at, State::ended);
        break;
    case Flow::next: break;
    }
    if (n_waiting_ != 0 && n_ended_ != 0) {
        throw Fault("ends, or waits at a barrier, where other threads of the block do the other");
    }
    if (n_waiting_ == n_threads_) {
        leave_barrier();
    }
    return false;
}

/// Exchanges values within the warps whose threads have all come: PTX ISA, shfl.sync. It has all members of a warp, and
/// stays within parts of it, as Halide has it.
void Block::shuffle(const Instruction &instruction, std::uint32_t at) {
    const Threads all = {*this, together_.data(), 1, false};
    const std::uint64_t *const values = all.values(instruction.operands[1]);
    const std::uint64_t *const lanes = all.values(instruction.operands[2]);
    const std::uint64_t *const parts = all.values(instruction.operands[3]);
    const std::uint64_t *const members = all.values(instruction.operands[4]);
    for (unsigned warp = 0; warp < n_threads_; warp += 32) {
        const unsigned end = std::min(warp + 32, n_threads_);
        unsigned n_come = 0;
        for (unsigned i = warp; i < end; i++) {
            n_come += states_[i] == State::shuffling && at_[i] == at ? 1 : 0;
        }
        if (n_come != end - warp) {
            continue;
        }
        std::array<std::uint64_t, 32> result = {};
        for (unsigned i = warp; i < end; i++) {
            const auto lane = i - warp, part = static_cast<unsigned>(parts[i] >> 8 & 31);
            const auto from = (lane & part) | (static_cast<unsigned>(lanes[i]) & 31 & ~part);
            last_thread_ = i;
            if (static_cast<std::uint32_t>(members[i]) != UINT32_MAX) {
                throw Fault("shuffles with some of its warp");
            }
            if (from > ((lane & part) | (parts[i] & 31 & ~part)) || warp + from >= end) {
                throw Fault("shuffles from a lane that there is not");
            }
            result[lane] = values[warp + from];
        }
        for (unsigned i = warp; i < end; i++) {
            all.values(instruction.operands[0])[i] = result[i - warp];
            at_[i] = at + 1;
            states_[i] = State::running;
        }
    }
}

void Block::leave_barrier() {
    n_waiting_ = 0;
    epoch_++;
    if (epoch_ == 0) {
        throw Fault("waits at more barriers than the machine counts");
    }
    std::ranges::fill(states_, State::running);
}

void Block::fail(const Instruction &instruction, const char *what) const {
    const auto &[x, y, z] = launch_.block;
    std::ostringstream text;
    const std::string &line = launch_.module->lines[instruction.line - 1];
    text << "thread (" << last_thread_ % x << ", " << last_thread_ / x % y << ", " << last_thread_ / x / y
         << ") of block (" << place_[0] << ", " << place_[1] << ", " << place_[2] << ") of " << launch_.function->name
         << ", grid (" << launch_.grid[0] << ", " << launch_.grid[1] << ", " << launch_.grid[2] << ") of (" << x << ", "
         << y << ", " << z << ") threads, " << what << ", in line " << instruction.line << ": "
         << line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    throw Fault(text.str());
}

void execute(const Launch &launch, const Memory &memory, std::uint32_t number, std::uint64_t seed) {
    static std::uint32_t shared_number = 0;  // the driver runs one launch at a time
    const std::uint64_t n_blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    std::uint64_t random = seed | 1, begun = 0;
    std::vector<std::unique_ptr<Block>> blocks;
    const auto begin = [&](Block &block) {
        shared_number = std::max(1u, shared_number + 1);
        block.begin(begun++, shared_number, random);
    };
    while (blocks.size() < std::min<std::uint64_t>(blocks_at_once, n_blocks)) {
        blocks.push_back(std::make_unique<Block>(launch, memory, number));
        begin(*blocks.back());
    }
    while (!blocks.empty()) {
        const std::size_t i = next(random) % blocks.size();
        blocks[i]->go_on(random);
        if (blocks[i]->is_done()) {
            if (begun < n_blocks) {
                begin(*blocks[i]);
            } else {
                blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
            }
        }
    }
}

}  // namespace emulated_cuda
