// Compares the logits of a model before and after ggml has loaded a backend library, in one process: a prompt, tokens
// one by one, and where the model's memory can be shifted a context shift with more tokens behind it.
//
//     logits MODEL.gguf LIBRARY.so THREADS CACHE_TYPE(f16|f32|q8_0)
//
// Prints the normalised mean square error of each, and exits with 1 where one is above test-llama-archs' 1e-4.
#include <ggml-backend.h>
#include <llama.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int n_prompt = 150, n_steps = 12, n_removed = 40, n_context = 256;

using ModelPointer = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using ContextPointer = std::unique_ptr<llama_context, decltype(&llama_free)>;

[[noreturn]] void stop(const std::string &why) {
    std::fprintf(stderr, "logits: %s\n", why.c_str());
    std::exit(2);
}

ggml_type cache_type(const std::string &name) {
    if (name != "f16" && name != "f32" && name != "q8_0") {
        stop("no cache type: " + name);
    }
    return name == "f16" ? GGML_TYPE_F16 : name == "f32" ? GGML_TYPE_F32 : GGML_TYPE_Q8_0;
}

class Session {
public:
    Session(llama_model *model, int n_threads, ggml_type type)
        : model_(model), context_(make_context(model, n_threads, type), llama_free) {
        if (context_ == nullptr) {
            stop("no context");
        }
    }

    /// Decodes tokens at positions from first on, and returns all their logits.
    std::vector<float> decode(const llama_token *tokens, int n, int first) {
        llama_batch batch = llama_batch_init(n, 0, 1);
        batch.n_tokens = n;
        for (int i = 0; i < n; ++i) {
            batch.token[i] = tokens[i];
            batch.pos[i] = first + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_model_has_encoder(model_) && llama_encode(context_.get(), batch) != 0) {
            stop("could not encode");
        }
        if (llama_model_has_decoder(model_) && llama_decode(context_.get(), batch) != 0) {
            stop("could not decode");
        }
        std::vector<float> result;
        const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model_));
        for (int i = 0; i < n; ++i) {
            if (const float *logits = llama_get_logits_ith(context_.get(), i)) {
                result.insert(result.end(), logits, logits + n_vocab);
            }
        }
        llama_batch_free(batch);
        return result;
    }

    /// Drops the first tokens and moves the others up. False where the memory does not do that.
    bool shift(int n) {
        llama_memory_t memory = llama_get_memory(context_.get());
        // llama.cpp aborts where a hybrid's attention has no tokens to shift.
        if (memory == nullptr || llama_model_is_hybrid(model_) || !llama_memory_can_shift(memory) ||
            !llama_memory_seq_rm(memory, 0, 0, n)) {
            return false;
        }
        llama_memory_seq_add(memory, 0, n, -1, -n);
        return true;
    }

private:
    static llama_context *make_context(llama_model *model, int n_threads, ggml_type type) {
        auto parameters = llama_context_default_params();
        parameters.n_ctx = n_context;
        parameters.n_batch = parameters.n_ubatch = n_context;
        parameters.n_threads = parameters.n_threads_batch = n_threads;
        parameters.type_k = parameters.type_v = type;
        if (type == GGML_TYPE_Q8_0) {
            parameters.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        }
        return llama_init_from_model(model, parameters);
    }

    llama_model *model_;
    ContextPointer context_;
};

struct Logits {
    std::vector<float> prompt, steps, shifted;
};

Logits run(const char *path, int n_threads, ggml_type type) {
    auto parameters = llama_model_default_params();
    parameters.n_gpu_layers = 0;
    const ModelPointer model(llama_model_load_from_file(path, parameters), llama_model_free);
    if (model == nullptr) {
        stop(std::string("could not load ") + path);
    }
    Session session(model.get(), n_threads, type);
    std::mt19937 random(20261121);
    std::vector<llama_token> tokens(n_prompt + 2 * n_steps);
    for (auto &token : tokens) {
        token = static_cast<llama_token>(random() % 120);
    }
    Logits result;
    result.prompt = session.decode(tokens.data(), n_prompt, 0);
    const auto step = [&](int i, int position, std::vector<float> *out) {
        const auto more = session.decode(&tokens[static_cast<std::size_t>(n_prompt + i)], 1, position);
        out->insert(out->end(), more.begin(), more.end());
    };
    for (int i = 0; i < n_steps; ++i) {
        step(i, n_prompt + i, &result.steps);
    }
    if (session.shift(n_removed)) {
        for (int i = 0; i < n_steps; ++i) {
            step(n_steps + i, n_prompt + n_steps - n_removed + i, &result.shifted);
        }
    }
    return result;
}

/// Prints and judges; without any logits there is nothing to compare.
bool compare(const char *what, const std::vector<float> &a, const std::vector<float> &b) {
    if (a.empty() || a.size() != b.size()) {
        std::printf(" %s -", what);
        return a.size() == b.size();
    }
    double difference = 0.0, sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
        sum += static_cast<double>(a[i]) * a[i];
    }
    std::printf(" %s %.1e", what, difference / sum);
    return difference <= 1e-4 * sum;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) {
        stop("usage: logits MODEL.gguf LIBRARY.so THREADS CACHE_TYPE");
    }
    const int n_threads = std::atoi(argv[3]);
    const ggml_type type = cache_type(argv[4]);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    const Logits before = run(argv[1], n_threads, type);
    if (ggml_backend_load(argv[2]) == nullptr) {
        stop(std::string("ggml could not load ") + argv[2]);
    }
    const Logits after = run(argv[1], n_threads, type);
    const bool is_good[] = {compare("prompt", before.prompt, after.prompt),
                            compare("tokens", before.steps, after.steps),
                            compare("shifted", before.shifted, after.shifted)};
    std::printf("\n");
    return is_good[0] && is_good[1] && is_good[2] ? 0 : 1;
}
