#include "checks/kernel_checker.h"

#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "checks/sized.h"
#include "halyard/halyard.hpp"
#include "core/plan.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <tuple>
#include <utility>

namespace {

using halyard::Kernel;
using halyard::Layout;
using halyard::Pairing;
using halyard::Place;
using oracle::Random;
using oracle::Values;

constexpr int max_heads = 5, max_tokens = 9, max_rows = 12;
constexpr std::int64_t float_bytes = sizeof(float);
constexpr std::int64_t island = 2 * GuardedMemory::page;  // the distance of accessible pages, in bytes

// ---- The kernel, watched -------------------------------------------------------------------------------------------

/// Stands between the runtime and the kernel: counts its calls, and hands it a list of rows that ends at a guard page.
/// A kernel has no context, so this is static.
struct Spy {
    static inline halyard_rotate_kernel *kernel = nullptr;
    static inline std::int64_t n_calls = 0;
    static inline std::int64_t n_other_calls = 0;

    static int call(halyard_buffer *row_of_token, halyard_buffer *cos_rows, halyard_buffer *sin_rows,
                    std::uint32_t sin_sign, halyard_buffer *x, halyard_buffer *y) {
        static const GuardedMemory memory(1);
        const auto n_bytes = static_cast<std::size_t>(row_of_token->dim[0].extent) * sizeof(std::int32_t);
        char *rows = memory.end() - n_bytes;
        std::memcpy(rows, row_of_token->host, n_bytes);
        row_of_token->host = reinterpret_cast<std::uint8_t *>(rows);
        n_calls++;
        return kernel(row_of_token, cos_rows, sin_rows, sin_sign, x, y);
    }

    static int call_other(halyard_buffer *, halyard_buffer *, halyard_buffer *, std::uint32_t, halyard_buffer *,
                          halyard_buffer *) {
        n_other_calls++;
        return 0;
    }
};

/// Whether two kernels serve the same tasks, and so differ only in their schedules.
bool serve_the_same(const Kernel &a, const Kernel &b) {
    const auto tasks = [](const Kernel &kernel) {
        return std::tuple(kernel.target, kernel.pairing, kernel.out_pairing, kernel.dtype, kernel.place, kernel.packed,
                          kernel.function == nullptr);
    };
    return tasks(a) == tasks(b);
}

/// Plans that call the kernel through Spy wherever the runtime would choose it, and only there.
class PlanMaker {
public:
    explicit PlanMaker(const Kernel &kernel) : kernel_(kernel), watched_(kernel) {
        const auto known = halyard::kernels();
        listed_ = std::any_of(known.begin(), known.end(), [&](const Kernel &k) { return serve_the_same(k, kernel); });
        Spy::kernel = kernel.function;
        watched_.function = kernel.function == nullptr ? nullptr : Spy::call;
        other_.function = Spy::call_other;
    }

    halyard_plan make(const halyard_tensor_desc &tensor, std::int64_t rotary_dim, bool inverse) const {
        halyard::plan_desc desc(rotary_dim, {tensor},
                                inverse ? halyard::direction::inverse : halyard::direction::forward);
        desc.target = listed_ ? halyard::name_of(kernel_.target) : "reference";
        halyard_plan plan = *halyard::plan(desc).get();
        auto &[out_of_place, in_place, non_temporal] = plan.tensors[0].kernels;
        if (kernel_.place == Place::non_temporal) {  // trials are small, so that the runtime would never choose it
            std::copy(std::begin(non_temporal), std::end(non_temporal), out_of_place);
        }
        for (auto *const kernels : {&out_of_place, &in_place, &non_temporal}) {
            for (const Kernel *&kernel : *kernels) {
                kernel = serve_the_same(*kernel, kernel_) || !listed_ ? &watched_ : &other_;
            }
        }
        return plan;
    }

    bool is_chosen(const halyard_plan &plan, bool in_place, Layout layout) const {
        const Place place = in_place ? Place::in_place : Place::out_of_place;
        return &plan.tensors[0].kernel(place, layout) == &watched_;
    }

