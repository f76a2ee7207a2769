// Prints a hash of what each kernel makes of one set of random bits: a line for each kernel, named without its target.
// All targets of this machine that have FMA must agree with the reference. Two machines agree where they print the
// same.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "stage_calls.h"
#include "walk/piece.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

namespace {

using halyard::Kernel;
using halyard::Pairing;
using oracle::Random;
using oracle::Values;

/// FNV-1a of 64 bits. Any NaN counts as any other.
class Hash {
public:
    void add(std::int32_t dtype, const void *at) {
        if (dtype > HALYARD_BF16) {  // bytes, of which NaN has the sign of what was rounded
            value_ = (value_ ^ *static_cast<const unsigned char *>(at)) * 0x100000001b3u;
            return;
        }
        const std::uint32_t word = oracle::read_word(dtype, at);
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
                hash.add(dtype, y.data() + at);
            }
        }
    }
    return hash.value();
}

/// Hashes rows at random positions. Frequencies are listed, because the last bit of pow depends on the libm.
std::uint64_t hash_of_rows(const halyard::RowKernels &kernels, std::int32_t kind) {
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
        const bool is_phase = kind == HALYARD_ANGLES_PHASE;
        const std::int32_t first = is_phase ? least_position : -100, last = is_phase ? greatest_position : 4000;
        const auto source = make_source(frequencies, kind, first, last);
        std::vector<std::int32_t> positions = {first, -1, 0, 1, last};
        for (int i = 0; i < 4; i++) {
            positions.push_back(static_cast<std::int32_t>(random.in(first, last)));
        }
        for (const float value : rows_by(*source.get(), kernels, positions)) {
            hash.add(HALYARD_F32, &value);
        }
    }
    return hash.value();
}

/// Hashes what a stage makes of any bits, with scales and weights that are numbers.
std::uint64_t hash_of_stage(const halyard::StageKernels &kernels, const StageRow &row) {
    static constexpr Values of_x[] = {Values::any_bits, Values::ordinary, Values::special, Values::short_mantissa};
    Random random(20261121);
    Hash hash;
    for (const std::int64_t n : counts_of_pairs()) {
        halyard::Extents extents = {n, random.in(1, 40), random.in(1, 3)};
        if (row.knows_groups()) {
            extents.n_elements = halyard::q8_group;
        }
        const halyard::ElementStrides dense = {1, extents.n_elements, extents.n_elements * extents.n_heads};
        const std::int64_t n_groups = extents.n_heads * extents.n_tokens, count = extents.n_elements * n_groups;
        const Values values = row.sums()           ? Values::ordinary
                              : row.knows_groups() ? Values::short_mantissa  // all finite
                                                   : of_x[random.in(0, 3)];
        // Bytes are those of random elements of 16 bits, more than enough of them.
        std::vector<char> x = oracle::random_elements(
            random, static_cast<std::int32_t>(std::min(row.dtype_in(), halyard::Dtype::bf16)), values, count);
        std::vector<float> y(static_cast<std::size_t>(2 * count)), weights(static_cast<std::size_t>(n));
        for (float &weight : weights) {
            weight = static_cast<float>(1 + random.unit() / 2);
        }
        StageCall call = {row, extents, {x.data(), dense}, {reinterpret_cast<char *>(y.data()), dense}};
        call.r = {weights.data(), {1, 0, 0}};
        call.norm = {1e-6f, weights.data(), 0, static_cast<std::int32_t>(random.in(0, 3)), row.dtype};
        call.norm.bias = row.stage == Stage::layer_norm ? weights.data() : nullptr;
        std::int64_t n_made = row.is_one_of({Stage::largest, Stage::range}) ? n_groups : count;
        std::vector<float> scales(static_cast<std::size_t>(n_groups)), zeros(scales.size());
        const std::vector<std::int32_t> row_of_token(static_cast<std::size_t>(extents.n_tokens));
        std::vector<char> words = oracle::random_elements(random, HALYARD_F16, Values::ordinary, n_groups);
        if (row.stage == Stage::range) {
            call.greatest = y.data() + n_groups;
            n_made = 2 * n_groups;
        } else if (row.stage == Stage::quantise) {
            for (std::size_t i = 0; i < scales.size(); i++) {
                scales[i] = static_cast<float>(127 * random.unit());
                zeros[i] = static_cast<float>(255 * random.unit());
            }
            call.r.data = scales.data();
            call.z = zeros.data();
            call.how = {row.dtype, static_cast<halyard::Quantisation::Mode>(random.in(0, 2)), 0, 255};
        } else if (row.knows_groups()) {
            call.q8 = {static_cast<std::int32_t>(random.in(0, 2)), random.one_in(2)};
            call.scales = {words.data(), {0, 1, extents.n_heads}};
        } else if (row.rotates()) {
            call.norm.rounding = 0;
            call.rows.cos_rows = call.rows.sin_rows = reinterpret_cast<const char *>(weights.data());
            call.rows.n_rows = 1;
            call.rows.stride_row = n;
            call.rows.row_of_token = row_of_token.data();
            n_made = n_groups * (n / 2 * 2);
        } else if (row.transforms()) {
            call.n_transformed = row.stage == Stage::hadamard ? 64 : 256;
            call.extents.n_elements = n_made = count / call.n_transformed * call.n_transformed;
        }
        if (row.transforms() || row.is_one_of({Stage::norm, Stage::layer_norm})) {  // in place
            std::copy_n(reinterpret_cast<const float *>(x.data()), n_made, y.data());
            call.x = call.y;
        }
        if (n_made == 0) {  // one element is no pair
            continue;
        }
        call.run_by(kernels);
        const char *made = call.y.data;
        for (std::int64_t i = 0; i < n_made; i++, made += halyard::element_bytes(row.dtype_out())) {
            hash.add(static_cast<std::int32_t>(row.dtype_out()), made);
        }
    }
    return hash.value();
}

