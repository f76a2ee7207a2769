#include "checks/gpu_checker.h"

#include "checks/gpu_angles.h"
#include "checks/road_oracle.h"
#include "checks/sized.h"
#include "halyard/halyard_gpu.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

namespace gpu_test {

namespace {

using oracle::Random;

/// A tensor [batch, tokens, heads, head_dim] inside an array.
struct Layout {
    std::array<std::int64_t, 4> shape, strides;
    std::int64_t start;   // the number of elements before its first one
    std::int64_t length;  // the number of elements of the array
};

/// Draws strides from the innermost dimension outwards, with gaps. Where elements are aligned in groups of `step`, the
/// innermost stride is 1 and all others are multiples of that. Some go backwards.
Layout random_layout(Random &random, std::array<std::int64_t, 4> shape, std::int64_t step) {
    const bool aligned = step > 1;
    Layout layout = {shape, {}, random.in(0, 3) * step, 0};
    std::array<int, 4> order = {3, 2, 1, 0};
    if (random.one_in(2)) {
        std::swap(order[1], order[2]);  // BHSD
    }
    std::int64_t reach = aligned || random.one_in(2) ? 1 : 2;
    for (const int dim : order) {
        const auto i = static_cast<std::size_t>(dim);
        layout.strides[i] = reach;
        reach *= shape[i];
        if (random.one_in(3)) {
            reach += dim == 3 || aligned ? step * random.in(0, 3) : random.in(0, 3);
        }
        reach = (reach + step - 1) / step * step;
    }
    layout.length = layout.start + reach + random.in(0, 8);
    for (std::size_t i = 0; i < 3; i++) {
        if (random.one_in(6)) {  // backwards
            layout.start += (shape[i] - 1) * layout.strides[i];
            layout.strides[i] = -layout.strides[i];
        }
    }
    return layout;
}

std::vector<char> random_bytes(Random &random, std::int32_t dtype, std::int64_t n) {
    const oracle::Values kinds[] = {oracle::Values::ordinary, oracle::Values::any_bits, oracle::Values::special,
                                    oracle::Values::short_mantissa};
    return oracle::random_elements(random, dtype, random.one_of(kinds), n);
}

/// Random positions of every kind: int32 or int64, listed, consecutive or absent, strided, on one axis or three. All
/// are from first to last, often at these two, or about a fifth of them is not, or a single one.
struct RandomPositions {
    bool is_absent = false;
    std::vector<char> bytes;
    halyard_positions view = {};
    std::int64_t start = 0;

    RandomPositions(Random &random, std::int64_t n_batch, std::int64_t n_tokens, std::int64_t n_axes,
                    std::int64_t first, std::int64_t last, bool may_be_absent) {
        is_absent = may_be_absent && first <= 0 && last >= n_tokens && random.one_in(6);
        if (is_absent) {
            return;
        }
        const bool may_be_bad = !random.one_in(3);
        const bool wide = random.one_in(2), consecutive = last - first > n_tokens && random.one_in(4);
        const std::int64_t rows = random.one_in(2) ? n_batch : 1, columns = consecutive ? 1 : n_tokens;
        const std::int64_t stride = random.in(1, 2), row = columns * stride + random.in(0, 2);
        view.size = sizeof(view);
        view.type = wide ? HALYARD_INT64 : HALYARD_INT32;
        view.consecutive = consecutive ? 1 : 0;
        view.shape[0] = rows;
        view.shape[1] = columns;
        view.strides[0] = row;
        view.strides[1] = stride;
        view.n_axes = n_axes;
        view.stride_axis = rows * row + random.in(0, 2);
        start = random.in(0, 3);
        const std::int64_t n = start + n_axes * view.stride_axis + 1, size = wide ? 8 : 4;
        bytes.resize(static_cast<std::size_t>(n * size));
        const std::int64_t end = consecutive ? last - n_tokens : last,
                           lone = random.one_in(2) ? random.in(0, n - 1) : -1;
        for (std::int64_t i = 0; i < n; i++) {
            std::int64_t position = !random.one_in(6)  ? random.in(first, end)
                                    : random.one_in(2) ? random.in(first, std::min(first + 1, end))
                                                       : random.in(std::max(first, end - 1), end);
            if (may_be_bad && (lone < 0 ? random.one_in(5) : i == lone)) {
                const std::int64_t narrow[] = {first - 1, last + 1, INT32_MIN, INT32_MAX};
                const std::int64_t far[] = {INT64_MIN, INT64_MAX, std::int64_t{1} << 32, -(std::int64_t{1} << 40)};
                position = wide && random.one_in(2) ? random.one_of(far) : random.one_of(narrow);
                position = wide ? position : std::clamp<std::int64_t>(position, INT32_MIN, INT32_MAX);
            }
            if (wide) {
                std::memcpy(bytes.data() + i * 8, &position, 8);
            } else {
                const auto value = static_cast<std::int32_t>(position);
                std::memcpy(bytes.data() + i * 4, &value, 4);
            }
        }
        if (!consecutive && random.one_in(4)) {
            start += (n_tokens - 1) * stride;
            view.strides[1] = -stride;
        }
    }

