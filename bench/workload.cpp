#include "workload.h"

#include <map>
#include <new>
#include <random>

namespace halyard::bench {

namespace {

constexpr std::size_t cache_line = 64;
constexpr std::int32_t last_position = 65535;

std::int64_t element_bytes(dtype type) { return type == dtype::f32 ? 4 : 2; }

std::size_t tensor_bytes_of(dtype type, const Shape &shape) {
    return static_cast<std::size_t>(shape.tokens * shape.heads * shape.head_dim * element_bytes(type));
}

halyard_plan_desc describe(dtype type, pairing in, pairing out, std::int64_t head_dim, const char *target) {
    halyard_tensor_desc tensor = describe_tensor(type, head_dim, in);
    tensor.out_pairing = static_cast<std::int32_t>(out);
    halyard_plan_desc desc = describe_plan(head_dim, {tensor});
    desc.target = target;
    return desc;
}

/// One source for all workloads of a head size, as a model's layers would share it.
std::shared_ptr<const angle_source> angles_for(std::int64_t rotary_dim, std::int32_t kind) {
    static std::map<std::pair<std::int64_t, std::int32_t>, std::shared_ptr<const angle_source>> made;
    std::shared_ptr<const angle_source> &angles = made[{rotary_dim, kind}];
    if (!angles) {
        auto desc = detail::make_struct<halyard_angle_source_desc>();
        desc.kind = kind;
        desc.last = last_position;
        angles = std::make_shared<angle_source>(frequencies::from_base(10000.0, rotary_dim), desc);
    }
    return angles;
}

void fill(const Buffer &buffer, dtype type) {
    std::minstd_rand random(1);
    if (type == dtype::f32) {
        return buffer.fill_floats();
    }
    // The upper bits of a float near 1 are bf16; f16 near 1 has its exponent three bits further up.
    auto *words = static_cast<std::uint16_t *>(buffer.data());
    for (std::size_t i = 0; i < buffer.n_bytes() / 2; i++) {
        const std::uint32_t fraction = static_cast<std::uint32_t>(random()) >> 8;
        words[i] = static_cast<std::uint16_t>(type == dtype::bf16 ? 0x3f80u | (fraction & 0x7fu)
                                                                  : 0x3c00u | (fraction & 0x3ffu));
    }
}

}  // namespace

Buffer::Buffer(std::size_t n_bytes)
    : data_(::operator new(n_bytes + cache_line, std::align_val_t(cache_line))), n_bytes_(n_bytes) {
    fill_floats();
}

void Buffer::Free::operator()(void *data) const noexcept { ::operator delete(data, std::align_val_t(cache_line)); }

void Buffer::fill_floats() const {
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
    auto *floats = static_cast<float *>(data());
    for (std::size_t i = 0; i < n_bytes_ / sizeof(float); i++) {
        floats[i] = uniform(random);
    }
}

Workload::Workload(dtype type, pairing in, pairing out, bool in_place, Shape shape, const char *target,
                   std::int32_t angles)
    : type_(type), in_(in), out_(out), in_place_(in_place), shape_(shape), angles_kind_(angles),
      angles_(angles_for(shape.head_dim, angles)), plan_(describe(type, in, out, shape.head_dim, target)),
      x_(tensor_bytes_of(type, shape)), y_(in_place ? 0 : tensor_bytes_of(type, shape)),
      position_data_(static_cast<std::size_t>(shape.tokens)) {
    fill(x_, type);
    std::minstd_rand random(2);
    for (std::int32_t &position : position_data_) {
        position = static_cast<std::int32_t>(random() % (last_position + 1u));
    }
    positions_ = halyard::positions(position_data_.data(), {1, shape.tokens});
    x_view_ = tensor(x_.data(), type, {1, shape.tokens, shape.heads, shape.head_dim});
    y_view_ = tensor(in_place ? x_.data() : y_.data(), type, {1, shape.tokens, shape.heads, shape.head_dim});
}

void Workload::run(const halyard_executor *executor) const {
    halyard_run_args args = {};
    args.size = sizeof(args);
    args.angles = angles_->get();
    args.positions = &positions_;
    args.x = &x_view_;
    args.y = &y_view_;
    args.executor = executor;
    if (halyard_run(plan_.get(), &args, nullptr) != HALYARD_OK) {
        throw error(HALYARD_ERROR_UNSUPPORTED, "a workload of the bench failed: " + name());
    }
}

const char *Workload::angles() const {
    return angles_kind_ == HALYARD_ANGLES_PHASE      ? "phase"
           : angles_kind_ == HALYARD_ANGLES_FACTORED ? "factored"
                                                     : "table";
}

std::string Workload::name() const {
    const auto word = [](pairing p) { return std::string(p == pairing::half ? "half" : "interleaved"); };
    const std::string types[] = {"f32", "f16", "bf16"};
    return (in_ == out_ ? word(in_) : word(in_) + "_to_" + word(out_)) + "_" + types[static_cast<std::size_t>(type_)] +
           (in_place_ ? "_in_place" : "");
}

}  // namespace halyard::bench
