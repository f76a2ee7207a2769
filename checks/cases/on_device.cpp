#include "checks/cases/on_device.h"

#include "checks/cases/run_modes.h"
#include "checks/cuda_memory.h"
#include "checks/fields.h"

namespace cases {

namespace {

/// Copies of a case's regions in device memory.
class Mirror {
public:
    Mirror(const Case &drawn, const halyard_cuda_queue &queue) : drawn_(drawn) {
        for (const std::vector<char> &bytes : drawn.before) {
            regions_.push_back(
                std::make_unique<cuda_test::Memory>(queue, bytes.empty() ? std::vector<char>(16) : bytes));
        }
    }

    /// The device address that corresponds to a host address; NULL if no region holds the host address.
    void *data(const void *host) const {
        const Memory::Found found = drawn_.memory.find(host);
        return found.region < 0 ? nullptr : regions_[static_cast<std::size_t>(found.region)]->data(found.offset);
    }
    Images image() const {
        Images images;
        for (std::size_t i = 0; i < regions_.size(); i++) {
            images.push_back(regions_[i]->read());
            images.back().resize(drawn_.before[i].size());
        }
        return images;
    }

private:
    const Case &drawn_;
    std::vector<std::unique_ptr<cuda_test::Memory>> regions_;
};

/// Makes a case's run on a device, in the case's mirror. Returns the mirror's contents after the run. Throws if the run
/// is refused.
Images run_on_device(const Case &drawn, const Mirror &mirror, const halyard_cuda_queue &queue,
                     const cuda_test::Memory &words) {
    const Angles &angles = drawn.angles;
    RunStructs there(drawn.call);
    for (const fields::Place &place :
         fields::places(fields::of<halyard_run_args>(), &there.args, drawn.call.plan.n_tensors)) {
        if (place.field->kind == fields::Kind::data && place.field->name != std::string("scales")) {  // host memory
            place.write(mirror.data(place.pointer()));
        }
    }
    auto args = sized<halyard_cuda_run_args>();
    args.stream = queue.stream;
    args.bad_position = there.args.bad_position;
    args.positions = there.args.positions;
    args.n_tensors = there.args.n_tensors;
    args.x = there.x;
    args.y = there.y;
    args.kv = there.args.kv;
    for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
        there.x[i].device = there.y[i].device = queue.device;
    }
    if (args.bad_position == HALYARD_BAD_POSITION_ERROR) {
        args.error_word = static_cast<std::int32_t *>(words.data(4));
    }
    halyard::angle_source given;
    if (angles.is_given()) {
        given =
            angles.of_rows(mirror.data(angles.desc.cos_rows), mirror.data(angles.desc.sin_rows), angles.desc.n_rows);
    }
    const halyard::cuda_angles angles_there(queue, angles.is_given() ? given : angles.source());
    const halyard::cuda_plan plan(queue, drawn.call.plan, angles_there);
    auto error = sized<halyard_error>();
    if (halyard_run_cuda(plan.get(), &args, &error) != HALYARD_OK) {
        throw std::runtime_error(error.message);
    }
    return mirror.image();
}

/// Runs a case on the CPU as a device would, and returns the contents of memory after it. A device takes bad positions
/// as 0 and does not store a token with a bad position or slot, so such tokens' slots in memory become and stay -1.
Images run_on_host(Case &drawn) {
    drawn.memory.restore(drawn.before);
    Call &call = drawn.call;
    const std::int32_t policy = call.args.bad_position;
    const bool is_strict = policy == HALYARD_BAD_POSITION_ERROR;
    any_token(call, [&](std::int64_t b, std::int64_t t) {
        if (drawn.has_bad_slot(b, t) || (is_strict && call.kv_args.slots != nullptr && drawn.has_bad_position(b, t))) {
            write_number(call.slots.type, place_of_number(call.slots, b, t), -1);
        }
        return false;
    });
    const halyard::plan plan(call.plan);
    WatchedError error;
    call.args.bad_position = is_strict ? HALYARD_BAD_POSITION_IDENTITY : policy;
    const halyard_status status = run(plan.get(), call, RunMode::whole, 1, error);
    call.args.bad_position = policy;
    if (status != HALYARD_OK) {
        throw std::runtime_error("on the CPU: " + std::string(error.error.message));
    }
    return drawn.memory.image();
}

/// Whether the error word, words[1], reports a bad position or slot if there is one, and words[0] is unchanged.
bool is_word_right(const Case &drawn, const std::vector<char> &words) {
    const auto has = [&](auto what) {
        return any_token(drawn.call, [&](std::int64_t b, std::int64_t t) { return (drawn.*what)(b, t); });
    };
    const bool has_bad_position = has(&Case::has_bad_position), has_bad_slot = has(&Case::has_bad_slot);
    const std::int64_t word = read_number(HALYARD_INT32, words.data() + 4);
    const bool is_strict = drawn.call.args.bad_position == HALYARD_BAD_POSITION_ERROR;
    return read_number(HALYARD_INT32, words.data()) == 0 &&
           (word == 0
                ? !is_strict || (!has_bad_position && !has_bad_slot)
                : (word == HALYARD_ERROR_POSITION && has_bad_position) || (word == HALYARD_ERROR_SLOT && has_bad_slot));
}

}  // namespace

