// Computes graphs like llama.cpp's with and without a backend library, in one process, and compares q and the caches:
// norms, rotations, Hadamard transforms, stores and shifts of keys.
//
//     graphs LIBRARY.so THREADS
//
// Prints each failure, and exits with 1 if there was one.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string last_log;
std::atomic<int> n_failed = 0;

void expect(bool is_so, const std::string &what) {
    if (!is_so) {
        std::printf("FAILED: %s\n", what.c_str());
        ++n_failed;
    }
}

/// Keeps ggml's last warning or error in last_log, and prints lines of information, such as the plug-in's counts.
void keep_log(ggml_log_level level, const char *text, void * /*data*/) {
    if (level == GGML_LOG_LEVEL_INFO) {
        std::fputs(text, stdout);
    } else {
        last_log = text;
    }
}

ggml_backend_ptr make_backend(int n_threads) {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
    auto *set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
    set_n_threads(backend.get(), n_threads);
    return backend;
}

/// Returns n uniform random numbers in -1 … 1.
std::vector<float> random_numbers(std::int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> number(-1.0f, 1.0f);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float &value : values) {
        value = number(random);
    }
    return values;
}

/// Sets a tensor's values. Does nothing if the graph does not use the tensor, which then has no memory.
template <typename T>
void set(ggml_tensor *tensor, const std::vector<T> &values) {
    if (tensor->buffer != nullptr) {
        ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    }
}

std::vector<char> bytes_of(const ggml_tensor *tensor) {
    std::vector<char> result(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, result.data(), 0, result.size());
    return result;
}

constexpr int n_heads = 4, n_kv_heads = 2, n_slots = 96, n_steps = 6;

// by_row: over all heads of a token, as in OLMo 2. weights: only their product, which is no norm
enum Norm { no, by_head, by_row, weights };

/// What else a graph has: a node between k and its SET_ROWS that reads v's cache, makes the slots or reads k, so that
/// joining nodes or storing early would be wrong; positions that the graph itself computes; no store of v; or an
/// attention factor, by which a shift would multiply keys again, so that Halyard leaves shifts to ggml.
enum class Odd { nothing, cache_is_read, slots_are_made, k_is_read, positions_are_made, k_is_alone, has_factor };

/// The graph of one layer: q, k and v of n_tokens tokens, and the stores into the caches.
struct Layer {
    ggml_type type;                                  // of both caches
    int head_dim, k_hadamard, v_hadamard, n_tokens;  // k_hadamard, v_hadamard: n of the transform, or 0
    Norm norm;
    bool is_half;
    bool v_is_packed;  // in one tensor with q and k, so that v's transform needs a dense copy
    bool k_is_last;    // the order of nodes: v, k, then both SET_ROWS; else k, v, SET_ROWS
    Odd odd = Odd::nothing;
};