    bool is_reference() const { return kernel_.function == nullptr; }

private:
    const Kernel &kernel_;
    Kernel watched_, other_ = {};
    bool listed_;
};

// ---- What to try ---------------------------------------------------------------------------------------------------

struct Trial {
    std::int32_t dtype = 0;
    std::int64_t n_pairs = 0, offset = 0;
    bool in_place = false, inverse = false;
    bool against_exact = false;  // whether the expected result is also compared with exact arithmetic, which is slow
    halyard_tensor_desc desc = halyard::make_struct<halyard_tensor_desc>();
    halyard_tensor x = halyard::make_struct<halyard_tensor>(), y = x;
    std::int64_t n_rows = 0, stride_row = 0;
    std::int32_t *rows = nullptr;                         // for each token of each batch row
    const char *cos_rows = nullptr, *sin_rows = nullptr;  // floats, at any address

    std::int64_t row_of(std::int64_t batch, std::int64_t token) const { return rows[batch * x.shape[1] + token]; }

    float in_row(const char *first, std::int64_t row, std::int64_t k) const {
        return halyard::read_word<float>(first + float_bytes * (row * stride_row + k));
    }
};

char *element(const halyard_tensor &tensor, std::int64_t batch, std::int64_t token, std::int64_t head, std::int64_t i) {
    const std::int64_t offset =
        batch * tensor.strides[0] + token * tensor.strides[1] + head * tensor.strides[2] + i * tensor.strides[3];
    return static_cast<char *>(tensor.data) + offset * oracle::element_bytes(tensor.dtype);
}

/// Where member 0 or 1 of pair k lies in the head.
std::int64_t index_of(const Trial &trial, std::int32_t pairing, std::int64_t k, int member) {
    return trial.offset + (pairing == HALYARD_PAIRING_HALF ? k + member * trial.n_pairs : 2 * k + member);
}

template <typename Function>
void for_each_head(const Trial &trial, Function function) {
    for (std::int64_t batch = 0; batch < trial.x.shape[0]; batch++) {
        for (std::int64_t token = 0; token < trial.x.shape[1]; token++) {
            for (std::int64_t head = 0; head < trial.x.shape[2]; head++) {
                function(batch, token, head);
            }
        }
    }
}

std::string describe(const Kernel &kernel, const Trial &trial) {
    std::ostringstream text;
    text << kernel.name << ": " << halyard::name_of_dtype(trial.dtype) << ", "
         << halyard::name_of(Pairing(trial.desc.pairing)) << " -> " << halyard::name_of(Pairing(trial.desc.out_pairing))
         << (trial.in_place ? ", in place" : ", out of place") << (trial.inverse ? ", inverse" : ", forward")
         << ", n_pairs " << trial.n_pairs << " at " << trial.offset << ", " << trial.n_rows << " rows, shape";
    const auto list = [&](const std::int64_t(&values)[4]) {
        std::for_each(values, values + 4, [&](std::int64_t value) { text << ' ' << value; });
    };
    list(trial.x.shape);
    for (const halyard_tensor *tensor : {&trial.x, &trial.y}) {
        text << (tensor == &trial.x ? ", strides" : " ->");
        list(tensor->strides);
        text << " at address % 64 = " << reinterpret_cast<std::uintptr_t>(tensor->data) % 64;
    }
    return text.str();
}

/// Memory for one tensor, and the part that the tensor uses.
struct Memory {
    GuardedMemory anywhere{1024};
    GuardedMemory islands{2 * max_heads * max_tokens, GuardedMemory::Pages::every_other};
    const GuardedMemory *used = nullptr;
    char *first = nullptr, *last = nullptr;  // the tensor and a band on either side
    Image image;
};

/// What the process that checks tells the process that waits for it.
struct Message {
    TrialText trial;  // the trial that is being made
    char fault[1400];
    std::int64_t n_runs, n_outputs;
};

class Checker {
public:
    Checker(const Kernel &kernel, std::uint64_t seed, TrialText &text)
        : kernel_(kernel), plans_(kernel), random_(seed), text_(text) {}

    KernelReport run(int effort) {
        for (std::int64_t n_pairs = 1; n_pairs <= 99 && report_.fault.empty(); n_pairs++) {
            // All counts up to 97, and two more for which kernels are specialised.
            const std::int64_t n = n_pairs == 98 ? 128 : n_pairs == 99 ? 256 : n_pairs;
            for (int i = 0; i < effort && report_.fault.empty(); i++) {
                try_once(n);
            }
        }
        return report_;
    }

private:
    const Kernel &kernel_;
    const PlanMaker plans_;
    Random random_;
    TrialText &text_;
    KernelReport report_;
    std::int64_t n_trials_ = 0, n_placed_ = 0;
    Memory x_, y_;
    GuardedMemory cos_{64}, sin_{64}, positions_{1};
    GuardedMemory cos_islands_{2 * max_rows, GuardedMemory::Pages::every_other};
    GuardedMemory sin_islands_{2 * max_rows, GuardedMemory::Pages::every_other};
    Image cos_image_, sin_image_;

