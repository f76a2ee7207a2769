#include "config/rope.h"

#include "frequencies/frequencies.h"

#include <algorithm>
#include <optional>

namespace halyard {
namespace {

/// Reads a factor, and refuses 0, because a 0 in halyard_scaling would mean that the factor is not set.
std::optional<double> read_factor(const JsonObject &object, const char *key) {
    const auto value = object.number(key);
    if (value == 0.0) {
        refuse(object.name_of(key) + " is 0", HALYARD_ERROR_FREQUENCY);
    }
    return value;
}

template <typename Value>
Value require(std::optional<Value> value, const JsonObject &object, const char *key) {
    if (!value) {
        refuse_missing(object.name_of(key));
    }
    return *std::move(value);
}

class RopeReader {
public:
    RopeReader(const Model &model, const Layer &layer, std::int64_t seq_len)
        : model_(model), config_(model.config), known_(*model.known), layer_(layer), scaling_(layer.scaling) {
        rope_.scaling.seq_len = seq_len;
        auto &names = rope_.names;
        names.object = rope_.keep(scaling_.name_of(""));
        names.factor = rope_.keep(scaling_.name_of("factor"));
        names.attention_factor = rope_.keep(scaling_.name_of("attention_factor"));
        names.original_max_position = rope_.keep(scaling_.name_of("original_max_position_embeddings"));
        names.max_position = rope_.keep(config_.name_of("max_position_embeddings"));
    }

    Rope read() {
        check_needs(known_, model_.type, config_, scaling_);
        read_scaling_method();
        read_widths();
        read_base();
        read_context_lengths();
        read_numbers();
        limit_qwen_context();
        limit_context_to_chunk();
        read_axes(model_, layer_, rope_.scaling.rotary_dim, says_mrope_, &rope_.about);
        read_q_scale(model_, layer_, &rope_.about);
        read_pairing();
        rope_.is_backward = known_.is_backward;
        return std::move(rope_);
    }

private:
    std::optional<std::string> read_type(const char *key) {
        auto word = scaling_.word(key);
        if (word == "deepseek_yarn") {
            // Its attention_factor is YaRN's if the config states both mscale and mscale_all_dim, or neither of them.
            const auto mscale = scaling_.number("mscale"), all = scaling_.number("mscale_all_dim");
            if (mscale.value_or(1.0) != 1.0 && all.value_or(0.0) == 0.0) {
                refuse_missing(scaling_.name_of("mscale_all_dim") + ", which deepseek_yarn's mscale needs,");
            }
            return "yarn";
        }
        if (word == "mrope") {
            says_mrope_ = true;
            return "default";
        }
        if (word == "su" || (word == "yarn" && known_.yarn_is_longrope)) {
            return "longrope";
        }
        return word;
    }

    void read_scaling_method() {
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
            if ((model_.is_kind(Layers::gemma4) || model_.type == "lfm3") && scaling_.has("partial_rotary_factor")) {
                refuse_missing(scaling_.name_of("rope_type"));  // methods differ in how they read this factor
            }
        }
        // Gemma 4's method need not be stated in the config.
        const auto name = stated.value_or(
            model_.is_kind(Layers::gemma4) && !layer_.is_scaled && !layer_.is_sliding() ? "proportional" : "default");
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
        refuse_unsupported(scaling_.name_of(new_name ? "rope_type" : "type") + " is " + quote(name) +
                           ", a method that is not known here");
    }

    void read_widths() {
        auto widths = find_widths(model_, layer_, rope_.scaling.method == HALYARD_SCALING_PROPORTIONAL);
        rope_.about.head_dim = widths.head_dim;
        rope_.scaling.rotary_dim = widths.rotary_dim;
        rope_.scaling.rotated_dim = widths.rotated_dim;
        rope_.names.rotary_dim = rope_.keep(std::move(widths.rotary_dim_name));
    }

