// halyard explain: which kernel a rotation takes, and why not another.
#include "tool/commands/commands.h"
#if HALYARD_TOOL_HAS_GPU
#include "tool/device.h"
#endif
#include "tool/inputs.h"
#include "tool/print.h"
#include "tool/words.h"

namespace halyard::tool {

void explain(const ExplainOptions &options) {
    auto desc = options.rotation.describe(parse_dtype(options.type), options.head_dim,
                                          options.rotary_dim ? *options.rotary_dim : whole_head(options.head_dim));
#if HALYARD_TOOL_HAS_GPU
    if (const auto device = device_of(options.rotation.target); device != HALYARD_CPU) {
        desc.target = nullptr;
        print(say_options(halyard::explain(device, desc)));
        return;
    }
#endif
    print(say_options(halyard::explain(desc)));
}

}  // namespace halyard::tool
