// Tensors that reach farther than a kernel's 32-bit offsets. Their memory is only reserved: just the pages that hold
// elements exist.
#include "checks/rotate.h"
#include "halyard/halyard_kv.hpp"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

#include <sys/mman.h>

#include <cstdlib>

namespace {

class SparseMemory {
public:
    explicit SparseMemory(std::size_t n_bytes) : n_bytes_(n_bytes) {
        constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *mapped = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        data_ = mapped == MAP_FAILED ? nullptr : static_cast<char *>(mapped);
        if (data_ != nullptr) {
            madvise(data_, n_bytes, MADV_NOHUGEPAGE);  // so that an element costs a page and not 2 MiB
        }
    }
    SparseMemory(const SparseMemory &) = delete;
    SparseMemory &operator=(const SparseMemory &) = delete;
    ~SparseMemory() {
        if (data_ != nullptr) {
            munmap(data_, n_bytes_);
        }
    }
    char *data() const { return data_; }

private:
    std::size_t n_bytes_;
    char *data_;
};

constexpr std::int64_t one = 1, two_31 = one << 31;

struct Case {
    const char *name;
    std::array<std::int64_t, 4> shape, strides;
};

const Case cases[] = {
    {"token strides of more than 2^31", {1, 3, 2, 64}, {0, two_31 + 6, 64, 1}},
    {"token strides of less than -2^31", {1, 3, 2, 64}, {0, -two_31 - 6, 64, 1}},
    {"tokens of which some fit", {1, 5, 2, 64}, {0, two_31 / 2 - 64, 64, 1}},
    {"head strides of more than 2^31", {1, 2, 3, 64}, {0, 64, two_31 + 64, 1}},
    {"heads of which some fit", {1, 2, 5, 64}, {0, 64, two_31 / 2 - 64, 1}},
    {"heads and tokens far apart", {1, 2, 3, 64}, {0, 3 * two_31, two_31 / 2 + 2, 1}},
    {"batch rows far apart", {3, 2, 2, 64}, {2 * two_31, 128, 64, 1}},
    {"batch rows far apart, one token", {3, 1, 2, 64}, {two_31 + 2, 0, 64, 1}},
    {"elements far apart that fit", {1, 2, 2, 4}, {0, 2, 1, two_31 / 4 - 1}},
    {"elements too far apart", {1, 2, 2, 4}, {0, 2, 1, two_31 / 2 + 3}},
    {"elements too far apart, backwards", {1, 2, 2, 4}, {0, 2, 1, -two_31 - 3}},
};

void scatter(const Elements &x, const halyard_tensor &to) {
    for (std::int64_t i = 0; i < x.count(); i++) {
        oracle::write_word(x.dtype, element_at(to, i), x.word(i));
    }
}

Elements gather(const halyard_tensor &from, const std::array<std::int64_t, 4> &shape) {
    Elements found(from.dtype, shape);
    for (std::int64_t i = 0; i < found.count(); i++) {
        found.set_word(i, oracle::read_word(from.dtype, element_at(from, i)));
    }
    return found;
}

/// Tokens 0, 1, 2, … of every batch row.
constexpr std::int32_t start = 0;
const halyard_positions in_order = halyard::consecutive_positions(&start, 1);

/// Norms and conversions read from memory with such strides, and write to it.
void check_stages(const Rotation &rotation, const halyard::angle_source &angles, Elements x,
                  const halyard_tensor &far_x) {
    auto norm = halyard::make_struct<halyard_norm_desc>();
    norm.eps = 1e-6;
    auto kv = halyard::make_struct<halyard_kv_desc>();
    for (const bool norms : {true, false}) {
        auto head = halyard::describe_tensor(static_cast<halyard::dtype>(rotation.dtype), rotation.rotary_dim,
                                             static_cast<halyard::pairing>(rotation.pairing));
        head.kv = &kv;
        kv.norm = norms ? &norm : nullptr;
        kv.out_dtype = norms ? rotation.dtype : HALYARD_F16;
        halyard::plan_desc desc(rotation.rotary_dim, {head});
        desc.target = rotation.target;
        const halyard::plan plan(desc);
        Elements from_near(kv.out_dtype, x.shape), from_far = from_near;
        scatter(x, far_x);
        halyard_tensor far_y = far_x;
        far_y.dtype = kv.out_dtype;
        const auto options = halyard::run_options().at(in_order);
        halyard::run(plan, angles, x.tensor(), from_near.tensor(), options);
        halyard::run(plan, angles, far_x, from_far.tensor(), options);
        halyard::run(plan, angles, x.tensor(), far_y, options);
        CHECK(from_far == from_near);
        CHECK(gather(far_y, x.shape) == from_near);
    }
}

}  // namespace

