// What programs that compute small graphs with and without a backend library share.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

struct Deleter {
    void operator()(ggml_context *context) const { ggml_free(context); }
    void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
    void operator()(ggml_backend_sched_t sched) const { ggml_backend_sched_free(sched); }
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};
template <typename T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Deleter>;

inline std::string last_log;
inline std::atomic<int> n_failed = 0;

inline void expect(bool is_so, const std::string &what) {
    if (!is_so) {
        std::printf("FAILED: %s\n", what.c_str());
        ++n_failed;
    }
}

/// Keeps ggml's last warning or error, and prints what backends say at their end.
inline void keep_log(ggml_log_level level, const char *text, void * /*data*/) {
    if (level == GGML_LOG_LEVEL_INFO) {
        std::fputs(text, stdout);
    } else {
        last_log = text;
    }
}

inline Owned<ggml_backend_t> make_backend(int n_threads) {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    Owned<ggml_backend_t> backend(ggml_backend_dev_init(device, nullptr));
    auto *set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
    set_n_threads(backend.get(), n_threads);
    return backend;
}

inline Owned<ggml_context *> make_context() { return Owned<ggml_context *>(ggml_init({1 << 20, nullptr, true})); }

/// Numbers in -1 … 1.
inline std::vector<float> random_numbers(std::int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> number(-1.0f, 1.0f);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float &value : values) {
        value = number(random);
    }
    return values;
}

inline void fill(ggml_tensor *tensor, unsigned seed) {
    const auto values = random_numbers(ggml_nelements(tensor), seed);
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
}

inline std::vector<char> bytes_of(const ggml_tensor *tensor) {
    std::vector<char> result(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, result.data(), 0, result.size());
    return result;
}