    void read_base() {
        Agreement agreement;
        agreement.add(scaling_, "rope_theta");
        agreement.add(scaling_, "base");  // InternLM's "rotary"
        const bool has_list = known_.base_list != nullptr && !layer_.has_own_base && config_.is_list(known_.base_list);
        const bool is_local = known_.sliding_key != nullptr && layer_.is_sliding();
        if (!(layer_.has_own_base && agreement.stated())) {
            if (is_local) {
                agreement.add(config_, known_.sliding_key);
            } else if (model_.is_kind(Layers::modernbert)) {
                agreement.add(config_, "global_rope_theta");
            } else if (!has_list && !model_.is_kind(Layers::gemma4)) {  // Gemma 4's code ignores a base outside
                agreement.add(config_, "rope_theta");
                agreement.add(config_, "rotary_emb_base");
                agreement.add(config_, "rope_ratio", 10000.0);  // ChatGLM
            }
            if (known_.attention != nullptr) {
                agreement.add(config_.object(known_.attention).value_or(JsonObject::empty("")), "rope_theta");
            }
        }
        const auto stated =
            has_list ? std::optional(find_listed(config_, known_.base_list, layer_)) : agreement.stated();
        if (!stated && !model_.is_known()) {
            refuse_missing(config_.name_of("rope_theta"));
        }
        const bool has_usual_local = (is_local || model_.is_kind(Layers::gemma4)) && layer_.is_sliding();
        rope_.scaling.base = stated ? stated->value : has_usual_local ? 10000.0 : known_.base;
        rope_.names.base = rope_.keep(stated ? stated->name : config_.name_of("rope_theta"));
        rope_.about.base = rope_.scaling.base;
        check_scaled_layers();
    }

    /// Refuses a scaling that does not apply to all layers.
    void check_scaled_layers() {
        const auto scaled = config_.numbers("rope_scaling_layers");
        const auto n_layers = config_.count("num_hidden_layers");
        if (scaled && rope_.scaling.method != HALYARD_SCALING_DEFAULT && std::ssize(*scaled) != n_layers) {
            refuse_unsupported(config_.name_of("rope_scaling_layers") +
                               " leaves layers without the scaling, which is not supported");
        }
    }

    void read_context_lengths() {
        auto &s = rope_.scaling;
        const auto max_position = config_.first_count(
            {"max_position_embeddings", "n_positions", "seq_length", "max_sequence_length", "n_ctx"});
        const auto repeated = scaling_.count("max_position_embeddings");
        if (repeated && max_position && *repeated != *max_position) {
            refuse_contradiction(scaling_.name_of("max_position_embeddings"), std::to_string(*repeated),
                                 config_.name_of("max_position_embeddings"), std::to_string(*max_position));
        }
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
        // transformers uses max_position_embeddings as the original context: always for the dynamic method, and for
        // others if none is stated.
        const bool is_dynamic = s.method == HALYARD_SCALING_DYNAMIC_NTK;
        const auto original = is_dynamic ? max_position : inside ? inside : outside ? outside : max_position;
        if (!original) {
            refuse_missing(is_dynamic ? config_.name_of("max_position_embeddings")
                                      : scaling_.name_of("original_max_position_embeddings"));
        }
        if (is_dynamic) {
            rope_.names.original_max_position = rope_.names.max_position;
        } else if (!inside && outside) {
            rope_.names.original_max_position = rope_.keep(config_.name_of("original_max_position_embeddings"));
        }
        s.original_max_position = *original;
        s.max_position = max_position.value_or(0);
        rope_.about.original_max_position = s.original_max_position;
    }