    void try_once(std::int64_t n_pairs) {
        Trial trial;
        draw_task(trial, n_pairs);
        const halyard_plan plan = plans_.make(trial.desc, 2 * trial.n_pairs, trial.inverse);
        bool suitable = false;
        const bool on_islands = random_.one_in(6);
        for (int i = 0; i < 100 && !suitable; i++) {
            draw_strides(trial, on_islands);
            suitable = plans_.is_chosen(plan, trial.in_place, layout_of(trial));
        }
        if (!suitable) {
            return;  // a kernel that reads words of two elements can't serve odd halves
        }
        place_tensor(trial.x, x_, on_islands, 1);
        if (trial.in_place) {
            trial.y = trial.x;
        } else {
            place_tensor(trial.y, y_, on_islands, on_lines() ? 64 : 1);
        }
        draw_rows(trial);
        fill(trial);
        expect(trial);
        std::snprintf(text_, sizeof(text_), "%s", describe(kernel_, trial).c_str());
        rotate(trial, plan);
        compare(trial);
    }

    // ---- Drawing ----

    /// Whether the kernel serves only outputs whose heads begin on cache lines of 64 bytes.
    bool on_lines() const { return kernel_.place == Place::non_temporal; }
    std::int64_t line_elements() const { return 64 / oracle::element_bytes(dtype()); }
    std::int32_t dtype() const { return static_cast<std::int32_t>(kernel_.dtype); }
    static std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
        return (n + multiple - 1) / multiple * multiple;
    }

    void draw_task(Trial &trial, std::int64_t n_pairs) {
        trial.dtype = plans_.is_reference() ? static_cast<std::int32_t>(random_.in(1, 3)) : dtype();
        trial.in_place = plans_.is_reference() ? random_.one_in(2) : kernel_.place == Place::in_place;
        trial.inverse = random_.one_in(2);
        trial.against_exact = random_.one_in(4);
        trial.offset = random_.one_in(2) ? 0 : random_.in(1, 9);
        trial.n_pairs = n_pairs;
        if (on_lines()) {
            trial.offset *= line_elements();
            n_pairs = kernel_.out_pairing == Pairing::half ? round_up(n_pairs, line_elements()) : n_pairs;
            trial.n_pairs = n_pairs;
        }
        trial.desc.dtype = trial.dtype;
        trial.desc.head_dim = trial.offset + 2 * n_pairs + (random_.one_in(2) ? 0 : random_.in(1, 9));
        trial.desc.rotary_offset = trial.offset;
        if (!kernel_.pairing) {
            trial.desc.pairing = static_cast<std::int32_t>(random_.in(1, 2));
            trial.desc.out_pairing = trial.in_place ? trial.desc.pairing : static_cast<std::int32_t>(random_.in(1, 2));
        } else {
            trial.desc.pairing = static_cast<std::int32_t>(*kernel_.pairing);
            trial.desc.out_pairing = static_cast<std::int32_t>(*kernel_.out_pairing);
        }
        // Counts of tokens and heads take turns, so that each comes up with each.
        const std::int64_t turn = n_trials_++;
        const std::int64_t shape[4] = {random_.one_in(8) ? 2 : 1, turn / (max_heads + 1) % (max_tokens + 1),
                                       turn % (max_heads + 1), trial.desc.head_dim};
        for (halyard_tensor *tensor : {&trial.x, &trial.y}) {
            tensor->dtype = trial.dtype;
            tensor->device = HALYARD_CPU;
            std::copy_n(shape, 4, tensor->shape);
        }
    }

