// One tensor of a call: its input, stages and output, read from Python into the C ABI's structs.
#pragma once

#include "array.h"
#include "groups.h"

namespace halyard::python {

/// The C ABI's structs of one tensor, and the arrays that they point into. Not movable: they point into each other.
class Operand {
public:
    Operand() = default;
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    /// Reads the tuple of _tensor.complete: name, array, out (None: a new array or the cache), whether it is rotated,
    /// and the halyard.Tensor or None. The array must be on `device`, and the Tensor's other arrays on the
    /// same device, except `scale`, which is on the CPU. The layout is BHSD or HSD if heads_first, else BSHD or SHD.
    void read(nb::handle completed, bool heads_first, std::int32_t device);

    /// Reads such a tuple for rerotate. With slots, the keys are in the Tensor's cache.
    void read_keys(nb::handle completed, const halyard_slots *slots, bool heads_first);

    /// Releases the arrays of x and y. For bound runs, which get new pointers at each call.
    void forget_tensors() {
        input_.reset();
        output_.reset();
        result_ = {};
    }

    const std::string &name() const { return name_; }
    /// The array of x; valid after read().
    const Array &input() const { return *input_; }
    bool has_batch() const { return has_batch_; }
    /// What the caller gets: the output or the cache's array; or (output, scales) if scales of groups were made here.
    nb::object result() const;

    halyard_tensor_desc desc{};  ///< desc.kv points to kv
    halyard_kv_desc kv{};
    halyard_tensor x{};
    halyard_tensor y{};
    halyard_stages stages{};

private:
    void begin(nb::handle completed, bool heads_first);
    /// Describes an array of 3 or 4 dimensions as a halyard_tensor; throws for other numbers of dimensions.
    halyard_tensor view(const Array &array) const;
    void read_array(nb::handle array, std::int32_t device);
    void read_stages(nb::handle tensor);
    void read_output(nb::handle y);
    nb::object make_output() const;
    nb::object make_like_input(const char *dtype, nb::object tail) const;
    void read_rotary_offset(nb::handle offset);
    void read_from_groups(nb::handle groups);
    void read_dtype(nb::handle dtype);
    void read_groups(nb::handle groups);
    void read_group_scales(nb::handle groups);
    void read_cache(nb::handle cache);
    void read_tiles(nb::handle layout);
    void read_norm(nb::handle norm);
    void read_position_scales(nb::handle scales);
    void read_hadamard(nb::handle n);
    void read_scale(nb::handle scale);
    HeadRows rows_of_views() const;
    std::int32_t dtype_of(const Array &array) const;
    /// The size of a head in a cache or an output: the bytes of its record if it is quantised in groups, else its
    /// elements.
    std::int64_t stored_width() const { return kv.groups != nullptr ? groups_.info.record_bytes : desc.head_dim; }
    std::string name_of(const char *what) const { return std::string(what) + " of " + name_; }

    std::string name_;
    std::int32_t device_ = Array::on_cpu;
    bool heads_first_ = false, has_batch_ = false;
    nb::object result_, made_scales_;
    const Array *records_ = nullptr;  // for rerotate: the keys, whose record size gives head_dim
    std::optional<std::string> asked_dtype_;
    std::optional<Array> input_, output_, weight_, bias_, scales_, position_scales_, cache_, group_scales_,
        from_group_scales_;
    halyard_norm_desc norm_{};
    halyard_scale_desc scale_{};
    halyard_cache_desc cache_desc_{};
    Groups groups_, from_groups_;
    float scale_value_ = 0.0f;
};

}  // namespace halyard::python
