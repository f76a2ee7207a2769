// What a config says about the RoPE of one kind of layers: widths, base, method and its numbers, axes, pairing.
#include "config/config.h"

#include "angles/frequencies.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace halyard {
namespace {

using std::size_t;

/// A number and the field that states it.
struct Stated {
    std::string name;
    double value;
};

/// The one value that several fields may state. They must agree.
class Agreement {
public:
    void add(const JsonObject &object, const char *key, double times = 1.0) {
        if (const auto value = object.number(key)) {
            add({object.name_of(key), *value * times});
        }
    }
    void add(const Stated &stated) {
        if (stated_ && stated_->value != stated.value) {
            refuse_contradiction(stated.name, format_number(stated.value), stated_->name,
                                 format_number(stated_->value));
        }
        stated_ = stated_ ? stated_ : stated;
    }
    const std::optional<Stated> &stated() const { return stated_; }

private:
    std::optional<Stated> stated_;
};

/// A factor that a config states. Zero would mean "not stated" further on.
std::optional<double> read_factor(const JsonObject &object, const char *key) {
    const auto value = object.number(key);
    if (value && *value == 0.0) {
        refuse(object.name_of(key) + " is 0", HALYARD_ERROR_FREQUENCY);
    }
    return value;
}

double require_factor(const JsonObject &object, const char *key) {
    const auto value = read_factor(object, key);
    if (!value) {
        refuse_missing(object.name_of(key));
    }
    return *value;
}

class RopeReader {
public:
    RopeReader(const Model &model, const Layer &layer, const Request &request)
        : config_(model.config), type_(model.type), known_(model.known), layer_(layer),
          scaling_(layer.scaling ? *layer.scaling : JsonObject(empty_object(), "rope_scaling.")),
          has_scaling_(layer.scaling.has_value()) {
        rope_.scaling.size = sizeof(rope_.scaling);
        rope_.scaling.seq_len = request.seq_len;
    }

    Rope read() {
        read_method();
        read_widths();
        read_base();
        read_positions();
        read_numbers();
        read_axes();
        read_pairing();
        return std::move(rope_);
    }

private:
    static const Json &empty_object() {
        static const Json object = parse_json("{}");
        return object;
    }

    bool is_sliding() const { return layer_.type == "sliding_attention"; }
    bool is_kind(Layers kind) const { return known_ != nullptr && known_->layers == kind; }
    /// Gemma 4's layers, without a word in the config.
    bool is_default_gemma4() const { return is_kind(Layers::gemma4) && !has_scaling_; }

    std::optional<std::string> read_type(const char *key) {
        auto word = scaling_.word(key);
        if (word == "mrope") {
            says_mrope_ = true;
            return "default";
        }
        if (word == "su" || (word == "yarn" && known_ != nullptr && known_->yarn_is_longrope)) {
            return "longrope";
        }
        return word;
    }

    void read_method() {
        const auto new_name = read_type("rope_type");
        const auto old_name = read_type("type");
        if (new_name && old_name && *new_name != *old_name) {
            refuse_contradiction(scaling_.name_of("rope_type"), quote(*new_name), scaling_.name_of("type"),
                                 quote(*old_name));
        }
        const auto stated = new_name ? new_name : old_name;
        if (!stated) {
            for (const char *key : {"factor", "short_factor", "long_factor", "low_freq_factor", "beta_fast", "mscale",
                                    "attention_factor", "alpha"}) {
                if (scaling_.has(key)) {
                    refuse_missing(scaling_.name_of("rope_type") + ", which " + key + " needs,");
                }
            }
        }
        const auto name = stated.value_or(is_default_gemma4() && !is_sliding() ? "proportional" : "default");
        const struct {
            const char *name;
            std::int32_t method;
        } methods[] = {{"default", HALYARD_SCALING_DEFAULT},
                       {"origin", HALYARD_SCALING_DEFAULT},  // InternLM's word
                       {"linear", HALYARD_SCALING_LINEAR},
                       {"dynamic", scaling_.has("alpha") ? HALYARD_SCALING_NTK : HALYARD_SCALING_DYNAMIC_NTK},
                       {"yarn", HALYARD_SCALING_YARN},
                       {"llama3", HALYARD_SCALING_LLAMA3},
                       {"longrope", HALYARD_SCALING_LONGROPE},
                       {"proportional", HALYARD_SCALING_PROPORTIONAL}};
        for (const auto &method : methods) {
            if (name == method.name) {
                rope_.scaling.method = method.method;
                return;
            }
        }
        refuse(scaling_.name_of(new_name ? "rope_type" : "type") + " is " + quote(name) +
                   ", a method that is not known here",
               HALYARD_ERROR_UNSUPPORTED);
    }

