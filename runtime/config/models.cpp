// The model types that are supported, and those that are refused.
#include "config/models.h"

namespace halyard {
namespace {

constexpr auto interleaved = HALYARD_PAIRING_INTERLEAVED;
constexpr auto half = HALYARD_PAIRING_HALF;
constexpr auto sections = HALYARD_AXIS_MAP_SECTIONS;
constexpr auto interleaved_axes = HALYARD_AXIS_MAP_INTERLEAVED;

constexpr ModelType model_types[] = {
#include "config/models.inc"
};

struct RefusedTypes {
    ModelRefusal refusal;
    const char *names;  // separated by spaces
};

// The most common model types without RoPE, and types whose RoPE is not supported, so that the message can say why.
constexpr RefusedTypes refused_types[] = {
    {{"has learned positions and no RoPE"},
     "albert bart bert big_bird biogpt camembert clip convbert ctrl deit distilbert electra ernie gpt2 gpt_bigcode "
     "gpt_neo imagegpt longformer marian mbart opt roberta vit"},
    {{"has learned or sinusoidal positions and no RoPE"},
     "blip blip-2 m2m_100 musicgen openai-gpt pegasus siglip speech_to_text wav2vec2 whisper xglm xlm xlm-roberta"},
    {{"has ALiBi and no RoPE"}, "bloom mpt"},
    {{"has relative positions and no RoPE"},
     "deberta deberta-v2 inkling2_loop_text inkling2_text inkling_text mpnet mt5 t5 umt5 xlnet"},
    {{"has a recurrence and no RoPE"}, "falcon_mamba jamba mamba mamba2 rwkv"},
    {{"has attention without positions and no RoPE"}, "glm5_next_text kimi_linear nemotron_h"},
    {{"turns an image's patches by row and column: such encoders are read as layer_type \"vision\" of the whole model, "
      "where they are known",
      HALYARD_ERROR_UNSUPPORTED},
     "cohere_compass_vision dots3_note_vision_encoder ernie4_5_vl_moe_vision exaone4_5_vision gemma4_vision "
     "glm4v_moe_vision glm4v_vision glm5_next_vision glm_ocr_vision inkling2_vision kimi_k25_vision lfm3_vl_vision "
     "llama4_vision_model minimax_m3_vl_vision mlcd_vision_model muse_glimmer_vision muse_spark_vision "
     "paddleocr_vl_vision pixtral qwen2_5_omni_vision_encoder qwen2_5_vl_vision qwen2_vl_vision qwen3_5_moe_vision "
     "qwen3_5_vision qwen3_omni_moe_vision_encoder qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision "
     "sam3_vit_model step3p5_vision video_llama_3_vision"},
    {{"turns image features by row and column, in a grid of its own, which is not supported",
      HALYARD_ERROR_UNSUPPORTED},
     "edgetam_video efficientloftr sam2_video sam3_tracker_video"},
    {{"turns patches by coordinates that are no integers, which a config cannot describe here",
      HALYARD_ERROR_UNSUPPORTED},
     "dinov3_vit eomt_dinov3 lightglue sapiens2"},
    {{"turns one pair by two angles, which is not supported", HALYARD_ERROR_UNSUPPORTED}, "vjepa2"},
    {{"turns by coordinates and by residues at once, which is not supported", HALYARD_ERROR_UNSUPPORTED}, "esmfold2"},
    {{"learns factors of its frequencies, which are in the weights and not in the config", HALYARD_ERROR_UNSUPPORTED},
     "mistral_large4 mistral_large4_text"},
    {{"turns v as well as q and k, which is not supported", HALYARD_ERROR_UNSUPPORTED},
     "clvp clvp_decoder clvp_encoder"},
    {{"turns hidden states before they become q and k, which is not supported", HALYARD_ERROR_UNSUPPORTED},
     "seamless_m4t wav2vec2-bert wav2vec2-conformer"},
    {{"has an order of axes that is not supported", HALYARD_ERROR_UNSUPPORTED}, "ernie4_5_vl_moe ernie4_5_vl_moe_text"},
    {{"has several parts with RoPE, each with a config of its own: read that of the part", HALYARD_ERROR_UNSUPPORTED},
     "blt deepseek_ocr2_vision dia nemotron3_diarization pi0 t5gemma t5gemma2"},
    {{"states the heads of its encoder and decoder apart, which is not supported", HALYARD_ERROR_UNSUPPORTED},
     "moonshine"},
};

}  // namespace

bool has_word(std::string_view list, std::string_view word) noexcept {
    while (!list.empty()) {
        const auto end = list.find(' ');
        if (list.substr(0, end) == word) {
            return true;
        }
        list = end == list.npos ? std::string_view() : list.substr(end + 1);
    }
    return false;
}

const ModelType *find_model_type(std::string_view name) noexcept {
    for (const auto &type : model_types) {
        if (has_word(type.names, name)) {
            return &type;
        }
    }
    return nullptr;
}

const ModelRefusal *find_refusal(std::string_view name) noexcept {
    for (const auto &types : refused_types) {
        if (has_word(types.names, name)) {
            return &types.refusal;
        }
    }
    return nullptr;
}

}  // namespace halyard