std::string fault_on_device(Case &drawn, const halyard_cuda_queue &queue) {
    const Mirror mirror(drawn, queue);
    const cuda_test::Memory words(queue, std::vector<char>(8));
    Images result;
    try {
        result = run_on_device(drawn, mirror, queue, words);
        if (!is_word_right(drawn, words.read())) {
            return "the error words are wrong" + drawn.text();
        }
        const Images expected = run_on_host(drawn);
        if (drawn.call.kv_args.slots != nullptr) {  // run_on_host has changed the slots in host memory
            const auto region = static_cast<std::size_t>(drawn.memory.find(drawn.call.slots.data).region);
            if (result[region] != drawn.before[region]) {
                return "slots were written" + drawn.text();
            }
            result[region] = expected[region];
        }
        return drawn.difference(expected, result);
    } catch (const std::exception &refused) {
        return refused.what() + drawn.text();
    }
}

std::string fault_of_kernel(const halyard::cuda::CudaKernel &kernel, const halyard_cuda_queue &queue,
                            oracle::Random &random) {
    const bool is_fast = kernel.layout != halyard::cuda::any_layout;
    const auto dtype = static_cast<std::int32_t>(kernel.dtype);
    Choice choice = Choice::of_rotations();
    choice.on_device = choice.has_bad = true;
    choice.any_range = random.one_in(2);
    choice.in_place = kernel.in_place;
    choice.n_tensors = 1;
    choice.step = is_fast ? kernel.layout.bytes : 1;
    choice.level[of_dtype] = dtype - HALYARD_F32;
    choice.level[of_strides] = 4;
    const auto any = [&] { return static_cast<std::int64_t>(random.in(0, 1)); };
    const auto pairing_of = [](halyard::Pairing of) { return of == halyard::Pairing::interleaved ? 1 : 0; };
    const std::int64_t from = kernel.layout.pairing ? pairing_of(*kernel.layout.pairing) : any();
    const std::int64_t to = kernel.in_place             ? from
                            : kernel.layout.out_pairing ? pairing_of(*kernel.layout.out_pairing)
                                                        : any();
    choice.level[of_pairing] = static_cast<int>(from == to ? from : 2 + from);

    const std::int64_t fast_pairs[] = {8, 16, 24, 32, 40, 48, 64, 80, 128};
    const std::int64_t unit = is_fast ? kernel.layout.bytes / oracle::element_bytes(dtype) : 1;
    choice.rotary_dim = 2 * (kernel.layout.bytes == 16 ? random.one_of(fast_pairs)
                             : is_fast                 ? 2 * random.in(1, 35)
                                                       : random.in(1, 70));
    // Kernels copy unrotated columns in blocks of 8, so cases have both fewer and more than 8 such columns.
    const auto beside = [&] { return random.one_in(2) ? 0 : random.in(1, random.one_in(3) ? 20 : 3) * unit; };
    choice.rotary_offset = beside();
    choice.head_dim = choice.rotary_offset + choice.rotary_dim + beside();
    const std::int64_t n_tokens = random.one_in(8)   ? random.in(120, 300)  // > 128: a block checks 128 positions
                                  : random.one_in(4) ? random.in(60, 70)
                                                     : random.in(1, 5);
    const std::int64_t most_heads = n_tokens > 70 ? 2 : random.one_in(4) ? 70 : 9;
    choice.shape = {random.in(1, 3), n_tokens, random.in(1, most_heads)};
    Draw draw(random);
    Case drawn(draw, choice);
    return fault_on_device(drawn, queue);
}

std::string fault_of_kernel(const halyard::cuda::KvKernel &kernel, const halyard_cuda_queue &queue,
                            oracle::Random &random, int call_number) {
    Choice choice;
    choice.on_device = true;
    choice.kernel = &kernel;
    choice.head_dim = kernel.head_dim;
    choice.rotary_dim = kernel.rotary_dim;
    choice.rotary_offset = kernel.rotary_offset;
    choice.level[of_dtype] = static_cast<std::int32_t>(kernel.dtype) - HALYARD_F32;
    choice.level[of_pairing] = kernel.pairing == halyard::Pairing::half ? 0 : 1;
    choice.step = 16;
    choice.has_bad = call_number % 2 == 1;
    choice.n_tensors = call_number % 3 == 0 ? HALYARD_MAX_TENSORS : 0;
    choice.level[of_layout] = call_number % 4 == 1 ? 1 + call_number / 4 % 3 : -1;
    Draw draw(random);
    Case drawn(draw, choice);
    return fault_on_device(drawn, queue);
}

}  // namespace cases
