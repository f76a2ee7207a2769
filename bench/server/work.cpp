#include "server/work.h"

#include <algorithm>
#include <stdexcept>

namespace halyard::bench {

namespace {

using nlohmann::json;

pairing read_pairing(const std::string &name) {
    if (name != "half" && name != "interleaved") {
        throw std::runtime_error("there is no pairing \"" + name + "\"");
    }
    return name == "half" ? pairing::half : pairing::interleaved;
}

dtype read_dtype(const std::string &name) {
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16, dtype::e4m3}) {
        if (name == name_of(type)) {
            return type;
        }
    }
    throw std::runtime_error("there is no dtype \"" + name + "\"");
}

std::int32_t read_angles(const std::string &name) {
    return name == "phase" ? HALYARD_ANGLES_PHASE : name == "factored" ? HALYARD_ANGLES_FACTORED : HALYARD_ANGLES_TABLE;
}

Work read_rotation(const json &described) {
    Work work;
    work.in = read_pairing(described.at("pairing"));
    work.out = read_pairing(described.at("out_pairing"));
    work.rotary_dim = described.at("rotary_dim");
    work.n_tokens = described.at("tokens");
    work.type = read_dtype(described.at("dtype"));
    work.in_place = described.at("in_place");
    work.cold = described.at("cold");
    work.angles = read_angles(described.at("angles"));
    work.n_threads = described.at("threads");
    work.read_back = described.at("read_back");
    work.cold_table = described.at("cold_table");
    work.first_position = described.value("first_position", work.first_position);
    const std::int64_t n_q = described.at("q_heads"), n_k = described.at("k_heads"), dim = described.at("head_dim");
    const bool strided = described.at("strided");  // element i of all heads of a token comes before element i + 1
    const std::int64_t stride_head = strided ? 1 : dim;
    work.stride_element = strided ? n_q + n_k : 1;
    work.row_elements = (n_q + n_k) * dim;
    if (described.at("apart")) {  // q and k are two tensors, one behind the other in memory
        work.parts = {{n_q, dim, 0, stride_head}, {n_k, dim, n_q * stride_head, stride_head}};
    } else {
        work.parts = {{n_q + n_k, dim, 0, stride_head}};
    }
    return work;
}

Work read_road(const json &described) {
    Work work;
    work.in = work.out = read_pairing(described.at("pairing"));
    work.rotary_dim = described.at("rotary_dim");
    work.row_elements = described.at("row_elements");
    work.n_tokens = described.at("tokens");
    work.type = dtype::bf16;
    work.in_place = false;
    work.n_slots = described.at("n_slots");
    work.cache = read_dtype(described.at("cache"));
    work.unit_offset = described.at("unit_offset");
    for (const json &part : described.at("parts")) {
        work.parts.push_back({part.at("heads"), part.at("head_dim"), part.at("x_offset"), part.at("x_stride_head"),
                              part.at("rotates"), part.at("is_cached"), part.at("rotary_offset"),
                              part.at("norm_size")});
    }
    return work;
}

Work read_shift(const json &described) {
    Work work;
    const std::int64_t n_heads = described.at("heads"), dim = work.rotary_dim = described.at("head_dim");
    work.parts = {{n_heads, dim, 0, dim, true, true}};
    work.row_elements = n_heads * dim;
    work.n_tokens = work.n_slots = described.at("tokens");
    work.n_layers = described.at("layers");
    work.moved_by = described.at("moved_by");
    work.type = work.cache = read_dtype(described.at("dtype"));
    work.angles = HALYARD_ANGLES_PHASE;
    return work;
}

}  // namespace

bool Work::has_norm() const {
    return std::any_of(parts.begin(), parts.end(), [](const Part &part) { return part.norm_size > 0; });
}

std::int64_t Work::n_heads() const {
    std::int64_t n = 0;
    for (const Part &part : parts) {
        n += part.n_heads;
    }
    return n;
}

std::size_t Work::tensor_bytes() const { return static_cast<std::size_t>(n_tokens * row_elements * bytes_of(type)); }

Work read_work(const json &described) {
    const std::string kind = described.at("kind");
    return kind == "road" ? read_road(described) : kind == "shift" ? read_shift(described) : read_rotation(described);
}

const char *name_of(pairing pairing) { return pairing == pairing::half ? "half" : "interleaved"; }

const char *name_of(dtype type) {
    return type == dtype::f32 ? "f32" : type == dtype::f16 ? "f16" : type == dtype::bf16 ? "bf16" : "e4m3";
}

}  // namespace halyard::bench