TEST_CASE("strides beyond 32 bits", "[large]") {
    const Case &large = GENERATE(from_range(cases));
    Rotation rotation;
    rotation.target = GENERATE(from_range(targets_here()));
    rotation.dtype = GENERATE(as<std::int32_t>(), HALYARD_F32, HALYARD_BF16);
    rotation.pairing = GENERATE(as<std::int32_t>(), HALYARD_PAIRING_HALF, HALYARD_PAIRING_INTERLEAVED);
    rotation.rotary_dim = large.shape[3];
    INFO(large.name << ", " << rotation.target << ", dtype " << rotation.dtype << ", pairing " << rotation.pairing);

    const std::int64_t bytes = oracle::element_bytes(rotation.dtype);
    std::int64_t below = 0, above = 1;
    for (std::size_t d = 0; d < 4; d++) {
        const std::int64_t reach = large.strides[d] * (large.shape[d] - 1);
        (reach < 0 ? below : above) += std::abs(reach);
    }
    const SparseMemory memory(static_cast<std::size_t>((below + above) * bytes));
    if (memory.data() == nullptr) {
        SKIP("cannot reserve " << (below + above) * bytes << " bytes of address space");
    }
    const halyard_tensor sparse = halyard::tensor(
        memory.data() + below * bytes, static_cast<halyard::dtype>(rotation.dtype), large.shape, large.strides);
    oracle::Random random(Catch::getSeed());
    const Elements x = Elements::random(rotation.dtype, large.shape, random);
    scatter(x, sparse);
    const auto angles =
        halyard::angle_source::table(halyard::frequencies::from_base(10000, rotation.rotary_dim), 0, 10);
    const Elements want = rotate(rotation, angles, &in_order, x);

    Elements gathered(rotation.dtype, large.shape);
    const auto options = halyard::run_options().at(in_order);
    halyard::run(rotation.plan(), angles, sparse, gathered.tensor(), options);
    CHECK(gathered == want);
    const halyard::plan plan = rotation.plan();
    const halyard::bound_run bound(plan, angles, sparse, gathered.tensor(), options);
    std::ranges::fill(gathered.bytes, 0);
    bound({sparse.data}, {gathered.bytes.data()}, &start);
    CHECK(gathered == want);
    halyard::run(rotation.plan(), angles, sparse, sparse, options);
    CHECK(gather(sparse, large.shape) == want);
    if (rotation.target != std::string("reference")) {  // which has no stages
        check_stages(rotation, angles, x, sparse);
    }
}

TEST_CASE("rows of cos and sin beyond 32 bits", "[large]") {
    Rotation rotation;
    rotation.target = GENERATE(from_range(targets_here()));
    rotation.rotary_dim = 32;
    const std::int64_t n_rows = 4, stride_row = GENERATE(two_31 / 2 + 1, two_31 + 16);
    INFO(rotation.target << ", rows " << stride_row << " apart");
    const SparseMemory memory(static_cast<std::size_t>(n_rows * stride_row * 4));
    if (memory.data() == nullptr) {
        SKIP("cannot reserve " << n_rows * stride_row * 4 << " bytes of address space");
    }
    const auto frequencies = halyard::frequencies::from_base(10000, 32);
    const auto angles = halyard::angle_source::table(frequencies, 0, 4);
    float rows[4 * 32];
    halyard::make_rows(rotation.plan(), angles, nullptr, 1, 4, rows, 4 * 32);
    auto *const far = reinterpret_cast<float *>(memory.data());
    for (std::int64_t row = 0; row < n_rows; row++) {
        std::memcpy(far + row * stride_row, rows + row * 32, 32 * sizeof(float));
    }
    const auto given = halyard::angle_source::given(far, far + 16, n_rows, stride_row, 32);
    oracle::Random random(Catch::getSeed());
    Elements x = Elements::random(HALYARD_F32, {1, 4, 3, 32}, random);
    const Elements want = rotate(rotation, angles, nullptr, x);
    Elements y = rotate(rotation, given, nullptr, x);
    CHECK(y == want);
    const halyard::plan plan = rotation.plan();
    const halyard::bound_run bound(plan, given, x.tensor(), y.tensor());
    std::ranges::fill(y.bytes, 0);
    bound({x.bytes.data()}, {y.bytes.data()});
    CHECK(y == want);
}
