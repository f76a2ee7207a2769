#include "report/table.h"

#include "tool/files/output_file.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace halyard::bench {

namespace {

using nlohmann::json;

constexpr double noisy = 0.1;  // a spread that is more than this part of its median

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

std::string format(const char *pattern, ...) {
    char text[512];
    va_list values;
    va_start(values, pattern);
    std::vsnprintf(text, sizeof(text), pattern, values);
    va_end(values);
    return text;
}

/// How many times as long as Halyard a rival takes: "3.21"; a dash where that is not known.
std::string format_times(const Row &row, const Rival *rival) {
    return rival == nullptr || rival->timing.median == 0.0 ? "-"
                                                           : format("%.2f", rival->timing.median / row.timing.median);
}

const Rival *find_rival(const Row &row, Rival::Kind kind, const std::string &name) {
    for (const Rival &rival : row.rivals) {
        if (rival.kind == kind && (name.empty() || rival.name == name)) {
            return &rival;
        }
    }
    return nullptr;
}

std::string format_best_peer(const Row &row) {
    const Rival *peer = row.best(Rival::Kind::peer);
    if (peer == nullptr) {
        return "-";
    }
    std::string text = format_times(row, peer) + " " + peer->name;
    const double own_seconds = peer->timing.median - peer->overhead_seconds;
    if (own_seconds <= 0.0) {
        text += " (all of it the call)";
    } else if (own_seconds < 0.9 * peer->timing.median) {
        text += format(" (%.2f without its call)", own_seconds / row.timing.median);
    }
    return text;
}

/// A column that follows the fixed ones.
struct Column {
    std::string head;
    std::string (*cell)(const Row &row, const std::string &name);
    std::string name;
};

std::vector<Column> choose_columns(const std::vector<Row> &rows) {
    std::vector<Column> columns;
    const auto add = [&](Rival::Kind kind, const std::string &head, const std::string &name,
                         std::string (*cell)(const Row &, const std::string &)) {
        const bool used = std::any_of(rows.begin(), rows.end(),
                                      [&](const Row &row) { return find_rival(row, kind, name) != nullptr; });
        const auto is_same = [&](const Column &column) { return column.head == head; };
        if (used && std::none_of(columns.begin(), columns.end(), is_same)) {
            columns.push_back({head, cell, name});
        }
    };
    add(Rival::Kind::reference, "x reference", "", [](const Row &row, const std::string &) {
        return format_times(row, find_rival(row, Rival::Kind::reference, ""));
    });
    add(Rival::Kind::bound, "x bound", "",
        [](const Row &row, const std::string &) { return format_times(row, find_rival(row, Rival::Kind::bound, "")); });
    add(Rival::Kind::kernels, "ns over kernels", "", [](const Row &row, const std::string &) {
        const Rival *const bound = find_rival(row, Rival::Kind::bound, "");
        const Rival *const kernels = find_rival(row, Rival::Kind::kernels, "");
        return bound == nullptr || kernels == nullptr
                   ? std::string("-")
                   : format("%.1f", (bound->timing.median - kernels->timing.median) * 1e9);
    });
    for (const Row &row : rows) {
        for (const Rival &rival : row.rivals) {
            if (rival.kind == Rival::Kind::loop) {
                add(Rival::Kind::loop, "x " + rival.name.substr(0, rival.name.find(' ')) + " loop", rival.name,
                    [](const Row &row, const std::string &name) {
                        return format_times(row, find_rival(row, Rival::Kind::loop, name));
                    });
            } else if (rival.kind == Rival::Kind::angles) {
                add(Rival::Kind::angles, "x " + rival.name, rival.name, [](const Row &row, const std::string &name) {
                    return format_times(row, find_rival(row, Rival::Kind::angles, name));
                });
            }
        }
    }
    add(Rival::Kind::one_thread, "x 1 thread", "", [](const Row &row, const std::string &) {
        return format_times(row, find_rival(row, Rival::Kind::one_thread, ""));
    });
    add(Rival::Kind::peer, "x best peer", "",
        [](const Row &row, const std::string &) { return format_best_peer(row); });
    return columns;
}

std::string format_row(const Row &row, int name_width, const std::vector<Column> &columns) {
    std::string line =
        format("%-*s %11.3f +- %8.3f %7.1f %6.2f %s", name_width, row.work.name().c_str(), row.timing.median * 1e6,
               row.timing.spread * 1e6, static_cast<double>(row.work.n_bytes()) / row.timing.median * 1e-9, row.ratio(),
               row.ceilings.is_lower_by_conversion() ? "c" : " ");
    for (const Column &column : columns) {
        line += format("  %*s", static_cast<int>(column.head.size()), column.cell(row, column.name).c_str());
    }
    if (row.wrong) {
        line += format("  WRONG: error %.1e", row.max_error);
    }
    for (const Rival &rival : row.rivals) {
        if (rival.wrong) {
            line += format("  (%s is wrong: error %.1e)", rival.name.c_str(), rival.max_error);
        }
    }
    return line + "\n";
}

const char *name_of(Rival::Kind kind) {
    constexpr const char *names[] = {"reference", "one_thread", "bound", "kernels", "angles", "loop", "peer"};
    return names[static_cast<std::size_t>(kind)];
}

json to_json(const Timing &timing) {
    return {{"median_seconds", timing.median}, {"spread_seconds", timing.spread}, {"fastest_seconds", timing.fastest}};
}

json to_json(const Ceiling &ceiling, const Row &row) {
    json value = to_json(ceiling.timing);
    value.update({{"name", ceiling.name}, {"ratio", ceiling.timing.median / row.timing.median}});
    return value;
}

json to_json(const Rival &rival) {
    json value = to_json(rival.timing);
    value.update(
        {{"name", rival.name}, {"kind", name_of(rival.kind)}, {"max_error", rival.max_error}, {"wrong", rival.wrong}});
    if (rival.kind == Rival::Kind::peer) {
        value.update({{"form", rival.form}, {"overhead_seconds", rival.overhead_seconds}});
    }
    return value;
}

}  // namespace

