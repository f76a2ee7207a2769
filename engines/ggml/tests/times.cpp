// Times a model before and after ggml has loaded a backend library, in one process and in turns, so that what else the
// machine does meets both.
//
//     times MODEL.gguf LIBRARY.so THREADS ROUNDS
//
// With one thread, times are the process's own on the CPU. A library that refuses to be loaded shows the noise.
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace {

constexpr int n_prompt = 512, n_steps = 32, n_warm = 3;

clockid_t the_clock = CLOCK_MONOTONIC;

double now() {
    timespec time = {};
    clock_gettime(the_clock, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

llama_context *make_context(const char *path, int n_threads) {
    auto model_parameters = llama_model_default_params();
    model_parameters.n_gpu_layers = 0;
    llama_model *model = llama_model_load_from_file(path, model_parameters);
    auto parameters = llama_context_default_params();
    parameters.n_ctx = 1024;
    parameters.n_batch = parameters.n_ubatch = n_prompt;
    parameters.n_threads = parameters.n_threads_batch = n_threads;
    llama_context *context = model == nullptr ? nullptr : llama_init_from_model(model, parameters);
    if (context == nullptr) {
        std::fprintf(stderr, "times: could not load %s\n", path);
        std::exit(2);
    }
    return context;
}

/// Microseconds of decoding n tokens.
double decode(llama_context *context, int n, int first) {
    llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; ++i) {
        batch.token[i] = 1 + i % 100;
        batch.pos[i] = first + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i == n - 1;
    }
    const double start = now();
    if (llama_decode(context, batch) != 0) {
        std::exit(2);
    }
    llama_synchronize(context);
    const double end = now();
    llama_batch_free(batch);
    return end - start;
}

double quantile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(static_cast<double>(values.size()) * part)];
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: times MODEL.gguf LIBRARY.so THREADS ROUNDS\n");
        return 2;
    }
    const int n_threads = std::atoi(argv[3]), n_rounds = std::atoi(argv[4]);
    if (n_threads == 1) {
        the_clock = CLOCK_PROCESS_CPUTIME_ID;
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_context *contexts[2] = {make_context(argv[1], n_threads), nullptr};
    const bool is_loaded = ggml_backend_load(argv[2]) != nullptr;
    contexts[1] = make_context(argv[1], n_threads);
    std::vector<double> prompts[2], tokens[2];
    for (int round = 0; round < n_rounds; ++round) {
        for (int turn = 0; turn < 2; ++turn) {
            const int which = (round + turn) % 2;
            llama_memory_clear(llama_get_memory(contexts[which]), true);
            prompts[which].push_back(decode(contexts[which], n_prompt, 0));
            for (int i = 0; i < n_steps; ++i) {
                const double time = decode(contexts[which], 1, n_prompt + i);
                if (i >= n_warm) {
                    tokens[which].push_back(time);
                }
            }
        }
    }
    for (const double part : {0.1, 0.5}) {
        const double a = quantile(prompts[0], part), b = quantile(prompts[1], part), c = quantile(tokens[0], part),
                     d = quantile(tokens[1], part);
        std::printf("%s quantile %.1f: pp512 %.0f, %.0f us (%.3f); a token %.1f, %.1f us (%.3f)\n",
                    is_loaded ? "stock, Halyard" : "stock, stock", part, a, b, b / a, c, d, d / c);
    }
    return 0;
}
