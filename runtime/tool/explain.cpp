// halyard explain: which kernel a rotation uses, and why it does not use the others.
#include "tool/commands.h"
#include "tool/files/file.h"
#include "tool/options/rotation_options.h"

#include "halyard/halyard_cuda.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace halyard::tool {
namespace {

struct Explain {
    RotationOptions rotation;
    dtype type = dtype::f32;
    std::int64_t head_dim = 128;
    std::optional<std::int64_t> rotary_dim;

    void run() {
        auto desc = rotation.describe(describe_tensor(type, head_dim), rotary_dim.value_or(head_dim));
        if constexpr (HALYARD_TOOL_HAS_CUDA) {
            if (rotation.target.starts_with("cuda_")) {
                desc.target = nullptr;
                print(halyard::explain(HALYARD_CUDA, desc));
                return;
            }
        }
        print(halyard::explain(desc));
    }
};

}  // namespace

void add_explain(CLI::App &app) {
    auto *command = app.add_subcommand("explain", "Each candidate kernel for a rotation: taken or refused, and why");
    const auto given = std::make_shared<Explain>();
    add_word(*command, "--dtype", given->type, "the elements' type [f32]", words_of_dtypes<dtype>());
    add_integer(*command, "--head-dim", given->head_dim, "columns of a head [128]", 1);
    add_integer(*command, "--rotary-dim", given->rotary_dim, "how many of them are rotated [--head-dim]");
    given->rotation.add(*command);
    command->callback([given] { given->run(); });
}

}  // namespace halyard::tool
