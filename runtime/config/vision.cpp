#include "config/rope.h"

#include <string>

namespace halyard {

Rope read_vision(const JsonObject &root) {
    const auto type = root.word("model_type").value_or("");
    const ModelType *known = find_model_type(type);
    if (known == nullptr || !known->has_vision) {
        refuse_unsupported("model_type is " + quote(type) + ", whose image encoder is not supported");
    }
    const auto vision = root.object("vision_config");
    if (!vision) {
        refuse_missing("vision_config");
    }
    check_vision_keys(*vision);
    // In Qwen2-VL, hidden_size is the language model's.
    const char *const width_key = vision->has("embed_dim") ? "embed_dim" : "hidden_size";
    const auto width = vision->count(width_key);
    const auto n_heads = vision->count("num_heads");
    if (!width || !n_heads) {
        refuse_missing(vision->name_of(width ? "num_heads" : width_key));
    }
    if (*width % *n_heads != 0 || *width / *n_heads % 4 != 0) {
        refuse(vision->name_of(width_key) + " is " + std::to_string(*width) + ", which does not make " +
               std::to_string(*n_heads) + " heads (num_heads) of a multiple of 4");
    }
    Rope rope;
    // Half of a head's pairs rotate by the row of a patch and half by its column, with the same frequencies.
    rope.scaling.rotary_dim = *width / *n_heads / 2;
    rope.names.rotary_dim = rope.keep(vision->name_of(width_key) + " / num_heads / 2");
    rope.scaling.base = 10000.0;
    if (const auto parameters = vision->object("rope_parameters")) {
        rope.scaling.base = parameters->number("rope_theta").value_or(rope.scaling.base);
        rope.names.base = rope.keep(parameters->name_of("rope_theta"));
        const auto method = parameters->word("rope_type").value_or("axial");
        if (method != "axial" && method != "default") {
            refuse_unsupported(parameters->name_of("rope_type") + " is " + quote(method) +
                               ", a method that is not known here");
        }
    }
    rope.about.pairing = rope.about.out_pairing = HALYARD_PAIRING_HALF;
    rope.about.base = rope.scaling.base;
    rope.about.head_dim = *width / *n_heads;
    rope.about.axis_map = HALYARD_AXIS_MAP_SECTIONS;
    rope.about.n_axes = 2;
    rope.about.axis_counts[0] = rope.about.axis_counts[1] = rope.scaling.rotary_dim / 2;
    return rope;
}

}  // namespace halyard