const std::vector<Layer> layers = {
    {GGML_TYPE_Q8_0, 128, 128, 64, 1, no, true, false, true},
    {GGML_TYPE_Q8_0, 128, 128, 64, 1, by_head, false, true, false},
    {GGML_TYPE_Q8_0, 64, 64, 64, 7, by_head, true, true, true},
    {GGML_TYPE_Q8_0, 192, 64, 64, 33, no, false, false, false},
    {GGML_TYPE_Q8_0, 256, 256, 64, 5, no, true, true, true},
    {GGML_TYPE_Q4_0, 128, 128, 64, 1, by_head, true, false, true},
    {GGML_TYPE_Q4_0, 64, 64, 64, 17, no, false, true, false},
    {GGML_TYPE_Q4_0, 320, 64, 64, 3, no, true, false, true},
    {GGML_TYPE_Q8_0, 96, 0, 0, 9, by_head, true, true, true},  // as head_dim % 64 != 0, or LLAMA_ATTN_ROT_DISABLE
    {GGML_TYPE_Q4_0, 128, 0, 0, 2, no, false, true, true},
    {GGML_TYPE_Q8_0, 80, 0, 0, 4, no, true, true, true},    // head_dim % 32 != 0: ggml keeps the stores
    {GGML_TYPE_F16, 128, 128, 0, 6, no, true, true, true},  // DeepSeek's indexer
    {GGML_TYPE_Q8_0, 64, 64, 64, 3, no, true, true, true, Odd::cache_is_read},
    {GGML_TYPE_Q8_0, 64, 64, 64, 3, no, true, false, false, Odd::slots_are_made},
    {GGML_TYPE_Q8_0, 64, 64, 64, 3, no, true, false, true, Odd::k_is_read},
    {GGML_TYPE_F16, 64, 0, 0, 1, by_head, true, true, true},
    {GGML_TYPE_F32, 64, 0, 0, 33, no, true, false, false},
    {GGML_TYPE_F32, 64, 0, 0, 65, no, true, false, true},  // Halyard stores into float caches from 64 tokens on
    {GGML_TYPE_F32, 64, 0, 0, 2, no, true, true, true, Odd::positions_are_made},
    {GGML_TYPE_F16, 64, 0, 0, 65, by_head, true, true, true, Odd::k_is_read},
    {GGML_TYPE_F16, 64, 0, 0, 17, by_row, true, true, true},
    {GGML_TYPE_F32, 64, 0, 0, 1, by_row, true, true, true},
    {GGML_TYPE_BF16, 64, 0, 0, 65, no, true, true, true},
    {GGML_TYPE_F32, 64, 0, 0, 3, weights, true, true, true},
    {GGML_TYPE_Q8_0, 64, 64, 64, 3, no, true, true, true, Odd::has_factor},
    {GGML_TYPE_F16, 64, 0, 0, 65, by_head, true, true, true, Odd::k_is_alone},
};

class Model {
public:
    Model(const Layer &layer, int n_threads) : layer_(layer), backend_(make_backend(n_threads)) {
        for (ggml_tensor **cache : {&k_cache_, &v_cache_}) {
            *cache = ggml_new_tensor_2d(fixed_.get(), layer.type, layer.head_dim * n_kv_heads, n_slots);
        }
        weight_ = ggml_new_tensor_1d(fixed_.get(), GGML_TYPE_F32, layer.head_dim * n_heads);
        buffer_.reset(ggml_backend_alloc_ctx_tensors(fixed_.get(), backend_.get()));
        ggml_backend_buffer_clear(buffer_.get(), 0);
        set(weight_, random_numbers(ggml_nelements(weight_), 3));
        build();
        ggml_backend_t backends[] = {backend_.get()};
        for (auto *sched : {&sched_, &shift_sched_}) {
            sched->reset(ggml_backend_sched_new(backends, nullptr, 1, 128, false, true));
        }
        if (!ggml_backend_sched_alloc_graph(sched_.get(), graph_) ||
            (can_shift() && !ggml_backend_sched_alloc_graph(shift_sched_.get(), shift_graph_))) {
            std::exit(2);
        }
    }

    ggml_status store(unsigned seed, int first_slot, bool is_at_zero) {
        for (ggml_tensor *input : {x_, v_in_}) {
            auto values = random_numbers(ggml_nelements(input), seed);
            // Heads have different magnitudes, and every fifth is all zeros.
            for (std::size_t i = 0; i < values.size(); ++i) {
                const auto head = i / static_cast<std::size_t>(layer_.head_dim);
                values[i] = head % 5 == 4 ? 0.0f : std::ldexp(values[i], static_cast<int>(head * 7 % 23) - 14);
            }
            set(input, values);
        }
        std::vector<std::int32_t> positions(static_cast<std::size_t>(layer_.n_tokens));
        std::vector<std::int64_t> slots(positions.size());
        for (std::size_t t = 0; t < slots.size(); ++t) {
            positions[t] = is_at_zero ? 0 : static_cast<std::int32_t>(5 * seed + t);
            slots[t] = first_slot + layer_.n_tokens - 1 - static_cast<int>(t);
        }
        set(positions_, positions);
        if (slots32_ != nullptr) {
            set(slots32_, std::vector<std::int32_t>(slots.begin(), slots.end()));
        } else {
            set(slots_, slots);
        }
        for (ggml_tensor *rot : {k_rot_, v_rot_}) {
            set_hadamard(rot);
        }
        return compute(sched_.get(), graph_);
    }