    std::int64_t element_size() const { return view.type == HALYARD_INT64 ? 8 : 4; }
    halyard_positions on_host() const {
        halyard_positions result = view;
        result.data = bytes.data() + start * element_size();
        return result;
    }
};

}  // namespace

std::string difference(std::int32_t dtype, const std::vector<char> &expected, const std::vector<char> &result) {
    const auto bytes = static_cast<std::size_t>(oracle::stored_bytes(dtype));
    std::ostringstream text;
    if (expected.size() != result.size()) {
        text << "there are " << result.size() << " bytes, not " << expected.size();
        return text.str();
    }
    for (std::size_t at = 0; at + bytes <= expected.size(); at += bytes) {
        std::uint32_t is = 0, should_be = 0;
        std::memcpy(&is, result.data() + at, bytes);
        std::memcpy(&should_be, expected.data() + at, bytes);
        if (is != should_be &&
            !(std::isnan(oracle::decode(dtype, is)) && std::isnan(oracle::decode(dtype, should_be)))) {
            text << "element " << at / bytes << " is " << std::hex << is << ", not " << should_be;
            return text.str();
        }
    }
    return "";
}

std::string check_gpu_run(const halyard::gpu::GpuKernel &kernel, const halyard_gpu_queue &queue, Random &random,
                          std::int64_t n_tokens) {
    const std::int32_t device = kernel.target == halyard::Target::cuda_sm80 ? HALYARD_CUDA : HALYARD_OPENCL;
    const bool is_fast = kernel.layout != halyard::gpu::any_layout;
    const auto dtype = static_cast<std::int32_t>(kernel.dtype);
    const std::int64_t element_bytes = oracle::element_bytes(dtype);

    const std::int64_t fast_pairs[] = {8, 16, 24, 32, 40, 48, 64, 80, 128};
    const std::int64_t unit = is_fast ? kernel.layout.bytes / element_bytes : 1;
    const std::int64_t n_pairs = kernel.layout.bytes == 16 ? random.one_of(fast_pairs)
                                 : is_fast                 ? 2 * random.in(1, 35)
                                                           : random.in(1, 70);
    const std::int64_t rotary_dim = 2 * n_pairs;
    // What is not rotated is copied by blocks of 8 columns.
    const auto beside = [&] { return random.one_in(2) ? 0 : random.in(1, random.one_in(3) ? 20 : 3) * unit; };
    const std::int64_t offset = beside();
    const std::int64_t head_dim = offset + rotary_dim + beside();
    const bool is_large = n_tokens > 0;
    if (!is_large) {  // positions are checked by blocks of 128 tokens
        n_tokens = random.one_in(8) ? random.in(120, 300) : random.one_in(4) ? random.in(60, 70) : random.in(1, 5);
    }
    const std::int64_t most_heads = is_large ? 9 : n_tokens > 70 ? 2 : random.one_in(4) ? 70 : 9;
    const std::array<std::int64_t, 4> shape = {random.in(1, 3), n_tokens, random.in(1, most_heads), head_dim};
    const auto pairing_of = [&](std::optional<halyard::Pairing> of) {
        return of ? static_cast<std::int32_t>(*of) : static_cast<std::int32_t>(random.in(1, 2));
    };
    const std::int32_t pairing = pairing_of(kernel.layout.pairing);
    const std::int32_t out_pairing = kernel.in_place ? pairing : pairing_of(kernel.layout.out_pairing);

    // Angles of a range that leaves positions out on both sides, on one axis or three.
    const std::int64_t n_axes = n_pairs >= 3 && random.one_in(3) ? 3 : 1;
    // Of a listed table with gaps, hardly any run has good positions alone.
    const RandomAngles angles(queue, random, rotary_dim, n_axes, random.one_in(2) ? 200 : 0);

    auto tensor_desc = halyard::make_struct<halyard_tensor_desc>();
    tensor_desc.dtype = dtype;
    tensor_desc.pairing = pairing;
    tensor_desc.out_pairing = out_pairing;
    tensor_desc.head_dim = head_dim;
    tensor_desc.rotary_offset = offset;
    halyard::plan_desc plan_desc(rotary_dim, {tensor_desc});
    plan_desc.direction = static_cast<std::int32_t>(random.in(0, 1));
    const halyard::gpu_plan plan(queue, plan_desc, angles.on_device());
    plan_desc.target = "reference";
    const halyard::plan expected_plan(plan_desc);

    const Layout in = random_layout(random, shape, unit);
    const Layout out = kernel.in_place ? in : random_layout(random, shape, unit);
    const std::vector<char> x_before = random_bytes(random, dtype, in.length);
    const std::vector<char> y_before = kernel.in_place ? x_before : random_bytes(random, dtype, out.length);
    const auto bad_position = static_cast<std::int32_t>(random.in(0, 2));
    const RandomPositions positions(random, shape[0], n_tokens, n_axes, angles.first(), angles.last(),
                                    shape[0] == 1 || !angles.are_given());

    // The CPU gives the expected result. Where it refuses a bad position, the GPU takes position 0 and reports it.
    std::vector<char> x_host = x_before, expected = y_before;
    halyard_positions host_view = positions.on_host();
    const auto tensor_on_host = [&](std::vector<char> &bytes, const Layout &layout) {
        return halyard::tensor(bytes.data() + layout.start * element_bytes, static_cast<halyard::dtype>(dtype),
                               layout.shape, layout.strides);
    };
    halyard::run_options how;
    how.positions = positions.is_absent ? nullptr : &host_view;
    bool is_refused = false;
    const auto run_on_host = [&](std::int32_t policy) {
        how.policy = static_cast<halyard::bad_position>(policy);
        const halyard_tensor y = tensor_on_host(expected, out);
        halyard::run(expected_plan, angles.on_host(), kernel.in_place ? y : tensor_on_host(x_host, in), y, how);
    };
    try {
        run_on_host(bad_position);
    } catch (const halyard::error &refused) {
        is_refused = true;
        run_on_host(HALYARD_BAD_POSITION_IDENTITY);
    }

    // The device does the same.
    const Memory x(queue, x_before), y(queue, y_before), places(queue, positions.bytes),
        word(queue, std::vector<char>(8));
    const auto tensor_on_device = [&](const Memory &memory, const Layout &layout) {
        halyard_tensor tensor = halyard::tensor(memory.data(layout.start * element_bytes),
                                                static_cast<halyard::dtype>(dtype), layout.shape, layout.strides);
        tensor.device = device;
        return tensor;
    };
    const halyard_tensor y_view = tensor_on_device(y, out);
    const halyard_tensor x_view = kernel.in_place ? y_view : tensor_on_device(x, in);
    const std::int64_t x_offset = (kernel.in_place ? y : x).offset(in.start), y_offset = y.offset(out.start);
    halyard_positions device_view = positions.view;
    device_view.data = places.data(positions.start * positions.element_size());
    auto args = sized<halyard_gpu_run_args>();
    args.bad_position = bad_position;
    args.stream = queue.stream;
    args.positions = positions.is_absent ? nullptr : &device_view;
    args.positions_offset = places.offset(positions.start);
    args.x = &x_view;
    args.y = &y_view;
    args.x_offsets = &x_offset;
    args.y_offsets = &y_offset;
    const bool has_word = bad_position == HALYARD_BAD_POSITION_ERROR;
    args.error_word = has_word ? static_cast<std::int32_t *>(word.data(4)) : nullptr;
    args.error_word_offset = has_word ? word.offset(1) : 0;
    auto error = sized<halyard_error>();
    const halyard_status status = halyard_run_gpu(plan.get(), &args, &error);

    std::ostringstream text;
    text << "shape " << shape[0] << ' ' << shape[1] << ' ' << shape[2] << ' ' << shape[3] << ", window at " << offset
         << " of " << rotary_dim << ", " << halyard::name_of(halyard::Pairing(pairing)) << " to "
         << halyard::name_of(halyard::Pairing(out_pairing)) << ", strides out";
    for (const std::int64_t stride : out.strides) {
        text << ' ' << stride;
    }
    text << " from " << out.start << ", " << angles.name() << ", axes " << n_axes << ", policy " << bad_position
         << ", positions "
         << (positions.is_absent               ? "absent"
             : positions.view.consecutive != 0 ? "consecutive"
                                               : "listed")
         << " of type " << positions.view.type << ": ";
    if (status != HALYARD_OK) {
        return text.str() + error.message;
    }
    if (const std::string fault = difference(dtype, expected, y.read()); !fault.empty()) {
        return text.str() + fault;
    }
    if (x.read() != x_before) {
        return text.str() + "x was written";
    }
    std::int32_t words[2] = {};
    const std::vector<char> word_bytes = word.read();
    std::memcpy(words, word_bytes.data(), sizeof(words));
    if (words[0] != 0 || words[1] != (has_word && is_refused ? HALYARD_ERROR_POSITION : 0)) {
        text << "the error word is " << words[1] << " and its neighbour " << words[0];
        return text.str();
    }
    return "";
}

}  // namespace gpu_test