    // ---- Widths

    std::optional<std::int64_t> find_count(std::initializer_list<const char *> keys) const {
        std::optional<std::int64_t> result;
        for (const char *key : keys) {
            const auto value = config_.count(key);
            result = result ? result : value;
        }
        return result;
    }

    std::int64_t divide_hidden_size() const {
        const auto hidden = find_count({"hidden_size", "n_embd", "n_embed", "d_model"});
        const auto heads = find_count({"num_attention_heads", "n_head", "n_heads"});
        if (!hidden || !heads) {
            refuse_missing(config_.name_of("head_dim") + ", or " + (hidden ? "num_attention_heads" : "hidden_size") +
                           " to find it from,");
        }
        if (*hidden % *heads != 0) {
            refuse("hidden_size " + std::to_string(*hidden) + " is no multiple of num_attention_heads " +
                   std::to_string(*heads) + ", and head_dim is missing");
        }
        return *hidden / *heads;
    }

    std::int64_t find_head_dim() const {
        const auto common = find_count({"head_dim", "kv_channels"});
        const auto usual = common                                       ? *common
                           : known_ != nullptr && known_->head_dim != 0 ? known_->head_dim
                                                                        : divide_hidden_size();
        if (config_.has("per_layer_config")) {
            return find_own_head_dim(usual);
        }
        if (is_kind(Layers::gemma4) && layer_.type == "full_attention") {
            return config_.count("global_head_dim").value_or(512);
        }
        return usual;
    }

    /// per_layer_config: what differs from the rest, by the layer's number.
    std::int64_t find_own_head_dim(std::int64_t usual) const {
        const auto own = *config_.object("per_layer_config");
        const auto types = config_.words("layer_types");
        if (!types) {
            refuse_missing(config_.name_of("layer_types") + ", which per_layer_config needs,");
        }
        std::optional<std::int64_t> result;
        for (size_t i = 0; i < types->size(); ++i) {
            if ((*types)[i] != layer_.type) {
                continue;
            }
            const auto fields = own.object(std::to_string(i).c_str());
            const auto head_dim = fields ? fields->count("head_dim").value_or(usual) : usual;
            if (result && *result != head_dim) {
                refuse(config_.name_of("per_layer_config") + " gives layers of type " + quote(layer_.type) +
                           " heads of different widths",
                       HALYARD_ERROR_UNSUPPORTED);
            }
            result = head_dim;
        }
        return result.value_or(usual);
    }

    /// The part of a head that is rotated.
    std::optional<Stated> find_partial_factor() const {
        Agreement agreement;
        agreement.add(scaling_, "partial_rotary_factor");
        if (!(layer_.has_own_base && agreement.stated())) {
            for (const char *key : {"partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_emb_fraction"}) {
                agreement.add(config_, key);
            }
        }
        const auto &stated = agreement.stated();
        if (stated && !(stated->value > 0.0 && stated->value <= 1.0)) {
            refuse(stated->name + " is " + format_number(stated->value) +
                   ", but it must be greater than 0 and at most 1");
        }
        return stated;
    }