    ggml_status shift(bool by_zero) {
        std::vector<std::int32_t> shifts(n_slots);
        for (int t = 0; t < n_slots; ++t) {
            shifts[static_cast<std::size_t>(t)] = by_zero || t % 4 == 0 ? 0 : 3 - t;
        }
        set(shifts_, shifts);
        set_hadamard(shift_rot_);
        return compute(shift_sched_.get(), shift_graph_);
    }

    bool can_shift() const { return ggml_is_quantized(layer_.type) && layer_.head_dim % 32 == 0; }
    ggml_tensor *k_cache() const { return k_cache_; }
    const ggml_tensor *v_cache() const { return v_cache_; }
    const ggml_tensor *q() const { return q_; }
    const ggml_tensor *out() const { return out_; }

private:
    static ggml_status compute(ggml_backend_sched_t sched, ggml_cgraph *graph) {
        std::vector<ggml_tensor> before;
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            before.push_back(*ggml_graph_node(graph, i));
        }
        const ggml_status status = ggml_backend_sched_graph_compute(sched, graph);
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            const auto &node = before[static_cast<std::size_t>(i)];
            expect(std::memcmp(&node, ggml_graph_node(graph, i), sizeof(node)) == 0, "the graph is as before");
        }
        return status;
    }

    static void set_hadamard(ggml_tensor *rot) {
        if (rot == nullptr) {
            return;
        }
        const auto n = static_cast<unsigned>(rot->ne[0]);
        std::vector<float> values(n * n);
        for (unsigned i = 0; i < n * n; ++i) {
            const float sign = __builtin_popcount(i / n & i % n) % 2 == 0 ? 1.0f : -1.0f;
            values[i] = sign / std::sqrt(static_cast<float>(n));
        }
        set(rot, values);
    }

    ggml_tensor *input(ggml_tensor *tensor) {
        ggml_set_input(tensor);
        return tensor;
    }
    ggml_tensor *new_hadamard(int n) {
        return n == 0 ? nullptr : input(ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, n, n));
    }

    /// As llama_mul_mat_hadamard in llama-impl.h.
    ggml_tensor *transformed(ggml_tensor *x, ggml_tensor *rot) {
        if (rot == nullptr) {
            return x;
        }
        ggml_context *c = context_.get();
        const std::int64_t n = rot->ne[0], rows = ggml_nelements(x) / n;
        ggml_tensor *y = ggml_is_contiguous(x) ? ggml_reshape_2d(c, x, n, rows) : ggml_cont_2d(c, x, n, rows);
        y = ggml_mul_mat(c, rot, y);
        ggml_mul_mat_set_hint(y, GGML_HINT_SRC0_IS_HADAMARD);
        return ggml_reshape_4d(c, y, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
    }

    ggml_tensor *rope(ggml_tensor *x, ggml_tensor *positions) {
        return ggml_rope_ext(context_.get(), x, positions, nullptr, layer_.head_dim,
                             layer_.is_half ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, 4096, 10000.0f, 1.0f, 0.0f,
                             layer_.odd == Odd::has_factor ? 1.25f : 1.0f, 32.0f, 1.0f);
    }

    /// The norm, rotation and Hadamard transform of q or k.
    ggml_tensor *rotated(ggml_tensor *x) {
        ggml_context *c = context_.get();
        const std::int64_t d = x->ne[0], heads = x->ne[1], tokens = x->ne[2];
        const std::int64_t size = layer_.norm == by_row ? heads * d : d;
        if (layer_.norm == by_row) {
            x = ggml_view_2d(c, x, size, tokens, x->nb[2], 0);
        }
        if (layer_.norm != no) {
            x = layer_.norm == weights ? x : ggml_rms_norm(c, x, 1e-6f);
            x = ggml_mul(c, x, ggml_view_1d(c, weight_, size, 0));
        }
        x = layer_.norm == by_row ? ggml_reshape_3d(c, x, d, heads, tokens) : x;
        ggml_tensor *where = positions_;
        if (layer_.odd == Odd::positions_are_made) {
            where = ggml_cast(c, ggml_cast(c, positions_, GGML_TYPE_F32), GGML_TYPE_I32);
        }
        return transformed(rope(x, where), k_rot_);
    }

    void add_store(ggml_tensor *cache, ggml_tensor *x) {
        ggml_context *c = context_.get();
        if (!ggml_is_contiguous(x)) {
            x = ggml_cont(c, x);
        }
        ggml_tensor *flat = ggml_view_2d(c, x, x->ne[0] * x->ne[1], x->ne[2], x->nb[2], 0);
        ggml_build_forward_expand(graph_, ggml_set_rows(c, cache, flat, slots_));
    }

    void build() {
        ggml_context *c = context_.get();
        graph_ = ggml_new_graph(c);
        const int n = layer_.n_tokens, d = layer_.head_dim;
        x_ = input(ggml_new_tensor_2d(c, GGML_TYPE_F32, (n_heads + 2 * n_kv_heads) * d, n));
        v_in_ = input(ggml_new_tensor_2d(c, GGML_TYPE_F32, n_kv_heads * d, n));
        positions_ = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, n));
        slots_ = input(ggml_new_tensor_1d(c, GGML_TYPE_I64, n));
        k_rot_ = new_hadamard(layer_.k_hadamard);
        v_rot_ = new_hadamard(layer_.v_hadamard);
        ggml_tensor *packed = ggml_scale(c, x_, 1.5f);
        const std::size_t bytes = static_cast<std::size_t>(d) * sizeof(float);
        const auto slice = [&](int first, int heads) {
            return ggml_view_3d(c, packed, d, heads, n, bytes, packed->nb[1], static_cast<std::size_t>(first) * bytes);
        };
        q_ = rotated(slice(0, n_heads));
        ggml_set_output(q_);
        ggml_tensor *k = rotated(slice(n_heads, n_kv_heads));
        ggml_tensor *v = layer_.v_is_packed ? slice(n_heads + n_kv_heads, n_kv_heads)
                                            : ggml_reshape_3d(c, ggml_scale(c, v_in_, 1.5f), d, n_kv_heads, n);
        v = transformed(v, v_rot_);
        ggml_build_forward_expand(graph_, q_);
        ggml_build_forward_expand(graph_, layer_.k_is_last ? v : k);
        ggml_build_forward_expand(graph_, layer_.k_is_last ? k : v);
        add_node_before_store(k);
        add_store(k_cache_, k);
        if (layer_.odd != Odd::k_is_alone) {
            add_store(v_cache_, v);
        }
        if (can_shift()) {
            build_shift();
        }
    }

    void add_node_before_store(ggml_tensor *k) {
        ggml_context *c = context_.get();
        if (layer_.odd == Odd::slots_are_made) {
            slots32_ = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, layer_.n_tokens));
            slots_ = ggml_cast(c, ggml_cast(c, slots32_, GGML_TYPE_F32), GGML_TYPE_I32);
            ggml_build_forward_expand(graph_, slots_);
        } else if (layer_.odd == Odd::k_is_read || layer_.odd == Odd::cache_is_read) {
            ggml_tensor *rows = ggml_get_rows(c, v_cache_, positions_);
            out_ = layer_.odd == Odd::k_is_read ? ggml_scale(c, k, 2.0f) : rows;
            ggml_set_output(out_);
            ggml_build_forward_expand(graph_, out_);
        }
    }

    /// As llama_kv_cache::build_rope_shift.
    void build_shift() {
        ggml_context *c = context_.get();
        shift_graph_ = ggml_new_graph(c);
        shifts_ = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, n_slots));
        shift_rot_ = new_hadamard(layer_.k_hadamard);
        const std::size_t row = ggml_row_size(layer_.type, layer_.head_dim);
        ggml_tensor *keys = ggml_view_3d(c, k_cache_, layer_.head_dim, n_kv_heads, n_slots, row, k_cache_->nb[1], 0);
        ggml_tensor *floats = transformed(ggml_cast(c, keys, GGML_TYPE_F32), shift_rot_);
        ggml_build_forward_expand(shift_graph_, ggml_cpy(c, transformed(rope(floats, shifts_), shift_rot_), keys));
    }

    Layer layer_;
    ggml_backend_ptr backend_;
    ggml_context_ptr fixed_{ggml_init({1 << 20, nullptr, true})}, context_{ggml_init({1 << 20, nullptr, true})};
    ggml_backend_buffer_ptr buffer_;
    ggml_backend_sched_ptr sched_, shift_sched_;
    ggml_cgraph *graph_ = nullptr, *shift_graph_ = nullptr;
    ggml_tensor *k_cache_ = nullptr, *v_cache_ = nullptr, *weight_ = nullptr;
    ggml_tensor *x_ = nullptr, *v_in_ = nullptr, *positions_ = nullptr, *slots_ = nullptr, *shifts_ = nullptr;
    ggml_tensor *k_rot_ = nullptr, *v_rot_ = nullptr, *shift_rot_ = nullptr, *q_ = nullptr;
    ggml_tensor *slots32_ = nullptr, *out_ = nullptr;
};

