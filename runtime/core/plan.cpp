#include "core/plan.h"

#include "base/error.h"
#include "base/text.h"
#include "base/versioned.h"
#include "frequencies/frequencies.h"

#include <utility>

namespace halyard {

namespace {

/// Fills in those fields of a tensor's description that are 0, from its other fields and from the frequencies, if any.
void set_defaults(const halyard_frequencies *frequencies, bool rerotates, halyard_tensor_desc &tensor,
                  halyard_kv_desc &kv_desc) {
    const bool from_frequencies = tensor.pairing == 0 && frequencies != nullptr;
    if (from_frequencies) {  // cached keys have been rotated, so their pairing is that of a rotation's output
        tensor.pairing = rerotates ? frequencies->about.out_pairing : frequencies->about.pairing;
    }
    if (tensor.out_pairing == 0) {
        tensor.out_pairing = from_frequencies ? frequencies->about.out_pairing : tensor.pairing;
    }
    if (tensor.head_dim == 0 && frequencies != nullptr) {
        tensor.head_dim = frequencies->about.head_dim;
    }
    if (tensor.dtype == 0 && (kv_desc.from_groups != nullptr || (rerotates && kv_desc.groups != nullptr))) {
        tensor.dtype = HALYARD_UINT8;
    }
    if (kv_desc.out_dtype == 0) {
        kv_desc.out_dtype = kv_desc.groups != nullptr ? HALYARD_UINT8 : tensor.dtype;
    }
}

halyard_status read_tensor(const halyard_tensor_desc &tensor, const halyard_kv_desc &kv_desc, int index,
                           const halyard_plan_desc &plan, TensorPlan *out, halyard_error *error) {
    const std::int64_t rotary_dim = plan.rotary_dim;
    const bool rotates = kv_desc.no_rotation == 0;
    const bool has_own_numbers = kv_desc.from_groups != nullptr || plan.rerotates != 0;
    const auto dtype = to_dtype(tensor.dtype), out_dtype = to_dtype(kv_desc.out_dtype);
    const std::int32_t unread = HALYARD_PAIRING_HALF;
    const auto pairing = to_pairing(rotates ? tensor.pairing : unread);
    const auto out_pairing = to_pairing(rotates ? tensor.out_pairing : unread);
    HALYARD_TRY(check_fields(
        ElementName("tensors", index).text,
        {{tensor.dtype == 0, HALYARD_ERROR_UNKNOWN_VALUE, "dtype", "not set"},
         {!dtype, HALYARD_ERROR_UNKNOWN_VALUE, "dtype", tensor.dtype, ", which is no dtype"},
         {!out_dtype, HALYARD_ERROR_UNKNOWN_VALUE, "kv.out_dtype", kv_desc.out_dtype, ", which is no dtype"},
         {dtype && is_8_bit(*dtype) && !has_own_numbers, HALYARD_ERROR_UNSUPPORTED, "dtype",
          name_of_dtype(tensor.dtype), ", which only outputs, records and keys that rerotate can have"},
         {rotates && tensor.pairing == 0, HALYARD_ERROR_UNKNOWN_VALUE, "pairing", "not set",
          ", and no frequencies tell it"},
         {!pairing, HALYARD_ERROR_UNKNOWN_VALUE, "pairing", tensor.pairing, ", which is no pairing"},
         {!out_pairing, HALYARD_ERROR_UNKNOWN_VALUE, "out_pairing", tensor.out_pairing, ", which is no pairing"},
         {tensor.head_dim <= 0, HALYARD_ERROR_SHAPE, "head_dim", tensor.head_dim, ", but must be at least 1"},
         {rotates && tensor.head_dim > 0 &&
              (tensor.rotary_offset < 0 || rotary_dim > tensor.head_dim - tensor.rotary_offset),
          HALYARD_ERROR_WINDOW, "rotary_offset", tensor.rotary_offset, ": ", rotary_dim,
          " elements from there are not inside a head_dim of ", tensor.head_dim}},
        error));
    out->rotates = rotates;
    out->is_plain = plan.rerotates == 0 && has_only(kv_desc, *dtype);
    out->dtype = *dtype;
    out->out_dtype = *out_dtype;
    out->bytes = element_bytes(*dtype);
    out->out_bytes = element_bytes(*out_dtype);
    out->pairing = *pairing;
    out->out_pairing = *out_pairing;
    out->head_dim = out->in_dim = out->out_dim = tensor.head_dim;
    out->rotary_offset = rotates ? tensor.rotary_offset : 0;
    out->reads_x = out->writes_y = true;
    return HALYARD_OK;
}

}  // namespace

halyard_status read_plan(const halyard_plan_desc *desc, halyard_plan *out, PlanReading *reading,
                         halyard_error *error) noexcept {
    halyard_plan_desc &given = reading->desc;
    HALYARD_TRY(read_struct(desc, "desc", &given, error));
    HALYARD_TRY(check_choice("desc", "rerotates", given.rerotates, 1, error));
    const halyard_frequencies *const frequencies = given.frequencies;
    const std::int64_t rotary_dim = frequencies != nullptr ? 2 * frequencies->n_pairs : given.rotary_dim;
    HALYARD_TRY(check_fields("",
                             {{given.direction != HALYARD_FORWARD && given.direction != HALYARD_INVERSE,
                               HALYARD_ERROR_UNKNOWN_VALUE, "direction", given.direction, ", which is no direction"},
                              {given.rotary_dim != 0 && given.rotary_dim != rotary_dim, "rotary_dim", given.rotary_dim,
                               ", but the frequencies' is ", rotary_dim},
                              {given.n_tensors < 1 || given.n_tensors > HALYARD_MAX_TENSORS, HALYARD_ERROR_SHAPE,
                               "n_tensors", given.n_tensors, ", but must be 1 to ", HALYARD_MAX_TENSORS}},
                             error));
    given.rotary_dim = rotary_dim;
    HALYARD_TRY(check_given(given.tensors, "desc.tensors", error));
    bool rotates = false;
    for (int i = 0; i < given.n_tensors; i++) {
        const ElementName name("tensors", i), of_kv("tensors", i, ".kv");
        halyard_tensor_desc &tensor = reading->tensors[i];
        halyard_kv_desc &kv_desc = reading->kv_descs[i];
        HALYARD_TRY(read_struct(&given.tensors[i], name.text, &tensor, error));
        kv_desc = {};
        HALYARD_TRY(tensor.kv == nullptr ? HALYARD_OK : read_struct(tensor.kv, of_kv.text, &kv_desc, error));
        HALYARD_TRY(check_choice(of_kv.text, "no_rotation", kv_desc.no_rotation, 1, error));
        HALYARD_TRY(check_choice(of_kv.text, "position_scales", kv_desc.position_scales, 1, error));
        HALYARD_TRY(check_choice(of_kv.text, "reserved", kv_desc.reserved, 0, error));
        set_defaults(given.frequencies, given.rerotates != 0, tensor, kv_desc);
        rotates = rotates || kv_desc.no_rotation == 0;
    }
    if (given.rotary_dim < 0 || given.rotary_dim % 2 != 0 || (given.rotary_dim == 0 && rotates)) {
        return fail(error, HALYARD_ERROR_ROTARY_DIM, "rotary_dim is ", given.rotary_dim,
                    ", but must be even and at least 2");
    }
    out->rotary_dim = rotates ? given.rotary_dim : 0;
    out->sin_sign = given.direction == HALYARD_INVERSE ? 0x80000000u : 0u;
    out->n_tensors = given.n_tensors;
    for (int i = 0; i < given.n_tensors; i++) {
        HALYARD_TRY(read_tensor(reading->tensors[i], reading->kv_descs[i], i, given, &out->tensors[i], error));
    }
    return HALYARD_OK;
}

Task task_for(const TensorPlan &tensor, Dtype dtype, std::int64_t rotary_dim, Place place, Layout layout) noexcept {
    // Kernels that read words of two elements need even strides; bind checks these. In half pairing, the distance
    // between the members of a pair, rotary_dim / 2, must be even too.
    const bool even_halves = tensor.pairing == Pairing::interleaved || rotary_dim % 4 == 0;
    const bool keeps = layout == Layout::strided || (layout == Layout::even && even_halves);
    // If only a part of each head is rotated, rotate() copies the rest, and both parts stay in the caches.
    const bool copies = place == Place::non_temporal && tensor.head_dim != rotary_dim;
    return {dtype, tensor.pairing, tensor.out_pairing, copies ? Place::out_of_place : place,
            keeps ? layout : Layout::dense};
}

void choose_kernels(halyard_plan &plan, TargetSet allowed) noexcept {
    plan.target = best_of(allowed);
    plan.row_kernels = select_row_kernels(allowed);
    for (int i = 0; i < plan.n_tensors; i++) {
        TensorPlan &tensor = plan.tensors[i];
        for (std::int32_t place = 0; place < n_places; place++) {
            for (std::int32_t layout = 0; layout < n_layouts; layout++) {
                tensor.kernels[place][layout] =
                    &select(task_for(tensor, tensor.dtype, plan.rotary_dim, Place(place), Layout(layout)), allowed);
            }
        }
    }
}

void explain_task(Text &text, const Task &task, TargetSet allowed) noexcept {
    const Kernel &taken = select(task, allowed);
    for (const Kernel &kernel : kernels()) {
        const bool is_reference = kernel.function == nullptr;
        if (!is_reference &&
            (kernel.dtype != task.dtype || (kernel.place == Place::in_place) != (task.place == Place::in_place))) {
            continue;  // it can never serve such a tensor, so a line would tell the reader nothing
        }
        const char *reason = why_not(kernel, task);
        text.add(&kernel == &taken ? "  * " : "    ", kernel.name, ": ",
                 &kernel == &taken                     ? "taken"
                 : reason != nullptr                   ? reason
                 : (allowed & bit(kernel.target)) == 0 ? why_not(kernel.target)
                                                       : "comes after the one that is taken",
                 "\n");
        text.add_schedule(kernel.schedule);
    }
}

void explain_tensor(Text &text, const halyard_plan &plan, int index, TargetSet allowed) noexcept {
    const TensorPlan &tensor = plan.tensors[index];
    for (const auto &[place, words] : {std::pair(Place::out_of_place, "out of place"),
                                       std::pair(Place::non_temporal, "out of place past the caches"),
                                       std::pair(Place::in_place, "in place")}) {
        for (const Layout layout : {Layout::even, Layout::strided}) {
            const Task task = task_for(tensor, tensor.dtype, plan.rotary_dim, place, layout);
            const bool is_none = place == Place::in_place && tensor.pairing != tensor.out_pairing;
            if (is_none || (place == Place::non_temporal && select(task, allowed).place != place)) {
                continue;  // not possible, or the same kernels as for smaller outputs
            }
            text.add("tensor ", index, ", ", words, ", ", layout == Layout::strided ? "strided" : "dense", " heads:\n");
            explain_task(text, task, allowed);
        }
    }
}

}  // namespace halyard
