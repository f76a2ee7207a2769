// Prints a hash of what each kernel makes of one set of random bits: a line for each kernel, named without its target.
// All targets of this machine must agree with the reference. Two machines agree where they print the same.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "stage_calls.h"
#include "walk/piece.h"

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>

namespace {

using halyard::Kernel;
using halyard::Pairing;
using halyard::Target;

/// FNV-1a of 64 bits. Any NaN counts as any other.
class Hash {
public:
    void add(std::int32_t dtype, std::uint32_t word) {
        const std::uint32_t same = oracle::is_nan(dtype, word) ? 0xffffffffu : word;
        for (int shift = 0; shift < 32; shift += 8) {
            value_ = (value_ ^ (same >> shift & 0xff)) * 0x100000001b3u;
        }
    }
    std::uint64_t value() const { return value_; }

private:
    std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// Up to 97, and two more sizes for which kernels are specialised.
std::vector<std::int64_t> counts_of_pairs() {
    std::vector<std::int64_t> counts;
    for (std::int64_t n = 1; n <= 97; n++) {
        counts.push_back(n);
    }
    counts.insert(counts.end(), {128, 256});
    return counts;
}

/// Elements of a head, and gaps behind it that stay as they are.
halyard::PairStrides strides_of(std::optional<Pairing> pairing, std::int64_t n_pairs, std::int64_t n_heads) {
    const std::int64_t head = (pairing ? 2 : 3) * n_pairs + 2;
    const std::int64_t token = n_heads * head + 4;
    if (!pairing) {
        return {3, 1, head, token};
    }
    return *pairing == Pairing::half ? halyard::PairStrides{1, n_pairs, head, token}
                                     : halyard::PairStrides{2, 1, head, token};
}

/// Hashes what a kernel makes. The reference stands in for one that has no function.
std::uint64_t hash_of(const Kernel &kernel) {
    static constexpr Values of_x[] = {Values::any_bits, Values::ordinary, Values::special, Values::short_mantissa};
    static constexpr Values of_rows[] = {Values::ordinary, Values::ordinary, Values::any_bits, Values::special};
    const bool in_place = kernel.place == halyard::Place::in_place;
    const auto dtype = static_cast<std::int32_t>(kernel.dtype);
    Random random(20261121);
    Hash hash;
    for (const std::int64_t n_pairs : counts_of_pairs()) {
        if (kernel.packed && kernel.pairing == Pairing::half && n_pairs % 2 != 0) {
            continue;  // a kernel that reads words of two elements can't serve odd halves
        }
        for (int i = 0; i < 4; i++) {
            halyard::Piece piece = {};
            piece.dtype = kernel.dtype;
            piece.n_pairs = n_pairs;
            piece.n_heads = random.in(1, 5);
            piece.n_tokens = random.in(1, 4);
            piece.n_rows = random.in(1, 6);
            piece.stride_row = n_pairs + random.in(0, 3);
            piece.in = strides_of(kernel.pairing, n_pairs, piece.n_heads);
            piece.out = strides_of(kernel.out_pairing, n_pairs, piece.n_heads);
            piece.sin_sign = random.one_in(2) ? 0x80000000u : 0;
            piece.within_int32 = true;
            std::vector<std::int32_t> rows;
            for (std::int64_t token = 0; token < piece.n_tokens; token++) {
                rows.push_back(static_cast<std::int32_t>(random.in(0, piece.n_rows - 1)));
            }
            piece.row_of_token = rows.data();
            const Values values = of_rows[random.in(0, 3)];
            const auto cos = oracle::random_elements(random, HALYARD_F32, values, piece.n_rows * piece.stride_row);
            const auto sin = oracle::random_elements(random, HALYARD_F32, values, piece.n_rows * piece.stride_row);
            piece.cos_rows = cos.data();
            piece.sin_rows = sin.data();
            const auto x = oracle::random_elements(random, dtype, of_x[i], piece.n_tokens * piece.in.token);
            std::vector<char> y = x;
            if (!in_place) {
                y.assign(static_cast<std::size_t>(piece.n_tokens * piece.out.token) *
                             static_cast<std::size_t>(oracle::element_bytes(dtype)),
                         '\x2a');
            }
            piece.x = in_place ? y.data() : x.data();
            piece.y = y.data();
            halyard::rotate_piece(kernel, piece);
            for (std::size_t at = 0; at < y.size(); at += static_cast<std::size_t>(oracle::element_bytes(dtype))) {
                hash.add(dtype, oracle::read_word(dtype, y.data() + at));
            }
        }
    }
    return hash.value();
}

/// Hashes rows at random positions. Frequencies are listed, because the last bit of pow depends on the libm.
std::uint64_t hash_of_rows(const halyard::RowKernels &kernels) {
    Random random(20261121);
    Hash hash;
    for (const std::int64_t n_pairs : counts_of_pairs()) {
        std::vector<double> list;
        for (std::int64_t k = 0; k < n_pairs; k++) {
            const auto exponent = static_cast<int>(random.in(-20, 0));
            list.push_back(std::ldexp(1.5 + 0.5 * random.unit(), exponent));
        }
        const auto frequencies =
            halyard::frequencies::from_list(list.data(), n_pairs, random.one_of(attention_factors));
        constexpr std::int32_t first = least_position, last = greatest_position;
        const auto source = make_source(frequencies, HALYARD_ANGLES_PHASE, first, last);
        std::vector<std::int32_t> positions = {first, -1, 0, 1, last};
        for (int i = 0; i < 4; i++) {
            positions.push_back(static_cast<std::int32_t>(random.in(first, last)));
        }
        for (const float value : rows_by(*source.get(), kernels, positions)) {
            hash.add(HALYARD_F32, std::bit_cast<std::uint32_t>(value));
        }
    }
    return hash.value();
}

/// Hashes what random calls of a stage leave.
std::uint64_t hash_of_stage(const halyard::StageKernels &kernels, const StageRow &row) {
    Random random(20261121);
    Hash hash;
    for (int i = 0; i < 100; i++) {
        StageTrial trial(row, random);
        const bool is_done = trial.call.run_by(kernels);
        for (const auto &[name, operand] : trial.operands) {
            const auto dtype = static_cast<std::int32_t>(operand->dtype);
            const bool is_left_anyhow = !is_done && operand->data() != trial.call.x.data;
            operand->for_each_element(
                [&](std::uint32_t word, std::uint32_t) { hash.add(dtype, is_left_anyhow ? 0 : word); });
        }
    }
    return hash.value();
}

class Hashes {
public:
    /// Takes hash_of(target): of the reference once for each name, and of a target of this machine.
    template <typename HashOf>
    void add(const std::string &name, Target target, HashOf hash_of) {
        if (!hashes_.contains(name)) {
            hashes_[name] = hash_of(Target::reference);
        }
        const bool is_here = (halyard::supported_targets() & halyard::bit(target)) != 0;
        const std::uint64_t hash = is_here ? hash_of(target) : hashes_[name];
        if (hash != hashes_[name]) {
            std::fprintf(stderr, "%s_%s differs from the reference: %016" PRIx64 "\n", name.c_str(),
                         halyard::name_of(target), hash);
            agree_ = false;
        }
    }
    bool print() const {
        for (const auto &[name, hash] : hashes_) {
            std::printf("%016" PRIx64 " %s\n", hash, name.c_str());
        }
        return agree_;
    }

private:
    std::map<std::string, std::uint64_t> hashes_;
    bool agree_ = true;
};

}  // namespace

int main() {
    Hashes hashes;
    for (const Kernel &kernel : halyard::kernels()) {
        if (kernel.function == nullptr || kernel.place == halyard::Place::non_temporal) {
            continue;  // not every machine has non-temporal kernels, and halyard_tests compares their bits
        }
        const std::string name = kernel.name;
        hashes.add(name.substr(0, name.size() - std::strlen(halyard::name_of(kernel.target)) - 1), kernel.target,
                   [&](Target target) {
                       Kernel made = kernel;
                       made.function = target == Target::reference ? nullptr : kernel.function;
                       return hash_of(made);
                   });
    }
    const auto only = [](Target target) { return target == Target::reference ? 0 : halyard::bit(target); };
    for (const RowMaker &maker : row_makers()) {
        hashes.add("halyard_rows_phase", maker.kernels.target,
                   [&](Target target) { return hash_of_rows(halyard::select_row_kernels(only(target))); });
    }
    for (const StageRow &row : stage_rows) {
        hashes.add(row.name, row.target,
                   [&](Target target) { return hash_of_stage(halyard::select_stage_kernels(only(target)), row); });
    }
    return hashes.print() ? 0 : 1;
}
