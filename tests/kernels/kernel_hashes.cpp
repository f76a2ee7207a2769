// Prints a hash of what each kernel makes of one set of random bits: a line for each kernel, named without its target.
// All targets of this machine must agree with the model. Two machines agree where they print the same.
#include "checks/make_sources.h"
#include "checks/model.h"
#include "checks/oracle.h"
#include "core/rotate.h"
#include "stage_calls.h"

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
halyard::Side side_of(const Kernel &kernel, std::optional<Pairing> pairing, std::int64_t n_pairs, std::int64_t n_heads,
                      std::int64_t n_tokens) {
    halyard::Side side = {};
    side.element = pairing ? 1 : 2;
    side.head = (pairing ? 2 : 4) * n_pairs + 2;
    side.token = n_heads * side.head + 4;
    set_view(kernel, pairing.value_or(Pairing::interleaved), n_pairs, n_heads, n_tokens, side);
    return side;
}

/// Hashes what a kernel makes, or the model in its place.
std::uint64_t hash_of(const Kernel &kernel, bool by_model) {
    Kernel called = kernel;
    if (by_model) {
        called.function = model::rotations[halyard::index_of(kernel.dtype)];
        called.packed = false;
    }
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
            const std::int64_t n_heads = random.in(1, 5), n_tokens = random.in(1, 4), n_rows = random.in(1, 6);
            const std::int64_t stride_row = n_pairs + random.in(0, 3);
            const halyard::Side in = side_of(called, kernel.pairing, n_pairs, n_heads, n_tokens);
            const halyard::Side out = side_of(called, kernel.out_pairing, n_pairs, n_heads, n_tokens);
            const std::uint32_t sin_sign = random.one_in(2) ? 0x80000000u : 0;
            std::vector<std::int32_t> row_of_token;
            for (std::int64_t token = 0; token < n_tokens; token++) {
                row_of_token.push_back(static_cast<std::int32_t>(random.in(0, n_rows - 1)));
            }
            const Values values = of_rows[random.in(0, 3)];
            const auto cos = oracle::random_elements(random, HALYARD_F32, values, n_rows * stride_row);
            const auto sin = oracle::random_elements(random, HALYARD_F32, values, n_rows * stride_row);
            halyard::Rows rows(cos.data(), sin.data(), n_rows, stride_row, 0, n_pairs);
            const auto x = oracle::random_elements(random, dtype, of_x[i], n_tokens * in.token);
            std::vector<char> y = x;
            if (!in_place) {
                y.assign(static_cast<std::size_t>(n_tokens * out.token * oracle::element_bytes(dtype)), '\x2a');
            }
            halyard_buffer tokens = {}, from = {}, to = {};
            const halyard_dimension of_tokens = {0, static_cast<std::int32_t>(n_tokens), 1, 0};
            halyard::set_buffer(tokens, row_of_token.data(), &of_tokens);
            halyard::set_buffer(from, x.data(), in.dims);
            halyard::set_buffer(to, y.data(), out.dims);
            called.function(&tokens, &rows.cos, &rows.sin, sin_sign, in_place ? &to : &from, &to);
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
        trial.run_by(kernels, false);
        for (const auto &operand : trial.operands) {
            const bool is_of_use = trial.is_of_use(*operand);
            operand->for_each_element([&](std::uint32_t word, std::uint32_t) {
                hash.add(static_cast<std::int32_t>(operand->dtype), is_of_use ? word : 0);
            });
        }
    }
    return hash.value();
}

class Hashes {
public:
    /// Takes hash_of(target): of the reference, or the model, once for each name, and of a target of this machine.
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
                   [&](Target target) { return hash_of(kernel, target == Target::reference); });
    }
    const auto only = [](Target target) { return target == Target::reference ? 0 : halyard::bit(target); };
    for (const RowMaker &maker : row_makers()) {
        hashes.add("halyard_rows_phase", maker.kernels.target,
                   [&](Target target) { return hash_of_rows(halyard::select_row_kernels(only(target))); });
    }
    for (const StageRow &row : stage_rows) {
        hashes.add(row.name, row.target,
                   [&](Target target) {
                       const halyard::StageKernels *const kernels = halyard::find_stage_kernels(only(target));
                       return hash_of_stage(kernels == nullptr ? model::stage_kernels : *kernels, row);
                   });
    }
    return hashes.print() ? 0 : 1;
}