    void draw_strides(Trial &trial, bool on_islands) {
        const bool even = random_.one_in(2), dense = !random_.one_in(3);
        for (halyard_tensor *tensor : {&trial.x, &trial.y}) {
            if (on_islands) {
                draw_strides_on_islands(*tensor, dense);
            } else {
                draw_strides(*tensor, tensor == &trial.y && on_lines() ? line_elements() : even ? 2 : 1, dense);
            }
        }
        if (!trial.in_place && random_.one_in(12)) {
            trial.x.strides[random_.in(0, 2)] = 0;  // an input may be broadcast
        }
        if (trial.in_place) {
            std::copy_n(trial.x.strides, 4, trial.y.strides);
        }
    }

    /// Dimensions in any order, with gaps and either sign.
    void draw_strides(halyard_tensor &tensor, std::int64_t multiple, bool dense) {
        int order[4] = {3, 0, 1, 2};  // innermost first
        for (int i = 3; i > (dense ? 1 : 0); i--) {
            std::swap(order[i], order[random_.in(dense ? 1 : 0, i)]);
        }
        static constexpr std::int64_t gaps[] = {0, 0, 0, 1, 2, 3};
        std::int64_t reach = 1;
        for (const int d : order) {
            if (dense && d == 3) {
                tensor.strides[d] = 1;
            } else if (tensor.shape[d] <= 1) {
                tensor.strides[d] = random_.in(-9, 9);  // must be ignored
                continue;
            } else {
                const std::int64_t least = reach + random_.one_of(gaps);
                const std::int64_t stride = round_up(least, multiple);
                tensor.strides[d] = random_.one_in(4) ? -stride : stride;
            }
            reach += std::abs(tensor.strides[d]) * (tensor.shape[d] - 1);
        }
    }

    /// Puts each head on a page of its own, between guard pages.
    void draw_strides_on_islands(halyard_tensor &tensor, bool dense) {
        tensor.shape[0] = 1;
        const std::int64_t bytes = oracle::element_bytes(tensor.dtype);
        const bool fits_twice = 2 * tensor.shape[3] * bytes <= static_cast<std::int64_t>(GuardedMemory::page);
        tensor.strides[3] = dense || !fits_twice ? 1 : 2;
        const bool by_token = random_.one_in(2);
        tensor.strides[by_token ? 1 : 2] = island / bytes;
        tensor.strides[by_token ? 2 : 1] = island / bytes * (by_token ? tensor.shape[1] : tensor.shape[2]);
        tensor.strides[0] = random_.in(-9, 9);
    }

    /// Which layout decides between kernels, worked out apart from the runtime.
    static Layout layout_of(const Trial &trial) {
        bool dense = true, even = true;
        for (const halyard_tensor *tensor : {&trial.x, &trial.y}) {
            dense = dense && tensor->strides[3] == 1;
            for (int d = 0; d < 3; d++) {
                even = even && (tensor->shape[d] < 2 || tensor->strides[d] % 2 == 0);
            }
        }
        return !dense ? Layout::strided : even ? Layout::even : Layout::dense;
    }

    /// Finds a place that touches a guard page at either end, or is misaligned by each number of bytes in turn.
    void place_tensor(halyard_tensor &tensor, Memory &place, bool on_islands, std::uintptr_t alignment) {
        const std::int64_t bytes = oracle::element_bytes(tensor.dtype);
        std::int64_t low = 0, high = bytes;  // in bytes, from element 0
        for (int d = 0; d < 4; d++) {
            const std::int64_t reach = tensor.strides[d] * std::max<std::int64_t>(tensor.shape[d] - 1, 0) * bytes;
            (reach < 0 ? low : high) += reach;
        }
        const GuardedMemory &memory = on_islands ? place.islands : place.anywhere;
        place.used = &memory;
        constexpr std::int64_t band = 256;
        char *start = nullptr;
        if (on_islands) {
            const std::int64_t head = ((tensor.shape[3] - 1) * tensor.strides[3] + 1) * bytes;
            start = memory.begin() + (random_.one_in(2) ? 0 : static_cast<std::int64_t>(GuardedMemory::page) - head);
        } else {
            switch (random_.in(0, 3)) {
            case 0: start = memory.begin(); break;
            case 1: start = memory.end() - (high - low); break;
            default: start = memory.begin() + band + n_placed_++ % 64; break;
            }
        }
        start -= reinterpret_cast<std::uintptr_t>(start - low) % alignment;
        tensor.data = start - low;
        place.first = std::max(memory.begin(), start - band);
        place.last = std::min(memory.end(), start + (high - low) + band);
    }

