// Compares a model's logits before and after ggml has loaded a backend library, in one process: of a prompt, of tokens
// one by one in a batch with another sequence, of tokens after a state was saved and restored, and, if the model's
// memory can shift, of tokens after a context shift.
//
//     logits MODEL.gguf LIBRARY.so THREADS CACHE_TYPE(f16|f32|q8_0|q4_0) FLASH_ATTENTION(on|off|auto) [no-shift]
//
// Quantised values need flash attention: without it only keys are quantised, and each sequence has its own cache.
//
// Prints the normalised mean square error of each of these logits. Exits with 1 if one is above the tolerance: that of
// test-llama-archs, 1e-4; for quantised caches the largest error between stock with and stock without flash attention
// (both with quantised keys), or 1e-7 if that is larger. Exits with 3 if llama.cpp cannot make such a context, or its
// own logits are NaN.
#include <ggml-backend.h>
#include <llama-cpp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int n_prompt = 150, n_second = 30, n_steps = 12, n_removed = 40, n_context = 512;

[[noreturn]] void stop(const std::string &why) {
    std::fprintf(stderr, "logits: %s\n", why.c_str());
    std::exit(2);
}

/// The settings of a context.
struct Settings {
    const char *path;
    int n_threads;
    ggml_type type;
    llama_flash_attn_type flash_attention;
    ggml_type value_type;
    bool shifts;

    Settings(char **argv, bool stays) : path(argv[1]), n_threads(std::atoi(argv[3])), shifts(!stays) {
        const std::string name = argv[4], flash = argv[5];
        const ggml_type known[] = {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};
        const auto is_named = [&](ggml_type each) { return name == ggml_type_name(each); };
        const auto *const found = std::find_if(std::begin(known), std::end(known), is_named);
        type = found != std::end(known) ? *found : (stop("no cache type: " + name), GGML_TYPE_COUNT);
        flash_attention = flash == "on"    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                          : flash == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                           : LLAMA_FLASH_ATTN_TYPE_AUTO;
        const bool needs_flash = ggml_is_quantized(type) && flash_attention == LLAMA_FLASH_ATTN_TYPE_DISABLED;
        value_type = needs_flash ? GGML_TYPE_F16 : type;
    }

    /// The same settings with flash attention on or off, and with v cached as f16. (A quantised v needs flash
    /// attention.)
    Settings with_flash(bool is_on) const {
        Settings result = *this;
        result.value_type = GGML_TYPE_F16;
        result.flash_attention = is_on ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        return result;
    }
};

class Session {
public:
    Session(llama_model *model, const Settings &settings) : model_(model), context_(make_context(model, settings)) {}

    bool has_context() const { return context_ != nullptr; }

    /// Decodes n tokens of a sequence at positions first, first + 1, …, and returns all logits. If position_of_other >=
    /// 0, the batch also has a token of the other sequence, at that position.
    std::vector<float> decode(const llama_token *tokens, int n, int first, int sequence = 0,
                              int position_of_other = -1) {
        llama_batch batch = llama_batch_init(n + 1, 0, 1);
        const auto add = [&](llama_token token, int position, int of) {
            const int i = batch.n_tokens++;
            batch.token[i] = token;
            batch.pos[i] = position;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = of;
            batch.logits[i] = 1;
        };
        for (int i = 0; i < n; ++i) {
            add(tokens[i], first + i, sequence);
        }
        if (position_of_other >= 0) {
            add(tokens[0], position_of_other, 1 - sequence);
        }
        if (llama_model_has_encoder(model_) && llama_encode(context_.get(), batch) != 0) {
            stop("could not encode");
        }
        if (llama_model_has_decoder(model_) && llama_decode(context_.get(), batch) != 0) {
            stop("could not decode");
        }
        std::vector<float> result;
        const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model_));
        for (int i = 0; i < batch.n_tokens; ++i) {
            if (const float *logits = llama_get_logits_ith(context_.get(), i)) {
                result.insert(result.end(), logits, logits + n_vocab);
            }
        }
        llama_batch_free(batch);
        return result;
    }

    /// Whether the model can hold two sequences. An encoder's tokens are one sequence.
    bool can_hold_two_sequences() const {
        return !llama_model_has_encoder(model_) && llama_get_memory(context_.get()) != nullptr;
    }

    /// Saves a sequence, removes it and restores it. Returns false if the model has no state to save.
    bool save_and_restore(int sequence) {
        llama_memory_t memory = llama_get_memory(context_.get());
        if (memory == nullptr) {
            return false;
        }
        std::vector<std::uint8_t> state(llama_state_seq_get_size(context_.get(), sequence));
        const std::size_t n = llama_state_seq_get_data(context_.get(), state.data(), state.size(), sequence);
        return n != 0 && llama_memory_seq_rm(memory, sequence, -1, -1) &&
               llama_state_seq_set_data(context_.get(), state.data(), n, sequence) == n;
    }

    /// Removes the first n tokens and shifts the positions of the others by -n. Returns false if the memory cannot.
    bool shift(int n) {
        llama_memory_t memory = llama_get_memory(context_.get());
        // llama.cpp aborts if the attention layers of a hybrid model have no tokens to shift.
        if (memory == nullptr || llama_model_is_hybrid(model_) || !llama_memory_can_shift(memory) ||
            !llama_memory_seq_rm(memory, 0, 0, n)) {
            return false;
        }
        llama_memory_seq_add(memory, 0, n, -1, -n);
        return true;
    }