class Hashes {
public:
    void add(const std::string &name, const std::string &target, std::uint64_t hash) {
        const auto [at, is_new] = hashes_.try_emplace(name, hash);
        if (!is_new && at->second != hash) {
            std::fprintf(stderr, "%s_%s differs from the reference: %016" PRIx64 "\n", name.c_str(), target.c_str(),
                         hash);
            agree_ = false;
        }
    }
    bool contains(const std::string &name) const { return hashes_.contains(name); }
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
        const std::string target = halyard::name_of(kernel.target), full_name = kernel.name;
        const std::string name = full_name.substr(0, full_name.size() - target.size() - 1);
        if (!hashes.contains(name)) {
            Kernel reference = kernel;
            reference.function = nullptr;
            hashes.add(name, "reference", hash_of(reference));
        }
        const bool is_here = (halyard::supported_targets() & halyard::bit(kernel.target)) != 0;
        if (is_here && kernel.target != halyard::Target::x86_sse41) {
            hashes.add(name, target, hash_of(kernel));
        }
    }
    const halyard::RowKernels reference = halyard::select_row_kernels(0);
    for (const auto &[name, kind] : {std::pair{"halyard_rows_phase", HALYARD_ANGLES_PHASE},
                                     std::pair{"halyard_rows_factored", HALYARD_ANGLES_FACTORED}}) {
        hashes.add(name, "reference", hash_of_rows(reference, kind));
        for (const RowMaker &maker : row_makers()) {
            if (maker.fused) {
                hashes.add(name, maker.name, hash_of_rows(maker.kernels, kind));
            }
        }
    }
    for (const StageRow &row : stage_rows) {
        const halyard::StageKernels kernels = halyard::select_stage_kernels(halyard::bit(row.target));
        const bool is_here = (halyard::supported_targets() & halyard::bit(row.target)) != 0;
        hashes.add(row.name, "reference", hash_of_stage(halyard::select_stage_kernels(0), row));
        if (is_here && kernels.target == row.target && row.target != halyard::Target::x86_sse41) {
            hashes.add(row.name, halyard::name_of(row.target), hash_of_stage(kernels, row));
        }
    }
    return hashes.print() ? 0 : 1;
}
