#include "calls/bound.h"

namespace halyard::python {

Bound::Place::Place(std::size_t from, const void *pointer, void *const *data)
    : origin(pointer == nullptr ? Origins::fixed : from), kept(const_cast<void *>(pointer)) {
    if (origin != Origins::fixed) {
        offset = static_cast<const char *>(pointer) - static_cast<const char *>(data[origin]);
    }
}

Bound::Bound(nb::handle described, const Origins &origins, void *const *data) {
    auto &angles = nb::cast<AngleSource &>(at(described, 0));
    angles_ = angles.angles;
    call_ =
        std::make_unique<Call>(angles, at(described, 1), at(described, 2), at(described, 3), Options(at(described, 4)));
    auto &args = call_->args;
    if (args.positions == nullptr) {
        require_positions(angles, call_->tensors);
    }
    bound_ = call_->tensors.named([&] {
        plan_ = angles.find_plan(call_->desc);
        return bound_run(detail::create<halyard_bound_run>(halyard_bind_run, plan_->get(), &args));
    });
    for (std::size_t i = 0; i < call_->tensors.n; ++i) {
        const auto &stages = call_->tensors.stages[i];
        x_[i] = Place(origins.x[i], call_->tensors.x[i].data, data);
        y_[i] = stages.cache != nullptr ? Place() : Place(origins.y[i], call_->tensors.y[i].data, data);
        call_->tensors.operands[i].forget_tensors();
    }
    positions_.origin = args.positions != nullptr ? origins.positions : Origins::fixed;
    slots_.origin = call_->tensors.kv.slots != nullptr ? origins.slots : Origins::fixed;
    scratch_bytes_ = call_->tensors.kv.slots != nullptr
                         ? static_cast<std::size_t>(call_->tensors.kv.slots->scratch_bytes)
                         : std::size_t{0};
    call_->read_positions.reset();  // memory of a call, which its caller may want back
    call_->read_slots.reset();
}

bool Bound::writes(std::size_t array) const {
    return std::any_of(y_.begin(), y_.end(), [&](const Place &place) { return place.origin == array; });
}

void Bound::run(void *const *data) const {
    std::array<const void *, max_tensors> x{};
    std::array<void *, max_tensors> y{};
    for (std::size_t i = 0; i < call_->tensors.n; ++i) {
        x[i] = x_[i].in(data);
        y[i] = y_[i].in(data);
    }
    thread_local std::vector<char> scratch;
    scratch.resize(std::max(scratch.size(), scratch_bytes_));
    auto args = make_struct<halyard_bound_run_args>();
    args.n_tensors = static_cast<std::int32_t>(call_->tensors.n);
    args.positions = positions_.in(data);
    args.x = x.data();
    args.y = y.data();
    auto slots = make_struct<halyard_slots>();
    slots.data = slots_.in(data);
    slots.scratch = scratch_bytes_ != 0 ? scratch.data() : nullptr;
    const auto kv = kv_args(call_->tensors.stages.data(), &slots);
    args.kv = call_->args.kv != nullptr ? &kv : nullptr;
    call_->tensors.named([&] { detail::call(halyard_run_bound, bound_.get(), &args); });
}

}  // namespace halyard::python
