// What kernels are told: the addresses of their arguments, in the order of the generators' inputs.
#pragma once

#include "gpu/view.h"

#include <bit>

namespace halyard::gpu {

/// Addresses of arguments, in a kernel's order. What they point to must live until the kernel is called.
class Arguments {
public:
    template <typename T>
    void add(const T &scalar) {
        list_[n_++] = const_cast<T *>(&scalar);
    }
    void add(View &view) { list_[n_++] = view.get(); }
    template <typename... T>
    void add_all(T &&...all) {
        (add(all), ...);
    }
    void **get() { return list_; }

private:
    static constexpr int most = 144;
    void *list_[most];
    int n_ = 0;
};

/// Some of the pairs of each head.
struct PairRange {
    std::int64_t first, count;
};

/// Positions, and which of them are covered: DevicePositions in generators/gpu/device_angles.h.
class PositionArguments {
public:
    PositionArguments(const Launch &launch, const LaunchPositions &positions, std::int64_t n_tokens,
                      const Covered &covered)
        : given_(positions), covered_(covered), view_(launch, positions.place, type_int32, 4),
          list_(launch, {covered.list.memory, 0}, type_int32, 4),
          n_list_steps_(covered.list.is_list ? static_cast<std::int32_t>(std::bit_width(list_length())) : 0) {
        add_positions(view_, positions, n_tokens, covered.n_axes);
        list_.add(std::max(covered.list.n, 1), 1);
        offset_ = view_.offset();
    }

    void add_to(Arguments &all) {
        all.add_all(view_, given_.n_words, offset_, given_.start, given_.step, covered_.first, covered_.last, list_,
                    n_list_steps_, covered_.list.n);
    }

private:
    LaunchPositions given_;
    Covered covered_;
    View view_, list_;
    std::int32_t n_list_steps_, offset_ = 0;

    std::uint32_t list_length() const { return static_cast<std::uint32_t>(std::max(covered_.list.n, 1)); }
};

/// The angles of some pairs: DeviceAngles in generators/gpu/device_angles.h.
class AngleArguments {
public:
    AngleArguments(const Launch &launch, const PairRange &pairs)
        : angles_(*launch.angles), clamps_(launch.clamps),
          axis_of_pair_(launch, {angles_.axis_of_pair, 4 * pairs.first}, type_int32, 4),
          first_(launch, rows(angles_.first_rows, angles_.first_offset, pairs, 4), type_float, 4),
          second_(launch, rows(angles_.second_rows, angles_.second_offset, pairs, 4), type_float, 4),
          first_halves_(launch, rows(angles_.first_rows, angles_.first_offset, pairs, 2), type_uint16, 2),
          second_halves_(launch, rows(angles_.second_rows, angles_.second_offset, pairs, 2), type_uint16, 2) {
        axis_of_pair_.add(pairs.count, 1);
        for (View *view : {&first_, &second_, &first_halves_, &second_halves_}) {
            view->add(view->offset() + pairs.count, 1);
            view->add(angles_.n_rows, angles_.source.stride_row);
        }
        first_offset_ = has_halves() ? first_halves_.offset() : first_.offset();
        second_offset_ = has_halves() ? second_halves_.offset() : second_.offset();
    }

    void add_to(Arguments &all) {
        const halyard_angle_source &source = angles_.source;
        all.add_all(axis_of_pair_, clamps_, angles_.form, first_, second_, first_halves_, second_halves_, first_offset_,
                    second_offset_, source.identity_row, angles_.first_fine_row, source.fine_bits, source.scale_high,
                    source.scale_low);
    }

private:
    const DeviceAngles &angles_;
    std::int32_t clamps_;
    View axis_of_pair_, first_, second_, first_halves_, second_halves_;
    std::int32_t first_offset_ = 0, second_offset_ = 0;

    bool has_halves() const { return angles_.form == DeviceForm::rows_f16 || angles_.form == DeviceForm::rows_bf16; }

    /// Where rows of such elements begin; of others, which are not read, the memory itself.
    Location rows(void *memory, std::int64_t offset, const PairRange &pairs, std::int64_t bytes) const {
        const bool is_read = (bytes == 2) == has_halves();
        return {memory, is_read ? (offset + pairs.first) * bytes : 0};
    }
};

}  // namespace halyard::gpu