/// The results after a step.
struct Snapshot {
    std::vector<char> k, v;           // the bytes of the caches
    std::vector<float> keys, q, out;  // keys: k's cache as f32; out: the result of the node that Odd adds, if any

    bool has_bits_of(const Snapshot &other) const { return k == other.k && v == other.v && q == other.q; }
};

std::vector<float> floats_of(const ggml_tensor *tensor) {
    const auto bytes = bytes_of(tensor);
    std::vector<float> result(static_cast<std::size_t>(ggml_nelements(tensor)));
    if (tensor->type == GGML_TYPE_F32) {
        std::memcpy(result.data(), bytes.data(), bytes.size());
    } else {
        ggml_get_type_traits(tensor->type)->to_float(bytes.data(), result.data(), ggml_nelements(tensor));
    }
    return result;
}

std::vector<Snapshot> run(const Layer &layer, int n_threads) {
    Model model(layer, n_threads);
    std::vector<Snapshot> results;
    const auto after = [&](ggml_status status) {
        expect(status == GGML_STATUS_SUCCESS, "a step succeeds");
        results.push_back({bytes_of(model.k_cache()), bytes_of(model.v_cache()), floats_of(model.k_cache()),
                           floats_of(model.q()),
                           model.out() == nullptr ? std::vector<float>() : floats_of(model.out())});
    };
    after(model.store(1, 0, true));
    if (model.can_shift()) {
        after(model.shift(true));
        after(model.shift(false));
    }
    for (unsigned i = 0; i < n_steps; ++i) {
        after(model.store(2 + i, static_cast<int>(11 * i) % (n_slots - layer.n_tokens), false));
    }
    return results;
}

