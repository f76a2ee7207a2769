#include "calls/call.h"

namespace halyard::python {

std::string Tensors::with_tensor_names(std::string message) const {
    const auto replace = [&](const std::string &words, const std::string &by) {
        for (auto found = message.find(words); found != message.npos; found = message.find(words, found + by.size())) {
            message.replace(found, words.size(), by);
        }
    };
    replace("kv.", "");
    replace("args.", "");
    replace(" is NULL", " is None");
    for (std::size_t i = 0; i < n; ++i) {
        const auto number = text("[", i, "]");
        replace("tensors" + number + ".", operands[i].name() + "'s ");
        replace("tensors" + number, operands[i].name());
        replace("stages" + number + ".", operands[i].name() + "'s ");
        replace("x" + number, operands[i].name());
        replace("y" + number, "out of " + operands[i].name());
    }
    return message;
}

/// The default positions 0, 1, 2, … are meant for one sequence from its start. In a decoding step they would mean
/// position 0, and in a batch or with a cache each sequence has its own. So such calls must give positions.
void require_positions(const AngleSource &angles, const Tensors &tensors) {
    const auto &first = tensors.operands[0];
    const std::string why = first.has_batch()                          ? first.name() + " has a batch"
                            : tensors.n_slots_of_smallest_cache() != 0 ? "tokens go into a cache"
                            : tensors.x[0].shape[1] == 1               ? first.name() + " has one token"
                                                                       : "";
    const bool is_empty = tensors.x[0].shape[0] == 0 || tensors.x[0].shape[1] == 0;
    const bool rotates = std::any_of(tensors.descs.data(), tensors.descs.data() + tensors.n,
                                     [](const halyard_tensor_desc &desc) { return desc.kv->no_rotation == 0; });
    if (!why.empty() && rotates && !angles.by_token && !is_empty) {
        refuse(HALYARD_ERROR_MISMATCH, "positions is left out, but ", why,
               ": say where the tokens are (0, if they start at position 0)");
    }
}

Call::Call(AngleSource &angles, nb::handle given, nb::handle positions, nb::handle slots, const Options &options) {
    const auto [from, to] = options.pairings(angles);
    for (const auto each : nb::cast<nb::sequence>(given)) {
        if (tensors.n == max_tensors) {
            refuse(HALYARD_ERROR_SHAPE, "there are more than 3 tensors");
        }
        auto &operand = tensors.operands[tensors.n];
        operand.read(each, options.heads_first,
                     tensors.n == 0 ? Array::anywhere : tensors.operands[0].input().device());
        operand.desc.pairing = from;
        operand.desc.out_pairing = to;
        tensors.append_operand();
    }
    desc = tensors.describe(angles, options);
    device = tensors.operands[0].input().device();
    args = tensors.make_args(options);
    args.angles = angles.source().get();
    args.positions = read_positions.emplace().read("positions", positions, angles.n_axes, device);
    tensors.kv.slots =
        read_slots.emplace().read(slots, options.duplicate_slots, tensors.n_slots_of_smallest_cache(), device);
    args.kv = tensors.kv_args();
}

}  // namespace halyard::python
