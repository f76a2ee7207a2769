// Times a model before and after ggml has loaded a backend library, both in this process.
//
//     times MODEL.gguf LIBRARY.so THREADS
//
// It answers lines "0|1 prompt|token N", before or after, with the seconds of N prompts of 512 tokens, or of N tokens
// behind one. With one thread, they are the process's own on the CPU.
#include <ggml-backend.h>
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <sstream>
#include <string>

namespace {

constexpr int n_prompt = 512, n_warm = 3;

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

/// Microseconds of n prompts, or of n tokens behind one.
double time_of(llama_context *context, const std::string &what, int n) {
    double sum = 0.0;
    for (int i = 0; i < (what == "prompt" ? n : 1); ++i) {
        llama_memory_clear(llama_get_memory(context), true);
        sum += decode(context, n_prompt, 0);
    }
    if (what == "prompt") {
        return sum;
    }
    sum = 0.0;
    for (int i = 0; i < n_warm + n; ++i) {
        const double time = decode(context, 1, n_prompt + i);
        sum += i < n_warm ? 0.0 : time;
    }
    return sum;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: times MODEL.gguf LIBRARY.so THREADS\n");
        return 2;
    }
    const int n_threads = std::atoi(argv[3]);
    if (n_threads == 1) {
        the_clock = CLOCK_PROCESS_CPUTIME_ID;
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_context *contexts[2] = {make_context(argv[1], n_threads), nullptr};
    if (ggml_backend_load(argv[2]) == nullptr) {
        return 2;
    }
    contexts[1] = make_context(argv[1], n_threads);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        int which = 0, n = 0;
        std::string what;
        words >> which >> what >> n;
        std::printf("%.9g\n", 1e-6 * time_of(contexts[which != 0 ? 1 : 0], what, n));
        std::fflush(stdout);
    }
    return 0;
}
