#include "server/work.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <stdexcept>
#include <utility>

namespace halyard::bench {

namespace {

using nlohmann::json;

constexpr std::pair<const char *, pairing> pairings[] = {{"half", pairing::half},
                                                         {"interleaved", pairing::interleaved}};
constexpr std::pair<const char *, dtype> dtypes[] = {
    {"f32", dtype::f32}, {"f16", dtype::f16}, {"bf16", dtype::bf16}, {"e4m3", dtype::e4m3}, {"q8_0", dtype::uint8}};
constexpr std::pair<const char *, std::int32_t> sources[] = {{"table", HALYARD_ANGLES_TABLE},
                                                             {"phase", HALYARD_ANGLES_PHASE}};

template <typename T>
T find(std::span<const std::pair<const char *, T>> all, const char *what, const std::string &name) {
    for (const auto &[known, value] : all) {
        if (name == known) {
            return value;
        }
    }
    throw std::runtime_error(std::string("there is no ") + what + " \"" + name + "\"");
}

}  // namespace

std::int32_t read_angles(const std::string &name) { return find<std::int32_t>(sources, "source of angles", name); }

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
    work.type = find<halyard::dtype>(dtypes, "dtype", dtype);
    work.cache = find<halyard::dtype>(dtypes, "dtype", described.value("cache", dtype));
    work.in = find<halyard::pairing>(pairings, "pairing", pairing);
    work.out = find<halyard::pairing>(pairings, "pairing", described.value("out_pairing", pairing));
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

const char *name_of(dtype type) {
    return std::find_if(std::begin(dtypes), std::end(dtypes), [&](const auto &each) { return each.second == type; })
        ->first;
}

}  // namespace halyard::bench