    void draw_rows(Trial &trial) {
        const std::int64_t n = trial.n_pairs;
        trial.n_rows = random_.in(1, max_rows);
        // Positions lie right below a guard page.
        const std::int64_t n_tokens = trial.x.shape[0] * trial.x.shape[1];
        trial.rows = reinterpret_cast<std::int32_t *>(positions_.end()) - n_tokens;
        std::generate_n(trial.rows, n_tokens,
                        [&] { return static_cast<std::int32_t>(random_.in(0, trial.n_rows - 1)); });
        char *cos = nullptr, *sin = nullptr;
        if (random_.one_in(6)) {
            trial.stride_row = island / float_bytes;
            const bool at_end = random_.one_in(2);
            const std::int64_t at = at_end ? static_cast<std::int64_t>(GuardedMemory::page) - n * float_bytes : 0;
            cos = cos_islands_.begin() + at;
            sin = sin_islands_.begin() + at;
        } else if (random_.one_in(4)) {
            // cos and sin of a row lie side by side, as halyard_make_rows writes them.
            trial.stride_row = 2 * n;
            cos = cos_.end() - trial.n_rows * 2 * n * float_bytes;
            sin = cos + n * float_bytes;
        } else {
            trial.stride_row = n + (random_.one_in(2) ? 0 : random_.in(1, 5));
            const std::int64_t n_bytes = ((trial.n_rows - 1) * trial.stride_row + n) * float_bytes;
            const bool at_end = random_.one_in(2);
            cos = at_end ? cos_.end() - n_bytes : cos_.begin();
            sin = at_end ? sin_.end() - n_bytes : sin_.begin();
            // Floats at any address: a few bytes from the guard page.
            const std::int64_t shift = random_.one_in(2) ? random_.in(1, float_bytes - 1) : 0;
            cos += at_end ? -shift : shift;
            sin += at_end ? -shift : shift;
        }
        trial.cos_rows = cos;
        trial.sin_rows = sin;
        const std::int64_t kind = random_.in(0, 9);
        for (std::int64_t row = 0; row < trial.n_rows; row++) {
            for (std::int64_t k = 0; k < n; k++) {
                const std::int64_t at = (row * trial.stride_row + k) * float_bytes;
                draw_angle(kind, cos + at, sin + at);
            }
        }
    }

    void draw_angle(std::int64_t kind, char *cos, char *sin) {
        if (kind < 4) {
            // Near the unit circle, so that cos and sin are neither special nor of few bits.
            const double s = random_.unit();
            const float on_circle[2] = {static_cast<float>((random_.one_in(2) ? 1 : -1) * std::sqrt(1 - s * s)),
                                        static_cast<float>(s)};
            std::memcpy(cos, &on_circle[0], sizeof(float));
            std::memcpy(sin, &on_circle[1], sizeof(float));
            return;
        }
        const Values values = kind < 6 ? Values::short_mantissa : kind < 8 ? Values::any_bits : Values::special;
        for (char *value : {cos, sin}) {
            oracle::write_word(HALYARD_F32, value, oracle::random_word(random_, HALYARD_F32, values));
        }
    }

    void fill(const Trial &trial) {
        for (const Memory *place : {&x_, &y_}) {
            if (place == &y_ && trial.in_place) {
                break;
            }
            place->used->for_each_stretch(place->first, place->last, [&](char *from, char *to) {
                for (; to - from >= 8; from += 8) {
                    const std::uint64_t poison = random_.bits();
                    std::memcpy(from, &poison, 8);
                }
                std::memset(from, 0xa5, static_cast<std::size_t>(to - from));
            });
        }
        static constexpr Values kinds[] = {Values::ordinary, Values::ordinary, Values::any_bits, Values::special,
                                           Values::short_mantissa};
        const Values values = random_.one_of(kinds);
        for_each_head(trial, [&](std::int64_t batch, std::int64_t token, std::int64_t head) {
            for (std::int64_t i = 0; i < trial.desc.head_dim; i++) {
                oracle::write_word(trial.dtype, element(trial.x, batch, token, head, i),
                                   oracle::random_word(random_, trial.dtype, values));
            }
        });
    }

    // ---- Judging ----

    Memory &output(const Trial &trial) { return trial.in_place ? x_ : y_; }