    void read_widths() {
        if (const auto rotary_dim = config_.count("qk_rope_head_dim")) {
            // MLA keeps the rotated columns apart. What else speaks of widths is about the whole head.
            rope_.scaling.rotary_dim = *rotary_dim;
            rope_.about.head_dim = *rotary_dim;
            return;
        }
        const auto head_dim = find_head_dim();
        const auto factor = find_partial_factor();
        auto stated_dim = config_.count("rotary_dim");
        if (!stated_dim && !factor && known_ != nullptr && known_->rotary_dim != 0) {
            stated_dim = known_->rotary_dim;
        }
        const double part = factor ? factor->value : known_ != nullptr ? known_->partial_factor : 1.0;
        const auto product = static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
        if (stated_dim && factor && *stated_dim != product) {
            refuse_contradiction(config_.name_of("rotary_dim"), std::to_string(*stated_dim),
                                 "head_dim times " + factor->name, std::to_string(product));
        }
        rope_.about.head_dim = head_dim;
        if (rope_.scaling.method == HALYARD_SCALING_PROPORTIONAL) {
            set_proportion(head_dim, factor ? factor->value : is_default_gemma4() ? 0.25 : 1.0);
        } else {
            rope_.scaling.rotary_dim = stated_dim ? *stated_dim : product;
        }
        if (rope_.scaling.rotary_dim > head_dim) {
            refuse_contradiction(config_.name_of("rotary_dim"), std::to_string(rope_.scaling.rotary_dim), "head_dim",
                                 std::to_string(head_dim));
        }
        if (rope_.scaling.rotary_dim < 2 || rope_.scaling.rotary_dim % 2 != 0) {
            refuse("head_dim " + std::to_string(head_dim) +
                       (factor ? " times " + factor->name + " " + format_number(part) : "") +
                       " makes a rotary_dim of " + std::to_string(rope_.scaling.rotary_dim) +
                       ", but it must be even and at least 2",
                   HALYARD_ERROR_ROTARY_DIM);
        }
    }

    /// p-RoPE counts the whole head, and stops turning after part of its pairs.
    void set_proportion(std::int64_t head_dim, double part) {
        rope_.scaling.rotary_dim = head_dim;
        rope_.scaling.rotated_dim =
            2 * static_cast<std::int64_t>(std::floor(part * static_cast<double>(head_dim) / 2.0));
        if (rope_.scaling.rotated_dim == 0) {
            refuse(scaling_.name_of("partial_rotary_factor") + " is " + format_number(part) +
                   ", which leaves no pair to rotate");
        }
    }

    // ---- Base

    void read_base() {
        Agreement agreement;
        agreement.add(scaling_, "rope_theta");
        agreement.add(scaling_, "base");  // InternLM's "rotary"
        if (!(layer_.has_own_base && agreement.stated())) {
            if (is_kind(Layers::gemma3) && is_sliding()) {
                agreement.add(config_, "rope_local_base_freq");
            } else if (is_kind(Layers::modernbert)) {
                agreement.add(config_, is_sliding() ? "local_rope_theta" : "global_rope_theta");
            } else {
                agreement.add(config_, "rope_theta");
                agreement.add(config_, "rotary_emb_base");
                agreement.add(config_, "rope_ratio", 10000.0);  // ChatGLM
            }
        }
        const auto &stated = agreement.stated();
        if (!stated && known_ == nullptr) {
            refuse_missing(config_.name_of("rope_theta"));
        }
        if (stated && !(stated->value > 0.0)) {
            refuse(stated->name + " is " + format_number(stated->value) + ", but it must be greater than 0",
                   HALYARD_ERROR_FREQUENCY);
        }
        const bool has_local_base = is_kind(Layers::gemma3) || is_kind(Layers::gemma4) || is_kind(Layers::modernbert);
        rope_.scaling.base = stated ? stated->value : has_local_base && is_sliding() ? 10000.0 : known_->base;
        rope_.about.base = rope_.scaling.base;
    }

    // ---- The method's numbers