private:
    static llama_context *make_context(llama_model *model, const Settings &settings) {
        const bool has_flash = settings.flash_attention != LLAMA_FLASH_ATTN_TYPE_DISABLED;
        auto parameters = llama_context_default_params();
        parameters.n_ctx = n_context;
        parameters.n_batch = parameters.n_ubatch = n_context;
        parameters.n_seq_max = 2;
        parameters.kv_unified = has_flash;
        parameters.n_threads = parameters.n_threads_batch = settings.n_threads;
        parameters.type_k = settings.type;
        parameters.type_v = settings.value_type;
        parameters.flash_attn_type = settings.flash_attention;
        return llama_init_from_model(model, parameters);
    }

    llama_model *model_;
    llama_context_ptr context_;
};

/// The logits of the prompt, of tokens one by one, of tokens after restoring a state, and of tokens after a shift.
using Logits = std::array<std::vector<float>, 4>;

/// Returns nullopt if llama.cpp cannot make a context with these settings.
std::optional<Logits> run(const Settings &settings) {
    auto parameters = llama_model_default_params();
    parameters.n_gpu_layers = 0;
    const llama_model_ptr model(llama_model_load_from_file(settings.path, parameters));
    if (model == nullptr) {
        stop(std::string("could not load ") + settings.path);
    }
    Session session(model.get(), settings);
    if (!session.has_context()) {
        return std::nullopt;
    }
    std::mt19937 random(20261121);
    std::vector<llama_token> tokens(n_prompt + 3 * n_steps);
    for (auto &token : tokens) {
        token = static_cast<llama_token>(random() % 120);
    }
    Logits result;
    auto &[prompt, one_by_one, restored, shifted] = result;
    prompt = session.decode(tokens.data(), n_prompt, 0);
    int n_done = 0;
    const auto steps = [&](int first, int position_of_other, std::vector<float> *out) {
        for (int i = 0; i < n_steps; ++i, ++n_done) {
            const llama_token *token = &tokens[static_cast<std::size_t>(n_prompt + n_done)];
            const auto more =
                session.decode(token, 1, first + i, 0, position_of_other < 0 ? -1 : position_of_other + i);
            out->insert(out->end(), more.begin(), more.end());
        }
    };
    const bool has_other = session.can_hold_two_sequences();
    if (has_other) {
        session.decode(&tokens[n_prompt - n_second], n_second, 0, 1);
    }
    steps(n_prompt, has_other ? n_second : -1, &one_by_one);
    if (session.save_and_restore(0)) {
        steps(n_prompt + n_steps, -1, &restored);
    }
    if (settings.shifts && session.shift(n_removed)) {
        const int n_kept = (restored.empty() ? 1 : 2) * n_steps + n_prompt - n_removed;
        steps(n_kept, has_other ? n_second + n_steps : -1, &shifted);
    }
    return result;
}

/// The mean square difference of b from a, divided by the mean square of a; -1 if both are empty, infinity if their
/// sizes differ.
double normalised_error(const std::vector<float> &a, const std::vector<float> &b) {
    if (a.empty() || a.size() != b.size()) {
        return a.size() == b.size() ? -1.0 : INFINITY;
    }
    double difference = 0.0, sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
        sum += static_cast<double>(a[i]) * a[i];
    }
    return difference / sum;
}

std::array<double, 4> normalised_errors(const std::optional<Logits> &one, const std::optional<Logits> &other) {
    std::array<double, 4> result = {-1.0, -1.0, -1.0, -1.0};
    if (one && other) {
        std::transform(one->begin(), one->end(), other->begin(), result.begin(), normalised_error);
    }
    return result;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 6 && argc != 7) {
        stop("usage: logits MODEL.gguf LIBRARY.so THREADS CACHE_TYPE FLASH_ATTENTION [no-shift]");
    }
    const Settings settings(argv, argc == 7);
    const auto print_counts = [](ggml_log_level, const char *text, void *) {
        std::fputs(std::strncmp(text, "halyard: ", 9) == 0 ? text : "", stdout);
    };
    llama_log_set(print_counts, nullptr);
    llama_backend_init();
    const auto before = run(settings);
    const auto is_nan = [](float logit) { return std::isnan(logit); };
    if (!before || std::any_of(before->front().begin(), before->front().end(), is_nan)) {
        std::printf("llama.cpp makes no such context, or its own logits are NaN\n");
        return 3;
    }
    double allowed = 1e-4, own = 0.0;
    if (ggml_is_quantized(settings.type)) {
        const auto of_stock = normalised_errors(run(settings.with_flash(true)), run(settings.with_flash(false)));
        own = *std::max_element(of_stock.begin(), of_stock.end());
        allowed = std::max(own, 1e-7);
    }
    if (ggml_backend_load(argv[2]) == nullptr) {
        stop(std::string("ggml could not load ") + argv[2]);
    }
    const auto ours = normalised_errors(before, run(settings));
    const char *const names[] = {"prompt", "tokens", "restored", "shifted"};
    bool is_good = true;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        ours[i] < 0.0 ? std::printf("%s - ", names[i]) : std::printf("%s %.1e ", names[i], ours[i]);
        is_good = is_good && ours[i] <= allowed;
    }
    std::printf("stock %.1e\n", own);
    return is_good ? 0 : 1;
}