    oracle::Pair<float> read_pair(const Trial &trial, std::int64_t batch, std::int64_t token, std::int64_t head,
                                  std::int64_t k) const {
        const auto read = [&](int member) {
            const char *at = element(trial.x, batch, token, head, index_of(trial, trial.desc.pairing, k, member));
            return oracle::widen(trial.dtype, oracle::read_word(trial.dtype, at));
        };
        return {read(0), read(1)};
    }

    /// Takes images of all memory, and writes the right outputs into the image of the output.
    void expect(const Trial &trial) {
        x_.image.take(*x_.used, x_.first, x_.last);
        if (!trial.in_place) {
            y_.image.take(*y_.used, y_.first, y_.last);
        }
        const bool islands = trial.cos_rows >= cos_islands_.begin() && trial.cos_rows < cos_islands_.end();
        const GuardedMemory &cos = islands ? cos_islands_ : cos_, &sin = islands ? sin_islands_ : sin_;
        if (n_trials_ % 8 == 0) {  // only now and then, because they are large
            cos_image_.take(cos, cos.begin(), cos.end());
            sin_image_.take(sin, sin.begin(), sin.end());
        }

        Image &image = output(trial).image;
        for_each_head(trial, [&](std::int64_t batch, std::int64_t token, std::int64_t head) {
            const auto copy = [&](std::int64_t first, std::int64_t last) {
                for (std::int64_t i = first; i < last; i++) {
                    oracle::write_word(trial.dtype, image.at(element(trial.y, batch, token, head, i)),
                                       oracle::read_word(trial.dtype, element(trial.x, batch, token, head, i)));
                }
            };
            copy(0, trial.offset);
            copy(trial.offset + 2 * trial.n_pairs, trial.desc.head_dim);
            const std::int64_t row = trial.row_of(batch, token);
            for (std::int64_t k = 0; k < trial.n_pairs; k++) {
                const float cos = trial.in_row(trial.cos_rows, row, k);
                const float forward = trial.in_row(trial.sin_rows, row, k), sin = trial.inverse ? -forward : forward;
                const auto x = read_pair(trial, batch, token, head, k);
                const auto y = oracle::rotate(x, cos, sin);
                const auto expect_member = [&](int member, float value) {
                    const char *at =
                        element(trial.y, batch, token, head, index_of(trial, trial.desc.out_pairing, k, member));
                    oracle::write_word(trial.dtype, image.at(at), oracle::narrow(trial.dtype, value));
                };
                expect_member(0, y.x0);
                expect_member(1, y.x1);
                if (trial.against_exact) {
                    check_bound(trial, x, cos, sin, y);
                }
            }
        });
    }

    /// Checks that the expected output is right, too.
    void check_bound(const Trial &trial, oracle::Pair<float> x, float cos, float sin, oracle::Pair<float> y) {
        const long double c = cos, s = sin;
        if (!std::isfinite(x.x0) || !std::isfinite(x.x1) || !std::isfinite(cos) || !std::isfinite(sin)) {
            return;
        }
        const auto exact = oracle::rotate_exactly({x.x0, x.x1}, c, s);
        const auto check = [&](float got, long double want, long double magnitude) {
            if (magnitude * (1 + 0x1p-22L) >= oracle::overflow_threshold(trial.dtype)) {
                return;  // rounding may overflow
            }
            const float stored = oracle::widen(trial.dtype, oracle::narrow(trial.dtype, got));
            if (!(std::fabs(stored - want) <= oracle::kernel_bound(trial.dtype, magnitude, want))) {
                char text[200];
                std::snprintf(text, sizeof(text), ": the reference gives %a for x = %a, %a, cos = %a, sin = %a", stored,
                              x.x0, x.x1, cos, sin);
                fail(trial, text);
            }
        };
        check(y.x0, exact.x0, std::fabs(x.x0 * c) + std::fabs(x.x1 * s));
        check(y.x1, exact.x1, std::fabs(x.x1 * c) + std::fabs(x.x0 * s));
    }