    void read_numbers() {
        auto &s = rope_.scaling;
        for (const char *key : {"attn_factor", "extrapolation_factor"}) {
            if (const auto value = scaling_.number(key); value && *value != 1.0) {
                refuse_unsupported(scaling_.name_of(key) + " is " + format_number(*value) + ", which is not supported");
            }
        }
        const auto factor = read_factor(scaling_, "factor");
        s.factor = factor.value_or(0.0);
        switch (s.method) {
        case HALYARD_SCALING_DEFAULT:
        case HALYARD_SCALING_PROPORTIONAL: break;
        case HALYARD_SCALING_NTK:
            s.factor = require(scaling_.number("alpha"), scaling_, "alpha");
            rope_.names.factor = rope_.keep(scaling_.name_of("alpha"));
            break;
        case HALYARD_SCALING_DYNAMIC_NTK:
            // InternLM's first models state "dynamic" and no factor: it is 1.
            s.factor = model_.type == "internlm" && !factor ? 1.0 : require(factor, scaling_, "factor");
            break;
        case HALYARD_SCALING_YARN: read_yarn(); break;
        case HALYARD_SCALING_LLAMA3:
            require(factor, scaling_, "factor");
            s.low_freq_factor = require(scaling_.number("low_freq_factor"), scaling_, "low_freq_factor");
            s.high_freq_factor = require(scaling_.number("high_freq_factor"), scaling_, "high_freq_factor");
            break;
        case HALYARD_SCALING_LONGROPE: read_longrope(); break;
        default: require(factor, scaling_, "factor");
        }
    }

    /// Requires both context lengths if no factor is stated, because their ratio is then the factor.
    void require_factor_or_lengths() {
        if (rope_.scaling.factor == 0.0 && !(has_original_ && rope_.scaling.max_position != 0)) {
            refuse_missing(scaling_.name_of("factor"));
        }
    }

    void read_yarn() {
        auto &s = rope_.scaling;
        require_factor_or_lengths();
        s.attention_factor = read_factor(scaling_, "attention_factor").value_or(0.0);
        s.beta_fast = scaling_.number("beta_fast").value_or(0.0);
        s.beta_slow = scaling_.number("beta_slow").value_or(0.0);
        s.mscale = scaling_.number("mscale").value_or(0.0);
        s.mscale_all_dim = scaling_.number("mscale_all_dim").value_or(0.0);
        auto truncate = scaling_.flag("truncate");
        if (!truncate && layer_.has_own_base) {
            // If there is an entry for each layer type, transformers reads truncate beside these entries.
            const auto all = config_.object("rope_parameters");
            truncate = all ? all->flag("truncate") : std::nullopt;
        }
        s.no_truncate = truncate.value_or(true) ? 0 : 1;
        // Some configs state the original context as max_position_embeddings (Qwen2.5).
        const double stretched = static_cast<double>(s.original_max_position) * s.factor;
        if (stretched > static_cast<double>(rope_.about.max_position) && stretched <= 0x1p53) {
            rope_.about.max_position = static_cast<std::int64_t>(stretched);
        }
    }

    void read_longrope() {
        auto &s = rope_.scaling;
        require_factor_or_lengths();
        s.attention_factor = read_factor(scaling_, "attention_factor").value_or(0.0);
        rope_.short_factor = require(scaling_.numbers("short_factor"), scaling_, "short_factor");
        rope_.long_factor = require(scaling_.numbers("long_factor"), scaling_, "long_factor");
        if (rope_.short_factor.size() != rope_.long_factor.size()) {
            refuse(scaling_.name_of("short_factor") + " has " + std::to_string(rope_.short_factor.size()) +
                       " factors, but " + scaling_.name_of("long_factor") + " has " +
                       std::to_string(rope_.long_factor.size()),
                   HALYARD_ERROR_SHAPE);
        }
        s.n_factors = std::ssize(rope_.short_factor);
        rope_.names.n_factors = rope_.keep("the length of " + scaling_.name_of("short_factor"));
        // Phi-3.5-MoE states two attention factors, for short and long contexts.
        const auto short_mscale = read_factor(scaling_, "short_mscale");
        const auto long_mscale = read_factor(scaling_, "long_mscale");
        if (short_mscale.has_value() != long_mscale.has_value()) {
            refuse_missing(scaling_.name_of(short_mscale ? "long_mscale" : "short_mscale"));
        }
        if (short_mscale && s.attention_factor == 0.0) {
            const bool is_long = s.seq_len > s.original_max_position;
            rope_.short_attention_factor = *short_mscale;
            rope_.long_attention_factor = *long_mscale;
            s.attention_factor = is_long ? *long_mscale : *short_mscale;
            rope_.names.attention_factor = rope_.keep(scaling_.name_of(is_long ? "long_mscale" : "short_mscale"));
        }
    }