std::string format_rows(const std::vector<Row> &rows) {
    const std::vector<Column> columns = choose_columns(rows);
    std::size_t name_width = 0;
    for (const Row &row : rows) {
        name_width = std::max(name_width, row.work.name().size());
    }
    const auto width = static_cast<int>(name_width);
    std::string head = format("%-*s %23s %7s %8s", width, "kernel/model/tokens", "time, us", "GB/s", "ceiling");
    for (const Column &column : columns) {
        head += "  " + column.head;
    }
    std::string text = head + "\n";
    const auto n_lost = std::count_if(rows.begin(), rows.end(), [](const Row &row) { return row.loses(); });
    if (n_lost > 0) {
        text += format("Slower than a C loop or a peer (%ld of %zu):\n", static_cast<long>(n_lost), rows.size());
    }
    for (const bool lost : {true, false}) {
        for (const Row &row : rows) {
            text += row.loses() == lost ? format_row(row, width, columns) : "";
        }
        if (lost && n_lost > 0) {
            text += "The others:\n";
        }
    }
    const auto n_noisy = std::count_if(rows.begin(), rows.end(), [](const Row &row) {
        return std::max(row.timing.relative_spread(), row.ceilings.lower().relative_spread()) > noisy;
    });
    if (n_noisy > 0) {
        text += format("This machine is noisy: %ld of %zu rows have a spread of more than %.0f %% of the median.\n",
                       static_cast<long>(n_noisy), rows.size(), noisy * 100.0);
    }
    return text;
}

std::string format_accuracy(const std::vector<Accuracy> &all) {
    std::string text = format("%-34s %12s %12s\n", "", "half", "interleaved");
    for (const Accuracy &one : all) {
        text += format("%-34s", one.name.c_str());
        for (const char *how : {"half", "interleaved"}) {
            const auto found = one.max_error.find(how);
            text += found == one.max_error.end() ? format(" %12s", "-") : format(" %12.1e", found->second);
        }
        text += "\n";
    }
    return text;
}

json to_json(const Row &row) {
    const Work &work = row.work;
    const char *angles = work.angles == HALYARD_ANGLES_TABLE   ? "table"
                         : work.angles == HALYARD_ANGLES_PHASE ? "phase"
                                                               : "factored";
    json value = to_json(row.timing);
    json rivals = json::array();
    for (const Rival &rival : row.rivals) {
        if (rival.timing.median > 0.0) {
            rivals.push_back(to_json(rival));
        }
    }
    value.update({{"name", work.name()},
                  {"kernel", row.kernel()},
                  {"target", row.target},
                  {"model", work.model.name},
                  {"tokens", work.n_tokens},
                  {"q_heads", work.model.n_q_heads},
                  {"k_heads", work.model.n_k_heads},
                  {"head_dim", work.model.head_dim},
                  {"rotary_dim", work.model.rotary_dim},
                  {"pairing", bench::name_of(work.model.in)},
                  {"out_pairing", bench::name_of(work.model.out)},
                  {"dtype", bench::name_of(work.type)},
                  {"in_place", work.in_place},
                  {"cold", work.cold || work.cold_table},
                  {"tensors", work.apart ? 2 : 1},
                  {"angles", angles},
                  {"threads", work.n_threads},
                  {"bytes", work.n_bytes()},
                  {"gigabytes_per_second", static_cast<double>(work.n_bytes()) / row.timing.median * 1e-9},
                  {"max_error", row.max_error},
                  {"wrong", row.wrong},
                  {"ratio", row.ratio()},
                  {"judged_by", row.ceilings.is_lower_by_conversion() ? "conversion" : "memory"},
                  {"memory", to_json(row.ceilings.memory, row)},
                  {"ceiling_loops", row.ceilings.seconds},
                  {"rivals", rivals}});
    if (row.ceilings.conversion.timing.median > 0.0) {
        value["conversion"] = to_json(row.ceilings.conversion, row);
    }
    return value;
}

json to_json(const Accuracy &accuracy) { return {{"name", accuracy.name}, {"max_error", accuracy.max_error}}; }

void save_json(const std::string &path, const json &value) {
    tool::OutputFile file(path);
    const std::string text = value.dump(1) + "\n";
    file.write(text.data(), text.size());
    file.commit();
}

json load_json(const std::string &path) {
    std::ifstream file(path);
    if (!file) {
        throw std::runtime_error("can't read " + path);
    }
    json value = json::parse(file, nullptr, false);
    if (value.is_discarded()) {
        throw std::runtime_error(path + " is not JSON");
    }
    return value;
}

}  // namespace halyard::bench