/// Compares the results of stock ggml with ours: v's bytes must be equal, and k's too if all angles are 0 and there is
/// no norm; else q and k must be near. Adds the number of bytes of k that differ to *n_different.
void compare(const Layer &layer, int step, const Snapshot &stock, const Snapshot &ours, long long *n_different) {
    const std::string where = "head_dim " + std::to_string(layer.head_dim) + ", " + ggml_type_name(layer.type) +
                              ", tokens " + std::to_string(layer.n_tokens) + ", step " + std::to_string(step) + ": ";
    expect(stock.v == ours.v, where + "v's bytes are equal");
    const bool is_equal = layer.norm == no && (step == 0 || (step == 1 && ggml_is_quantized(layer.type)));
    expect(!is_equal || stock.k == ours.k, where + "k's bytes are equal without an angle");
    for (std::size_t i = 0; i < stock.k.size(); ++i) {
        *n_different += stock.k[i] != ours.k[i];
    }
    const double quanta = layer.type == GGML_TYPE_Q4_0   ? 2.05 / 7
                          : layer.type == GGML_TYPE_Q8_0 ? 1.05 / 127
                          : layer.type == GGML_TYPE_BF16 ? 8e-3
                          : layer.type == GGML_TYPE_F16  ? 1e-3
                                                         : 0.0;
    const auto d = static_cast<std::size_t>(layer.head_dim);
    for (std::size_t head = 0; head < stock.keys.size() / d; ++head) {
        double length = 0.0;
        for (std::size_t i = 0; i < d; ++i) {
            length = std::hypot(length, stock.keys[head * d + i]);
        }
        for (std::size_t i = 0; i < d; ++i) {
            const std::size_t at = head * d + i;
            double largest = 0.0;
            for (std::size_t j = at / 32 * 32; j < at / 32 * 32 + 32; ++j) {
                largest = std::max(largest, static_cast<double>(std::fabs(stock.keys[j])));
            }
            if (std::fabs(stock.keys[at] - ours.keys[at]) > quanta * largest + 1e-4 * length) {
                expect(false, where + "k's element " + std::to_string(at) + " is " + std::to_string(ours.keys[at]) +
                                  ", stock's " + std::to_string(stock.keys[at]));
                return;
            }
        }
    }
    const auto is_near = [](float a, float b) { return std::fabs(a - b) <= 1e-4f * static_cast<float>(1 << 8); };
    expect(std::equal(stock.out.begin(), stock.out.end(), ours.out.begin(), is_near), where + "what is read is near");
    expect(std::equal(stock.q.begin(), stock.q.end(), ours.q.begin(), is_near), where + "q is near");
}