    void read_positions() {
        auto &s = rope_.scaling;
        const auto max_position =
            find_count({"max_position_embeddings", "n_positions", "seq_length", "max_sequence_length", "n_ctx"});
        const auto inside = scaling_.count("original_max_position_embeddings");
        const auto outside = config_.count("original_max_position_embeddings");
        if (inside && outside && *inside != *outside && !layer_.has_own_base) {
            refuse_contradiction(scaling_.name_of("original_max_position_embeddings"), std::to_string(*inside),
                                 config_.name_of("original_max_position_embeddings"), std::to_string(*outside));
        }
        has_original_ = inside || outside;
        rope_.about.original_max_position = inside ? *inside : outside.value_or(0);
        rope_.about.max_position = max_position.value_or(0);
        if (s.method < HALYARD_SCALING_DYNAMIC_NTK || s.method > HALYARD_SCALING_LONGROPE) {
            return;
        }
        // transformers counts from max_position_embeddings for the dynamic method, and falls back to it for the others.
        const bool is_dynamic = s.method == HALYARD_SCALING_DYNAMIC_NTK;
        const auto original = is_dynamic ? max_position : inside ? inside : outside ? outside : max_position;
        if (!original) {
            refuse_missing(is_dynamic ? config_.name_of("max_position_embeddings")
                                      : scaling_.name_of("original_max_position_embeddings"));
        }
        s.original_max_position = *original;
        s.max_position = max_position.value_or(0);
        rope_.about.original_max_position = s.original_max_position;
    }

    void read_numbers() {
        auto &s = rope_.scaling;
        for (const char *key : {"attn_factor", "extrapolation_factor"}) {
            if (const auto value = scaling_.number(key); value && *value != 1.0) {
                refuse(scaling_.name_of(key) + " is " + format_number(*value) + ", which is not supported",
                       HALYARD_ERROR_UNSUPPORTED);
            }
        }
        const auto factor = read_factor(scaling_, "factor");
        if (factor && !(*factor >= 1.0)) {
            refuse(scaling_.name_of("factor") + " is " + format_number(*factor) + ", but it must be at least 1",
                   HALYARD_ERROR_FREQUENCY);
        }
        s.factor = factor.value_or(0.0);
        s.attention_factor = 0.0;
        switch (s.method) {
        case HALYARD_SCALING_DEFAULT:
        case HALYARD_SCALING_PROPORTIONAL: break;
        case HALYARD_SCALING_NTK: s.factor = require_factor(scaling_, "alpha"); break;
        case HALYARD_SCALING_DYNAMIC_NTK:
            // InternLM's first models say "dynamic" and no factor; theirs is 1.
            s.factor = type_ == "internlm" && !factor ? 1.0 : require_factor(scaling_, "factor");
            break;
        case HALYARD_SCALING_YARN: read_yarn(); break;
        case HALYARD_SCALING_LLAMA3:
            s.factor = require_factor(scaling_, "factor");
            s.low_freq_factor = require_factor(scaling_, "low_freq_factor");
            s.high_freq_factor = require_factor(scaling_, "high_freq_factor");
            break;
        case HALYARD_SCALING_LONGROPE: read_longrope(); break;
        default: s.factor = require_factor(scaling_, "factor");
        }
        check_qwen();
    }

    void require_ratio() {
        if (rope_.scaling.factor == 0.0 && !(has_original_ && rope_.scaling.max_position != 0)) {
            refuse_missing(scaling_.name_of("factor"));
        }
    }

