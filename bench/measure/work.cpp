#include "measure/work.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace halyard::bench {

namespace {

struct Pairings {
    const char *name;
    pairing in, out;
};
constexpr Pairings all_pairings[] = {{"half", pairing::half, pairing::half},
                                     {"interleaved", pairing::interleaved, pairing::interleaved},
                                     {"half_to_interleaved", pairing::half, pairing::interleaved},
                                     {"interleaved_to_half", pairing::interleaved, pairing::half}};

/// This model's rows show more than its shape: a quick run has it in every storage type, a full run with every source
/// of angles.
constexpr const char *thorough_model = "llama-3-8b";
/// A quick run has what engines do most, 16 bits and few tokens, in the other pairing too.
constexpr const char *interleaved_twin = "llama-3-8b-meta";

std::optional<Model> read_model(const std::string &line) {
    std::istringstream words(line);
    Model model;
    std::string name, source;
    words >> model.name >> model.n_q_heads >> model.n_k_heads >> model.head_dim >> model.rotary_dim >> name >> source;
    const auto *const found = std::find_if(std::begin(all_pairings), std::end(all_pairings),
                                           [&](const Pairings &pairings) { return name == pairings.name; });
    const bool sane = words && found != std::end(all_pairings) && model.n_q_heads >= 1 && model.n_k_heads >= 0 &&
                      model.n_heads() <= 4096 && model.head_dim <= 4096 && model.rotary_dim >= 2 &&
                      model.rotary_dim % 2 == 0 && model.rotary_dim <= model.head_dim;
    if (!sane) {
        return std::nullopt;
    }
    model.in = found->in;
    model.out = found->out;
    return model;
}

bool is_quick(const Work &work) {
    if (work.angles != HALYARD_ANGLES_TABLE || work.n_tokens == 512) {
        return false;
    }
    if (work.model.name == interleaved_twin && work.in_place && !work.cold && work.n_tokens <= 64) {
        return true;
    }
    if (work.model.name != thorough_model) {
        return work.n_tokens == 64 && !work.cold && work.type != dtype::f16 &&
               (work.in_place || work.model.in != work.model.out);
    }
    return !work.cold || (work.n_tokens == 64 && work.in_place);
}

/// Whether anybody does this work, and whether it shows something that other works do not.
bool exists(const Work &work) {
    if (work.in_place && work.model.in != work.model.out) {
        return false;
    }
    if (work.n_tokens == 4096 && work.cold) {
        return false;  // beyond the caches anyway
    }
    return work.angles == HALYARD_ANGLES_TABLE ||
           (work.model.name == thorough_model && work.in_place && !work.cold && work.n_tokens < 4096);
}

/// Works that ask other questions than how fast a model is, of parts of one: what a call costs that has one head or two
/// tensors to turn, and which source of angles is the best where a table's rows are in no cache.
std::vector<Work> special_works(const Model &model, int n_threads) {
    const auto heads_of = [&](const char *which, std::int64_t n) {
        Model part = model;
        part.name += which;
        part.n_q_heads = n;
        part.n_k_heads = 0;
        return part;
    };
    const Model one_head = heads_of("-one-head", 1);
    std::vector<Work> works;
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
        works.push_back({one_head, 1, type, true, false, HALYARD_ANGLES_TABLE, n_threads});
        works.push_back({model, 1, type, true, false, HALYARD_ANGLES_TABLE, n_threads});
        works.back().apart = true;
    }
    for (const Model &part : {one_head, heads_of("-k", model.n_k_heads), model}) {
        works.push_back({part, 64, dtype::bf16, true, false, HALYARD_ANGLES_TABLE, n_threads});
        works.back().cold_table = true;
    }
    return works;
}

}  // namespace

const char *name_of(pairing pairing) { return pairing == pairing::half ? "half" : "interleaved"; }

const char *name_of(dtype type) {
    constexpr const char *names[] = {"f32", "f16", "bf16"};
    return names[static_cast<std::size_t>(type) - HALYARD_F32];
}

std::vector<Model> read_models(std::istream &text) {
    std::vector<Model> models;
    std::string line;
    for (int number = 1; std::getline(text, line); number++) {
        if (line.empty() || line[0] == '#') {
            continue;
        }
        const auto model = read_model(line);
        if (!model) {
            throw std::runtime_error("line " + std::to_string(number) + " of the shapes is not a name, q heads, " +
                                     "k heads, head_dim, rotary_dim, a pairing and a source: " + line);
        }
        const auto same_name = [&](const Model &other) { return other.name == model->name; };
        if (std::any_of(models.begin(), models.end(), same_name)) {
            throw std::runtime_error("line " + std::to_string(number) + " of the shapes names " + model->name +
                                     " a second time");
        }
        models.push_back(*model);
    }
    return models;
}

std::string Work::kernel() const {
    std::string name = name_of(model.in);
    if (model.in != model.out) {
        name += std::string("_to_") + name_of(model.out);
    }
    return name + "_" + name_of(type) + (in_place ? "_in_place" : "");
}

std::string Work::name() const {
    std::string name = kernel() + "/" + model.name + "/" + std::to_string(n_tokens) + (cold ? "/cold" : "/hot");
    name += read_back ? "/read" : "";
    if (angles != HALYARD_ANGLES_TABLE) {
        name += angles == HALYARD_ANGLES_PHASE ? "/phase" : "/factored";
    }
    name += apart ? "/q-and-k" : "";
    name += cold_table ? "/cold-table" : "";
    name = n_threads == 1 ? name : name + "/" + std::to_string(n_threads) + "-threads";
    return strided ? name + "/strided" : name;
}

std::size_t Work::n_bytes() const {
    return 2 * (in_place ? tensor_bytes() / static_cast<std::size_t>(model.head_dim) *
                               static_cast<std::size_t>(model.rotary_dim)
                         : tensor_bytes());
}

std::vector<Work> list_works(const std::vector<Model> &models, const Selection &selection) {
    std::vector<Work> works;
    const auto add = [&](const Work &work) {
        if (fnmatch(selection.filter.c_str(), work.name().c_str(), 0) == 0) {
            works.push_back(work);
        }
    };
    for (const int n_threads : selection.n_threads) {
        for (const Model &model : models) {
            for (const std::int64_t n_tokens : {1, 64, 512, 4096}) {
                for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
                    for (const bool in_place : {true, false}) {
                        for (const bool cold : {false, true}) {
                            for (const std::int32_t angles :
                                 {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
                                const Work work = {model, n_tokens, type, in_place, cold, angles, n_threads};
                                if (exists(work) && (!selection.quick || is_quick(work))) {
                                    add(work);
                                }
                            }
                        }
                    }
                }
            }
            if (model.name == thorough_model) {
                for (const Work &work : special_works(model, n_threads)) {
                    add(work);
                }
            }
        }
    }
    return works;
}

}  // namespace halyard::bench