    void rotate(const Trial &trial, const halyard_plan &plan) {
        const auto positions = halyard::positions(trial.rows, {trial.x.shape[0], trial.x.shape[1]});
        const auto source = halyard::angle_source::given(trial.cos_rows, trial.sin_rows, halyard::dtype::f32,
                                                         trial.n_rows, trial.stride_row, 2 * trial.n_pairs);
        auto args = sized<halyard_run_args>();
        args.angles = source.get();
        args.positions = &positions;
        args.x = &trial.x;
        args.y = &trial.y;
        auto error = sized<halyard_error>();
        Spy::n_calls = Spy::n_other_calls = 0;
        const halyard_status status = halyard_run(&plan, &args, &error);
        report_.n_runs++;
        const bool empty = trial.x.shape[1] == 0 || trial.x.shape[2] == 0;
        if (status != HALYARD_OK) {
            fail(trial, std::string(": ") + error.message);
        } else if (Spy::n_other_calls > 0) {
            fail(trial, ": another kernel was called");
        } else if (!plans_.is_reference() && !empty && Spy::n_calls == 0) {
            fail(trial, ": the kernel was not called");
        }
    }

    void compare(const Trial &trial) {
        Image &image = output(trial).image;
        for_each_head(trial, [&](std::int64_t batch, std::int64_t token, std::int64_t head) {
            for (std::int64_t i = trial.offset; i < trial.offset + 2 * trial.n_pairs; i++) {
                const char *at = element(trial.y, batch, token, head, i);
                const std::uint32_t got = oracle::read_word(trial.dtype, at);
                const std::uint32_t want = oracle::read_word(trial.dtype, image.at(at));
                report_.n_outputs++;
                if (got == want) {
                    continue;
                }
                if (oracle::is_nan(trial.dtype, got) && oracle::is_nan(trial.dtype, want)) {
                    oracle::write_word(trial.dtype, image.at(at), got);
                    continue;
                }
                char text[200];
                std::snprintf(text, sizeof(text), ": y[%lld, %lld, %lld, %lld] is 0x%x, but should be 0x%x",
                              static_cast<long long>(batch), static_cast<long long>(token),
                              static_cast<long long>(head), static_cast<long long>(i), got, want);
                fail(trial, text);
            }
        });
        if (const char *at = output(trial).image.first_difference()) {
            char text[200];
            std::snprintf(text, sizeof(text), ": wrote outside its outputs, %td bytes from y's first element",
                          at - static_cast<char *>(trial.y.data));
            fail(trial, text);
        }
        if (!trial.in_place && x_.image.first_difference() != nullptr) {
            fail(trial, ": wrote to its input");
        }
        if (n_trials_ % 8 == 0 &&
            (cos_image_.first_difference() != nullptr || sin_image_.first_difference() != nullptr)) {
            fail(trial, ": wrote to its rows");
        }
    }

    void fail(const Trial &trial, const std::string &fault) {
        if (report_.fault.empty()) {
            report_.fault = describe(kernel_, trial) + fault;
        }
    }
};

}  // namespace

KernelReport check_kernel(const Kernel &kernel, std::uint64_t seed, int effort, unsigned limit_seconds) {
    return check_apart(kernel.name, limit_seconds,
                       [&](TrialText &text) { return Checker(kernel, seed, text).run(effort); });
}

KernelReport check_apart(const std::string &name, unsigned limit_seconds,
                         const std::function<KernelReport(TrialText &)> &check) {
    void *const shared = mmap(nullptr, sizeof(Message), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        throw std::bad_alloc();
    }
    auto &message = *static_cast<Message *>(shared);
    std::snprintf(message.trial, sizeof(message.trial), "%s, before the first trial", name.c_str());
    const pid_t child = fork();
    if (child == 0) {
        for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
            std::signal(signal, SIG_DFL);  // instead of what Catch2 does on a signal
        }
        alarm(limit_seconds);
        const KernelReport report = check(message.trial);
        std::snprintf(message.fault, sizeof(message.fault), "%s", report.fault.c_str());
        message.n_runs = report.n_runs;
        message.n_outputs = report.n_outputs;
        _exit(0);
    }
    int status = 0;
    const bool ended = child > 0 && waitpid(child, &status, 0) == child;
    KernelReport report = {message.fault, message.n_runs, message.n_outputs};
    if (!ended) {
        report.fault = "no process could be started";
    } else if (limit_seconds > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        report.fault = std::string(message.trial) + ": takes more than " + std::to_string(limit_seconds) + " seconds";
    } else if (WIFSIGNALED(status)) {
        report.fault = std::string(message.trial) + ": crashes with signal " + std::to_string(WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
        report.fault = std::string(message.trial) + ": ends the process";
    }
    munmap(shared, sizeof(Message));
    return report;
}
