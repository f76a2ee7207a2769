#include "checks/gpu_checker.h"

#include "checks/road_oracle.h"
#include "checks/scene/on_device.h"

#include <cmath>
#include <cstring>
#include <sstream>

namespace gpu_test {

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

std::string check_gpu_run(const halyard::gpu::GpuKernel &kernel, const halyard_gpu_queue &queue, oracle::Random &random,
                          std::int64_t n_tokens) {
    const bool is_fast = kernel.layout != halyard::gpu::any_layout, is_large = n_tokens > 0;
    const auto dtype = static_cast<std::int32_t>(kernel.dtype);
    using namespace scenes;
    Choice choice = Choice::of_rotations();
    choice.on_device = choice.has_bad = true;
    choice.has_gaps = random.one_in(2);  // then hardly any run has good positions alone
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
    choice.level[of_turn] = static_cast<int>(from == to ? from : 2 + from);

    const std::int64_t fast_pairs[] = {8, 16, 24, 32, 40, 48, 64, 80, 128};
    const std::int64_t unit = is_fast ? kernel.layout.bytes / oracle::element_bytes(dtype) : 1;
    choice.rotary_dim = 2 * (kernel.layout.bytes == 16 ? random.one_of(fast_pairs)
                             : is_fast                 ? 2 * random.in(1, 35)
                                                       : random.in(1, 70));
    // What is not rotated is copied by blocks of 8 columns.
    const auto beside = [&] { return random.one_in(2) ? 0 : random.in(1, random.one_in(3) ? 20 : 3) * unit; };
    choice.rotary_offset = beside();
    choice.head_dim = choice.rotary_offset + choice.rotary_dim + beside();
    if (!is_large) {  // positions are checked by blocks of 128 tokens
        n_tokens = random.one_in(8) ? random.in(120, 300) : random.one_in(4) ? random.in(60, 70) : random.in(1, 5);
    }
    const std::int64_t most_heads = is_large ? 9 : n_tokens > 70 ? 2 : random.one_in(4) ? 70 : 9;
    choice.shape = {random.in(1, 3), n_tokens, random.in(1, most_heads)};
    Draw draw(random);
    Scene scene(draw, choice);
    return fault_on_device(scene, queue);
}

}  // namespace gpu_test
