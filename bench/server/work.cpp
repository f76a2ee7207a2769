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
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16, dtype::e4m3, dtype::uint8}) {
        if (name == name_of(type)) {
            return type;
        }
    }
    throw std::runtime_error("there is no dtype \"" + name + "\"");
}

}  // namespace

std::int32_t read_angles(const std::string &name) {
    return name == "phase" ? HALYARD_ANGLES_PHASE : name == "factored" ? HALYARD_ANGLES_FACTORED : HALYARD_ANGLES_TABLE;
}

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
    Work work;
    const auto read = [&](const char *name, auto &field) { field = described.value(name, field); };
    const std::string dtype = described.at("dtype"), pairing = described.at("pairing");
    work.type = read_dtype(dtype);
    work.cache = read_dtype(described.value("cache", dtype));
    work.in = read_pairing(pairing);
    work.out = read_pairing(described.value("out_pairing", pairing));
    work.n_tokens = described.at("tokens");
    work.rotary_dim = described.at("rotary_dim");
    work.row_elements = described.at("row_elements");
    work.in_place = described.at("in_place");
    work.angles = read_angles(described.value("angles", "table"));
    read("stride_element", work.stride_element);
    read("cold", work.cold);
    read("cold_table", work.cold_table);
    read("threads", work.n_threads);
    read("read_back", work.read_back);
    read("first_position", work.first_position);
    read("n_slots", work.n_slots);
    read("unit_offset", work.unit_offset);
    read("hadamard", work.hadamard);
    read("by_column", work.by_column);
    read("in_pages", work.in_pages);
    read("moved_by", work.moved_by);
    read("layers", work.n_layers);
    for (const json &part : described.at("parts")) {
        work.parts.push_back({part.at("heads"), part.at("head_dim"), part.at("offset"), part.at("stride_head"),
                              part.at("rotates"), part.at("is_cached"), part.at("rotary_offset"),
                              part.at("norm_size")});
    }
    return work;
}

const char *name_of(pairing pairing) { return pairing == pairing::half ? "half" : "interleaved"; }

const char *name_of(dtype type) {
    switch (type) {
    case dtype::f32: return "f32";
    case dtype::f16: return "f16";
    case dtype::bf16: return "bf16";
    case dtype::uint8: return "q8_0";
    default: return "e4m3";
    }
}

}  // namespace halyard::bench
