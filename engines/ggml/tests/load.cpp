// A library for LD_PRELOAD: before main() begins, it has ggml load the backend that GGML_BACKEND_PATH names. For
// programs that never call ggml_backend_load_all() themselves, such as test-llama-archs.
#include <ggml-backend.h>

namespace {

[[gnu::constructor]] void load() { ggml_backend_load_all(); }

}  // namespace