template <typename Step>
void expect_refusal(const Model &model, const char *word, Step &&step) {
    const auto k = bytes_of(model.k_cache()), v = bytes_of(model.v_cache());
    last_log.clear();
    expect(step() == GGML_STATUS_FAILED && last_log.find(word) != std::string::npos, "a refusal says: " + last_log);
    expect(bytes_of(model.k_cache()) == k && bytes_of(model.v_cache()) == v, "what is refused writes nothing");
}

void test_bad_slots(const Layer &layer, int n_threads) {
    Model model(layer, n_threads);
    expect(model.store(1, 5, false) == GGML_STATUS_SUCCESS, "good slots succeed");
    for (const int slot : {n_slots, 1 << 30, -20}) {
        expect_refusal(model, "slot", [&] { return model.store(2, slot, false); });
    }
    expect(model.store(3, 6, false) == GGML_STATUS_SUCCESS, "good slots succeed after bad ones");
}

/// If the scale of one key is infinite, the shift fails, and writes no key.
void test_bad_keys(int n_threads) {
    Model model(layers[2], n_threads);
    expect(model.store(1, 5, false) == GGML_STATUS_SUCCESS, "good slots succeed");
    const std::uint16_t infinity = 0x7c00;
    ggml_backend_tensor_set(model.k_cache(), &infinity, 0, sizeof(infinity));
    expect_refusal(model, "scale", [&] { return model.shift(false); });
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: graphs LIBRARY.so THREADS\n");
        return 2;
    }
    const int n_threads = std::atoi(argv[2]);
    ggml_log_set(keep_log, nullptr);
    ggml_backend_load_all();
    std::vector<std::vector<Snapshot>> before;
    for (const Layer &layer : layers) {
        before.push_back(run(layer, n_threads));
    }
    if (ggml_backend_load(argv[1]) == nullptr) {
        std::fprintf(stderr, "graphs: could not load %s: %s\n", argv[1], last_log.c_str());
        return 2;
    }
    long long n_bytes = 0, n_different = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto after = run(layers[i], n_threads);
        std::vector<std::vector<Snapshot>> others(4);  // from concurrent backends, one of them with one thread
        std::vector<std::thread> threads;
        for (auto &other : others) {
            threads.emplace_back([&] { other = run(layers[i], &other == others.data() ? 1 : 2); });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        for (std::size_t step = 0; step < after.size(); ++step) {
            compare(layers[i], static_cast<int>(step), before[i][step], after[step], &n_different);
            n_bytes += static_cast<long long>(after[step].k.size());
            for (const auto &other : others) {
                expect(after[step].has_bits_of(other[step]), "any number of threads and backends gives the same bits");
            }
        }
    }
    for (const Layer &layer : {layers[2], layers.back()}) {  // only Halyard stores here: ggml's SET_ROWS would abort
        test_bad_slots(layer, n_threads);
    }
    test_bad_keys(n_threads);
    std::printf("%lld of %lld bytes of k differ, %d failed\n", n_different, n_bytes, n_failed.load());
    return n_failed == 0 ? 0 : 1;
}
