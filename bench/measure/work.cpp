#include "measure/work.h"

#include <stdexcept>

namespace halyard::bench {

namespace {

pairing read_pairing(const std::string &name) {
    if (name != "half" && name != "interleaved") {
        throw std::runtime_error("there is no pairing \"" + name + "\"");
    }
    return name == "half" ? pairing::half : pairing::interleaved;
}

std::int32_t read_angles(const std::string &name) {
    return name == "phase" ? HALYARD_ANGLES_PHASE : name == "factored" ? HALYARD_ANGLES_FACTORED : HALYARD_ANGLES_TABLE;
}

}  // namespace

const char *name_of(pairing pairing) { return pairing == pairing::half ? "half" : "interleaved"; }

const char *name_of(dtype type) {
    return type == dtype::f32 ? "f32" : type == dtype::f16 ? "f16" : type == dtype::bf16 ? "bf16" : "e4m3";
}

dtype read_dtype(const std::string &name) {
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16, dtype::e4m3}) {
        if (name == name_of(type)) {
            return type;
        }
    }
    throw std::runtime_error("there is no dtype \"" + name + "\"");
}

Work read_work(const nlohmann::json &described) {
    Work work;
    work.in = read_pairing(described.at("pairing"));
    work.out = read_pairing(described.at("out_pairing"));
    work.n_q_heads = described.at("q_heads");
    work.n_k_heads = described.at("k_heads");
    work.head_dim = described.at("head_dim");
    work.rotary_dim = described.at("rotary_dim");
    work.n_tokens = described.at("tokens");
    work.type = read_dtype(described.at("dtype"));
    work.in_place = described.at("in_place");
    work.cold = described.at("cold");
    work.angles = read_angles(described.at("angles"));
    work.n_threads = described.at("threads");
    work.read_back = described.at("read_back");
    work.apart = described.at("apart");
    work.cold_table = described.at("cold_table");
    work.strided = described.at("strided");
    work.first_position = described.value("first_position", work.first_position);
    return work;
}

}  // namespace halyard::bench