    /// Limits the context of the first Qwen: in longer ones its code changes the base and scales q by rules of its own.
    void limit_qwen_context() {
        const bool is_dynamic = config_.flag("use_dynamic_ntk").value_or(false);
        if (model_.type != "qwen" || !(is_dynamic || config_.flag("use_logn_attn").value_or(false))) {
            return;
        }
        limit_context(config_.count("seq_length").value_or(8192),
                      config_.name_of(is_dynamic ? "use_dynamic_ntk" : "use_logn_attn") + " is true");
    }

    /// Limits the context to one chunk of dual chunk attention (Qwen2.5-1M, arXiv:2402.17463), because each chunk has
    /// positions of its own.
    void limit_context_to_chunk() {
        const auto chunks = config_.object("dual_chunk_attention_config");
        if (!chunks) {
            return;
        }
        const auto chunk = require(chunks->count("chunk_size"), *chunks, "chunk_size");
        const auto local = require(chunks->count("local_size"), *chunks, "local_size");
        if (local >= chunk) {
            refuse_contradiction(chunks->name_of("local_size"), std::to_string(local), chunks->name_of("chunk_size"),
                                 std::to_string(chunk));
        }
        limit_context(chunk - local, config_.name_of("dual_chunk_attention_config") + " is there");
    }

    /// Refuses contexts of more than n_tokens tokens; `why` is for the message.
    void limit_context(std::int64_t n_tokens, const std::string &why) {
        rope_.longest_seq_len = std::min(rope_.longest_seq_len, n_tokens);
        if (rope_.scaling.seq_len > n_tokens) {
            refuse_unsupported(why + ", which is supported up to " + std::to_string(n_tokens) + " tokens only");
        }
    }

    void read_pairing() {
        rope_.about.pairing = known_.pairing;
        rope_.about.out_pairing = known_.out_pairing != 0 ? known_.out_pairing : known_.pairing;
        // In DeepSeek-V3 and related models rope_interleave says whether x is interleaved. The rotation's output has
        // half pairing in any case.
        const bool de_interleaves = rope_.about.pairing != rope_.about.out_pairing;
        if (de_interleaves && !config_.flag("rope_interleave").value_or(true)) {
            rope_.about.pairing = rope_.about.out_pairing;
        }
        if (const auto interleaved = config_.flag("rotary_emb_interleaved"); interleaved && !model_.is_known()) {
            rope_.about.pairing = *interleaved ? HALYARD_PAIRING_INTERLEAVED : HALYARD_PAIRING_HALF;
            rope_.about.out_pairing = rope_.about.pairing;
        }
        if (!config_.flag("use_mla").value_or(true) && known_.mla_dim != 0) {
            if (!has_word("deepseek_v2 deepseek_vl_v2", model_.type)) {
                refuse_unsupported(config_.name_of("use_mla") + " is false, which model_type " + quote(model_.type) +
                                   " is not known to have");
            }
            rope_.about.pairing = rope_.about.out_pairing = HALYARD_PAIRING_HALF;  // its code is then Llama's
        }
        for (const char *key : {"rope_interleave", "rope_interleaved", "rotary_emb_interleaved"}) {
            const auto stated = config_.flag(key);
            if (stated && model_.is_known() && *stated != (rope_.about.pairing == HALYARD_PAIRING_INTERLEAVED)) {
                refuse_contradiction(config_.name_of(key), *stated ? "true" : "false", "model_type",
                                     quote(model_.type));
            }
        }
    }

    const Model &model_;
    const JsonObject &config_;
    const ModelType &known_;
    const Layer &layer_;
    const JsonObject &scaling_;
    bool says_mrope_ = false;
    bool has_original_ = false;
    Rope rope_;
};

}  // namespace

Rope::Rope() {
    scaling.size = sizeof(scaling);
    names.rotated_dim = "head_dim times partial_rotary_factor";
    names.seq_len = "options.seq_len";
}

Rope read_rope(const Model &model, const Layer &layer, std::int64_t seq_len) {
    return RopeReader(model, layer, seq_len).read();
}

}  // namespace halyard
