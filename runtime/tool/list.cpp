// halyard list: all targets, and which of them this machine can run.
#include "tool/commands.h"
#include "tool/files/file.h"

#include "halyard/halyard_cuda.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace halyard::tool {
namespace {

std::string format_json(const std::vector<halyard_target_info> &targets) {
    auto rows = nlohmann::ordered_json::array();
    for (const auto &target : targets) {
        rows.push_back({{"name", target.name},
                        {"isa", target.isa},
                        {"built", target.built != 0},
                        {"supported", target.supported != 0},
                        {"active", target.active != 0},
                        {"reason", target.reason}});
    }
    return rows.dump(2) + "\n";
}

std::string format_table(const std::vector<halyard_target_info> &targets) {
    using Row = std::array<std::string, 6>;
    std::vector<Row> rows = {{"target", "isa", "built", "supported", "active", "reason"}};
    const auto yes_no = [](std::int32_t value) { return value != 0 ? "yes" : "no"; };
    for (const auto &target : targets) {
        rows.push_back({target.name, target.isa, yes_no(target.built), yes_no(target.supported), yes_no(target.active),
                        target.reason});
    }
    std::array<std::size_t, 6> widths{};
    for (const auto &row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string text;
    for (const auto &row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

/// All targets, with halyard::cuda's info for CUDA targets. (A device also runs kernels for older devices.)
std::vector<halyard_target_info> all_targets() {
    auto all = targets();
    if constexpr (HALYARD_TOOL_HAS_CUDA) {
        const auto device = cuda_target(HALYARD_CUDA);
        bool is_too_new = device.supported != 0;
        for (auto &target : all) {
            if (!std::string(target.name).starts_with("cuda_")) {
                continue;
            }
            is_too_new = is_too_new && target.name != std::string(device.name);
            const char *const name = target.name, *const isa = target.isa;
            target = device;
            target.name = name;
            target.isa = isa;
            if (is_too_new) {
                target.supported = 0;
                std::snprintf(target.reason, sizeof(target.reason), "the first device has a lower compute capability");
            }
        }
    }
    return all;
}

}  // namespace

void add_list(CLI::App &app) {
    auto *command = app.add_subcommand("list", "Every kernel target: built? supported here? chosen? If not, why");
    const auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "an array of objects instead of a table");
    command->callback([json] { print(*json ? format_json(all_targets()) : format_table(all_targets())); });
}

}  // namespace halyard::tool
