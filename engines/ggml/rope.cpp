// Reads the parameters of a ROPE node, which ggml_rope_impl in ggml.c packs into op_params.
#include "rope.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>

namespace halyard_ggml {

namespace {

template <typename T>
T parameter(const ggml_tensor &node, int index) {
    T value;
    std::memcpy(&value, node.op_params + index, sizeof(value));
    return value;
}

RopeParameters read_parameters(const ggml_tensor &node) {
    const auto number = [&](int index) { return parameter<float>(node, index); };
    const auto count = [&](int index) { return parameter<std::int32_t>(node, index); };
    return {count(1),  count(2),  count(4),  number(5),  number(6),
            number(7), number(8), number(9), number(10), {count(11), count(12), count(13), count(14)}};
}

bool has_type_and_strides(const ggml_tensor &tensor, ggml_type type) {
    const auto bytes = ggml_type_size(type);
    return tensor.type == type && tensor.nb[0] == bytes && tensor.nb[1] % bytes == 0 && tensor.nb[2] % bytes == 0 &&
           tensor.nb[3] % bytes == 0;
}

}  // namespace

const char *read_rope(const ggml_tensor &node, Rope *out) {
    const ggml_tensor &x = *node.src[0], &positions = *node.src[1];
    Rope rope = {
        read_parameters(node),       &x, &positions, node.src[2], 1, 0, parameter<std::int32_t>(node, 15), true,
        node.op == GGML_OP_ROPE_BACK};
    const RopeParameters &p = rope.parameters;
    if (x.type != GGML_TYPE_F32 && x.type != GGML_TYPE_F16) {
        return "the dtype is neither f32 nor f16";
    }
    if (!has_type_and_strides(x, x.type) || !has_type_and_strides(node, x.type)) {
        return "strides are no multiples of an element, or elements of a head are apart";
    }
    switch (p.mode) {
    case GGML_ROPE_TYPE_NORMAL: rope.is_half = false; break;
    case GGML_ROPE_TYPE_NEOX: break;
    case GGML_ROPE_TYPE_MROPE:
    case GGML_ROPE_TYPE_IMROPE:
    case GGML_ROPE_TYPE_VISION: rope.n_axes = 4; break;
    default: return "the mode is unknown";
    }
    const bool is_vision = p.mode == GGML_ROPE_TYPE_VISION;
    rope.n_pairs = is_vision ? p.n_dims : p.n_dims / 2;
    if (p.n_dims < 2 || p.n_dims % 2 != 0 || rope.offset < 0 || rope.offset + 2 * rope.n_pairs > x.ne[0] ||
        (is_vision && 2 * rope.n_pairs != x.ne[0])) {
        return "the rotated window is not inside the head";
    }
    if (rope.n_axes == 4) {
        const auto least = *std::min_element(p.sections, p.sections + 4);
        if (least < 0 || p.sections[0] + p.sections[1] + p.sections[2] <= 0) {
            return "the sections are not positive";
        }
    }
    if (positions.type != GGML_TYPE_I32 || !ggml_is_contiguous(&positions) ||
        ggml_nelements(&positions) != rope.n_axes * x.ne[2]) {
        return "the positions are not one dense int32 for each axis and token";
    }
    if (rope.factors != nullptr && (rope.factors->type != GGML_TYPE_F32 || !ggml_is_contiguous(rope.factors) ||
                                    rope.factors->ne[0] < rope.n_pairs)) {
        return "the frequency factors are not one dense f32 for each pair";
    }
    *out = rope;
    return nullptr;
}

std::vector<PairAngle> pair_angles(const RopeParameters &parameters, std::int64_t n_pairs) {
    std::vector<PairAngle> result(static_cast<std::size_t>(n_pairs));
    const bool has_sections = (parameters.mode & GGML_ROPE_TYPE_MROPE) != 0;
    const auto &s = parameters.sections;
    const int ends[] = {s[0], s[0] + s[1], s[0] + s[1] + s[2], s[0] + s[1] + s[2] + s[3]};
    int exponents[4] = {};
    for (int k = 0; k < static_cast<int>(n_pairs); ++k) {
        int axis = 0;
        if (has_sections) {
            const int sector = k % ends[3];
            // A section's exponents start again at 0 where the section begins. If a section is empty, the next one
            // begins at the same pair; as in ggml, the empty one's exponent is then reset, not the next one's.
            if (parameters.mode == GGML_ROPE_TYPE_VISION) {
                const int starts[] = {0, ends[0], ends[1], ends[2]};
                const auto *begun = std::find(starts, starts + 4, sector);
                if (begun != starts + 4) {
                    exponents[begun - starts] = 0;
                }
            }
            if (parameters.mode == GGML_ROPE_TYPE_IMROPE) {
                axis = sector < 3 * s[sector % 3] ? sector % 3 : 3;
            } else {
                axis = static_cast<int>(std::upper_bound(ends, ends + 3, sector) - ends);
            }
        }
        result[static_cast<std::size_t>(k)] = {axis, exponents[axis]};
        for (int &exponent : exponents) {
            ++exponent;
        }
    }
    return result;
}

}  // namespace halyard_ggml