    void read_yarn() {
        auto &s = rope_.scaling;
        require_ratio();
        s.attention_factor = read_factor(scaling_, "attention_factor").value_or(0.0);
        s.beta_fast = scaling_.number("beta_fast").value_or(0.0);
        s.beta_slow = scaling_.number("beta_slow").value_or(0.0);
        s.mscale = scaling_.number("mscale").value_or(0.0);
        s.mscale_all_dim = scaling_.number("mscale_all_dim").value_or(0.0);
        auto truncate = scaling_.flag("truncate");
        if (!truncate && layer_.has_own_base) {
            // Where there is an entry for each layer type, transformers looks for it beside them.
            const auto all = config_.object("rope_parameters");
            truncate = all ? all->flag("truncate") : std::nullopt;
        }
        s.no_truncate = truncate.value_or(true) ? 0 : 1;
        // Some configs keep stating the context that the model was trained with (Qwen2.5's, by its model card).
        const double stretched = static_cast<double>(s.original_max_position) * s.factor;
        if (stretched > static_cast<double>(rope_.about.max_position) && stretched <= 0x1p53) {
            rope_.about.max_position = static_cast<std::int64_t>(stretched);
        }
    }

    void read_longrope() {
        auto &s = rope_.scaling;
        require_ratio();
        s.attention_factor = read_factor(scaling_, "attention_factor").value_or(0.0);
        rope_.short_factor = read_list("short_factor");
        rope_.long_factor = read_list("long_factor");
        s.n_factors = s.rotary_dim / 2;
        // Phi-3.5-MoE states two of them instead of one.
        const auto short_mscale = read_factor(scaling_, "short_mscale");
        const auto long_mscale = read_factor(scaling_, "long_mscale");
        if (short_mscale.has_value() != long_mscale.has_value()) {
            refuse_missing(scaling_.name_of(short_mscale ? "long_mscale" : "short_mscale"));
        }
        if (short_mscale && s.attention_factor == 0.0) {
            s.attention_factor = s.seq_len > s.original_max_position ? *long_mscale : *short_mscale;
        }
    }

    std::vector<double> read_list(const char *key) const {
        auto list = scaling_.numbers(key);
        if (!list) {
            refuse_missing(scaling_.name_of(key));
        }
        const auto n_pairs = rope_.scaling.rotary_dim / 2;
        if (static_cast<std::int64_t>(list->size()) != n_pairs) {
            refuse(scaling_.name_of(key) + " has " + std::to_string(list->size()) + " factors, but there are " +
                       std::to_string(n_pairs) + " pairs",
                   HALYARD_ERROR_SHAPE);
        }
        return *std::move(list);
    }

    /// The first Qwen changes its base with the context by a rule of its own.
    void check_qwen() const {
        if (type_ == "qwen" && config_.flag("use_dynamic_ntk").value_or(false) &&
            rope_.scaling.seq_len > config_.count("seq_length").value_or(8192)) {
            refuse(config_.name_of("use_dynamic_ntk") + " is true, which is supported up to seq_length tokens only",
                   HALYARD_ERROR_UNSUPPORTED);
        }
    }

    // ---- Axes and pairing

    void read_axes() {
        auto counts = scaling_.counts("mrope_section");
        const auto name = scaling_.name_of("mrope_section");
        if (!counts) {
            if (known_ == nullptr || known_->axis_map == HALYARD_AXIS_MAP_NONE) {
                if (says_mrope_) {
                    refuse_missing(name);
                }
                return;
            }
            counts.emplace(std::begin(known_->axis_counts), std::end(known_->axis_counts));
        }
        const std::int64_t n_pairs = rope_.scaling.rotary_dim / 2;
        const auto n_axes = static_cast<std::int64_t>(counts->size());
        if (n_axes < 2 || n_axes > 4) {
            refuse(name + " has " + std::to_string(n_axes) + " numbers, but there must be 2 to 4");
        }
        std::int64_t sum = 0;
        for (const auto count : *counts) {
            sum += std::min(count, max_rotary_dim);
        }
        if (sum != n_pairs) {
            refuse(name + " sums to " + std::to_string(sum) + ", but a rotary_dim of " +
                   std::to_string(rope_.scaling.rotary_dim) + " has " + std::to_string(n_pairs) + " pairs");
        }
        rope_.about.axis_map = find_axis_map();
        for (std::int64_t axis = 1; axis < n_axes && rope_.about.axis_map == HALYARD_AXIS_MAP_INTERLEAVED; ++axis) {
            if (n_axes * ((*counts)[static_cast<size_t>(axis)] - 1) + axis >= n_pairs) {
                refuse(name + "[" + std::to_string(axis) + "] is " +
                       std::to_string((*counts)[static_cast<size_t>(axis)]) + ", too many for interleaved axes");
            }
        }
        rope_.about.n_axes = static_cast<std::int32_t>(n_axes);
        std::copy(counts->begin(), counts->end(), rope_.about.axis_counts);
    }

