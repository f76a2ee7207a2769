// Makes a program load what GGML_BACKEND_PATH names before its main() begins: for programs that never ask ggml to, such
// as test-llama-archs. By LD_PRELOAD.
#include <ggml-backend.h>

namespace {

[[gnu::constructor]] void load() { ggml_backend_load_all(); }

}  // namespace
