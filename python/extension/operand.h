// One of the tensors of a call: what it is read from, which stages it takes, and where it goes.
#pragma once

#include "array.h"
#include "groups.h"

namespace halyard::python {

/// The C ABI's structs of one tensor, and the arrays that they point into. It must stay where it is.
class Operand {
public:
    Operand() = default;
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    /// Reads what _tensor.complete has made of a tensor: its name, it, where it goes or None for a new array or a
    /// cache, whether it is rotated, and the halyard.Tensor with its stages, or None. It has to lie on `device`, or
    /// anywhere, and all else where it does. `heads_first`: BHSD, else BSHD; without a batch HSD or SHD.
    void read(nb::handle told, bool heads_first, std::int32_t device);

    /// Reads keys that move likewise. With slots they lie in the Tensor's cache.
    void read_keys(nb::handle told, const halyard_slots *slots, bool heads_first);

    /// Lets go of the memory of x and y, where each call brings its own.
    void forget_tensors() {
        input_.reset();
        output_.reset();
        result_ = {};
    }

    const std::string &name() const { return name_; }
    /// What x is, once it was read.
    const Array &input() const { return *input_; }
    bool has_batch() const { return has_batch_; }
    /// What the caller gets: the array or the cache that it goes to, with the scales that were made beside it.
    nb::object result() const;

    halyard_tensor_desc desc{};  ///< with kv
    halyard_kv_desc kv{};
    halyard_tensor x{};
    halyard_tensor y{};
    halyard_stages stages{};

private:
    void begin(nb::handle told, bool heads_first);
    /// An array of 3 or 4 dimensions as the C ABI has it; throws for others.
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
    /// Of a head in a cache or an output, in elements or in bytes.
    std::int64_t stored_width() const { return kv.groups != nullptr ? groups_.info.record_bytes : desc.head_dim; }
    std::string name_of(const char *what) const { return std::string(what) + " of " + name_; }

    std::string name_;
    std::int32_t device_ = Array::on_cpu;
    bool heads_first_ = false, has_batch_ = false;
    nb::object result_, made_scales_;
    const Array *records_ = nullptr;  // keys that move, which tell with their groups what head_dim is
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
