// What is timed: the models of shapes.txt, each with several counts of tokens, storage types, places and so on.
#pragma once

#include "halyard/halyard.hpp"

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace halyard::bench {

/// A line of shapes.txt.
struct Model {
    std::string name;
    std::int64_t n_q_heads, n_k_heads, head_dim, rotary_dim;
    pairing in, out;

    std::int64_t n_heads() const { return n_q_heads + n_k_heads; }
};

/// Throws std::runtime_error, naming the line, where the text is not as shapes.txt says.
std::vector<Model> read_models(std::istream &text);

/// One piece of work: a row of the table.
struct Work {
    Model model;
    std::int64_t n_tokens = 1;
    dtype type = dtype::f32;
    bool in_place = true;
    bool cold = false;  // each call uses other memory, none of it in a cache; hot: every call uses the same
    std::int32_t angles = HALYARD_ANGLES_TABLE;
    int n_threads = 1;
    bool read_back = false;   // the output is read after each call, as a model's next step would
    bool apart = false;       // q and k are two tensors of a run, one behind the other in memory
    bool cold_table = false;  // each call has other positions, scattered over a table that fills no cache
    bool strided = false;     // in memory, element i of all heads of a token comes before element i + 1

    /// A part of a kernel's name, without its target: "half_f32_in_place".
    std::string kernel() const;
    /// "half_f32_in_place/llama-3-8b/64/hot", then "/read", "/phase", "/q-and-k", "/cold-table", "/2-threads" and
    /// "/strided" where these are not the usual ones.
    std::string name() const;
    /// The distance between two heads of a token, and between two elements of a head.
    std::int64_t stride_head() const { return strided ? 1 : model.head_dim; }
    std::int64_t stride_element() const { return strided ? model.n_heads() : 1; }
    std::int64_t element_bytes() const { return type == dtype::f32 ? 4 : 2; }
    std::size_t tensor_bytes() const {
        return static_cast<std::size_t>(n_tokens * model.n_heads() * model.head_dim * element_bytes());
    }
    /// Bytes that have to be read and written, without angles. In place, columns outside the window stay as they are.
    std::size_t n_bytes() const;
};

const char *name_of(pairing pairing);
const char *name_of(dtype type);

struct Selection {
    bool quick = false;
    std::string filter = "*";  // matches names as a shell does, but * matches / too
    std::vector<int> n_threads = {1};
};

/// All works for the models, or those that a quick run does.
std::vector<Work> list_works(const std::vector<Model> &models, const Selection &selection);

}  // namespace halyard::bench