    std::int32_t find_axis_map() const {
        const auto stated = scaling_.flag("mrope_interleaved");
        const auto usual = known_ != nullptr && known_->axis_map != HALYARD_AXIS_MAP_NONE
                               ? known_->axis_map
                               : static_cast<std::int32_t>(HALYARD_AXIS_MAP_SECTIONS);
        if (stated && !*stated && usual == HALYARD_AXIS_MAP_INTERLEAVED) {
            refuse_contradiction(scaling_.name_of("mrope_interleaved"), "false", "model_type", quote(type_));
        }
        return stated.value_or(false) ? static_cast<std::int32_t>(HALYARD_AXIS_MAP_INTERLEAVED) : usual;
    }

    void read_pairing() {
        rope_.about.pairing = known_ != nullptr ? known_->pairing : -1;
        rope_.about.out_pairing =
            known_ != nullptr && known_->out_pairing >= 0 ? known_->out_pairing : rope_.about.pairing;
        // DeepSeek-V3 and its kin: whether the weights are in interleaved order. It works in halves either way.
        const bool de_interleaves = rope_.about.pairing != rope_.about.out_pairing;
        if (de_interleaves && !config_.flag("rope_interleave").value_or(true)) {
            rope_.about.pairing = rope_.about.out_pairing;
        }
        if (const auto interleaved = config_.flag("rotary_emb_interleaved"); interleaved && known_ == nullptr) {
            rope_.about.pairing = *interleaved ? HALYARD_PAIRING_INTERLEAVED : HALYARD_PAIRING_HALF;
            rope_.about.out_pairing = rope_.about.pairing;
        }
    }

    const JsonObject &config_;
    const std::string &type_;
    const ModelType *known_;
    const Layer &layer_;
    JsonObject scaling_;
    bool has_scaling_;
    bool says_mrope_ = false;
    bool has_original_ = false;
    Rope rope_;
};

}  // namespace

Rope read_rope(const Model &model, const Layer &layer, const Request &request) {
    return RopeReader(model, layer, request).read();
}

/// Rotates half of the pairs by the row of a patch and half by its column, with the same frequencies.
Rope read_vision(const JsonObject &root) {
    const auto type = root.word("model_type").value_or("");
    const ModelType *known = find_model_type(type);
    if (known == nullptr || !known->has_vision) {
        refuse("model_type is " + quote(type) + ", whose image encoder is not supported", HALYARD_ERROR_UNSUPPORTED);
    }
    const auto vision = root.object("vision_config");
    if (!vision) {
        refuse_missing("vision_config");
    }
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
    rope.scaling.size = sizeof(rope.scaling);
    rope.scaling.rotary_dim = *width / *n_heads / 2;
    rope.scaling.base = 10000.0;
    if (const auto parameters = vision->object("rope_parameters")) {
        rope.scaling.base = parameters->number("rope_theta").value_or(rope.scaling.base);
        const auto method = parameters->word("rope_type").value_or("axial");
        if (method != "axial" && method != "default") {
            refuse(parameters->name_of("rope_type") + " is " + quote(method) + ", a method that is not known here",
                   HALYARD_ERROR_UNSUPPORTED);
        }
    }
    rope.about.base = rope.scaling.base;
    rope.about.head_dim = *width / *n_heads;
    rope.about.axis_map = HALYARD_AXIS_MAP_SECTIONS;
    rope.about.n_axes = 2;
    rope.about.axis_counts[0] = rope.about.axis_counts[1] = rope.scaling.rotary_dim / 2;
    return rope;
}

}  // namespace halyard
