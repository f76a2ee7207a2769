// One of the tensors of a call on its road: what it is read from, which stages it takes, and where it goes.
#pragma once

#include "array.h"
#include "groups.h"

#include <cstdint>
#include <optional>

namespace halyard::python {

/// The dimensions of a tensor or of what has one number for each of its heads. `heads_first`: BHSD, else BSHD; without
/// a batch SHD or HSD.
struct HeadOrder {
    bool heads_first;

    /// Tensors of 3 or 4 dimensions as the C ABI has them; throws for others.
    halyard_tensor view(const Array &array) const;
};

/// One of the tensors that lie side by side in an array: n heads of `total`, from the first on.
struct Part {
    std::int64_t first, n, total;
    std::int64_t head_dim;  ///< where the heads of a token share the array's last dimension; else 0

    halyard_tensor view(const Array &array, HeadOrder layout) const;
};

/// What Python says of one tensor's stages.
struct StageArguments {
    nanobind::handle norm = Py_None, scale = Py_None, cache = Py_None, dtype = Py_None, cache_layout = Py_None;
    nanobind::handle position_scales = Py_None, hadamard = Py_None, groups = Py_None, from_groups = Py_None;
    nanobind::handle group_scales = Py_None, from_group_scales = Py_None;
};

/// What it says of keys that move: an array and where its result goes (None: there), or with slots a cache. Of a cache
/// with tiles n_heads and head_dim are told, of others its shape tells them, and how wide a record is. Of the stages
/// those that do not move keys are not looked at.
struct KeyArguments {
    nanobind::handle keys, out, slots;
    std::optional<std::int64_t> n_heads = std::nullopt, head_dim = std::nullopt;
    StageArguments stages = {};
};

/// The C ABI's structs of one tensor, and the arrays that they point into. It must stay where it is.
class Road {
public:
    Road() = default;
    Road(const Road &) = delete;
    Road &operator=(const Road &) = delete;

    /// Reads x, and y unless the tensor goes to a cache. `name` is q, k or v.
    /// x has to lie on `device`, or anywhere, and all else where x does. With a part, x holds other tensors, too.
    void read(const char *name, nanobind::handle x, nanobind::handle y, HeadOrder layout,
              const StageArguments &arguments, std::int32_t device, const Part *part = nullptr);

    /// Lets go of the memory of x and y.
    void forget_tensors() {
        input_.reset();
        output_.reset();
    }

    /// What x is, once it was read.
    const Array &input() const { return *input_; }
    bool has_batch() const { return has_batch_; }

    /// Reads keys that move.
    void read_keys(const KeyArguments &arguments, HeadOrder layout);

    halyard_tensor_desc desc{};  ///< with kv
    halyard_kv_desc kv{};
    halyard_tensor x{};
    halyard_tensor y{};
    halyard_stages stages{};
    bool has_stages = false;  ///< whether the run brings anything for it

private:
    void read_moving_array(const KeyArguments &arguments, HeadOrder layout);
    void read_moving_cache(const KeyArguments &arguments);
    void read_output(nanobind::handle y, HeadOrder layout, nanobind::handle dtype, const Part *part = nullptr);
    void read_norm(nanobind::handle norm);
    void read_bias(nanobind::handle bias);
    void read_scale(nanobind::handle scale, HeadOrder layout);
    void read_dynamic_scales(nanobind::handle out, HeadOrder layout);
    void read_position_scales(nanobind::handle scales, HeadOrder layout);
    void read_hadamard(nanobind::handle n);
    void read_cache(nanobind::handle cache, nanobind::handle layout, nanobind::handle dtype);
    void read_tiles(nanobind::handle layout);
    void read_groups(nanobind::handle groups, const Array *moving);
    void read_from_groups(nanobind::handle groups);
    void read_group_scales(nanobind::handle scales, HeadOrder layout);
    void read_from_group_scales(nanobind::handle scales, HeadOrder layout);
    void require_scales(nanobind::handle scales, bool is_apart, const char *what, const char *groups) const;
    HeadRows rows_of_views(HeadOrder layout) const;
    std::int32_t dtype_of(const Array &array, nanobind::handle asked) const;
    /// Of a head in a cache or an output, in elements or in bytes.
    std::int64_t stored_width() const { return kv.groups != nullptr ? groups_.info.record_bytes : desc.head_dim; }
    std::string name_of(const char *what) const { return std::string(what) + " of " + name_; }

    const char *name_ = "";
    bool has_batch_ = false;
    std::optional<Array> input_, output_, weight_, bias_, scales_, position_scales_, cache_, group_scales_,
        from_group_scales_;
    halyard_norm_desc norm_{};
    halyard_scale_desc scale_{};
    halyard_cache_desc cache_desc_{};
    Groups groups_, from_groups_;
    float scale_value_ = 0.0f;
};

}  // namespace halyard::python
