#include "native/work.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

using namespace bench;

namespace {

constexpr std::size_t memory_page = 4096;
constexpr std::int32_t n_positions = 32768;  // in the table, as of a model with a context of 32k
constexpr std::size_t tile_elements = 1 << 14;

std::size_t count_copies(const bench_work &work) {
    const bench_desc &desc = work.desc;
    if (!desc.cold) {
        return static_cast<std::size_t>(desc.layers);
    }
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const std::size_t ring =
        std::max<std::size_t>(256u << 20, last_level > 0 ? 4 * static_cast<std::size_t>(last_level) : 0);
    return ring / (work.tensor_bytes() * (desc.in_place ? 1 : 2)) + 1;
}

/// Those that are described, or else those of a decoding step (1 token), of a batch of requests at different places
/// (64), or of a prompt.
std::vector<std::int64_t> make_positions(const bench_work &work) {
    const bench_desc &desc = work.desc;
    std::vector<std::int64_t> positions(static_cast<std::size_t>(desc.tokens));
    std::iota(positions.begin(), positions.end(), std::max<std::int64_t>(desc.first_position, 0));
    std::minstd_rand random(2);
    if (work.is_shift()) {
        std::fill(positions.begin(), positions.end(), desc.moved_by);
    } else if (desc.first_position < 0 && desc.tokens <= 64) {
        std::generate(positions.begin(), positions.end(),
                      [&] { return static_cast<std::int64_t>(random() % n_positions); });
    }
    return positions;
}

/// Random ones. A shift's fill pages that are in random order.
std::vector<std::int64_t> make_slots(const bench_work &work) {
    const bench_desc &desc = work.desc;
    const std::int64_t size = work.is_shift() ? page_size : 1;
    std::vector<std::int64_t> pages(static_cast<std::size_t>(desc.n_slots / size)), slots;
    std::iota(pages.begin(), pages.end(), 0);
    std::minstd_rand random(3);
    std::shuffle(pages.begin(), pages.end(), random);
    for (std::int64_t t = 0; t < (desc.n_slots > 0 ? desc.tokens : 0); t++) {
        slots.push_back(pages[static_cast<std::size_t>(t / size)] * size + t % size);
    }
    return slots;
}

/// Elements that fill every x, repeated: numbers of either sign and absolute values from 0.5 to 2, any of e4m3's, or
/// groups with scales from 2^-8 to 2^-7 and any int8.
std::vector<char> make_tile(std::int64_t dtype) {
    std::vector<char> tile;
    std::minstd_rand random(is_records(dtype) ? 5 : 1);
    const auto add = [&](std::uint32_t word, std::int64_t n_bytes) {
        const auto *const bytes = reinterpret_cast<const char *>(&word);  // little-endian
        tile.insert(tile.end(), bytes, bytes + n_bytes);
    };
    while (tile.size() < tile_elements * static_cast<std::size_t>(bytes_of(dtype))) {
        const auto bits = static_cast<std::uint32_t>(random());
        const std::uint32_t sign = bits >> 30 & 1, up = bits >> 29 & 1;
        if (is_records(dtype)) {
            add(7 << 10 | (bits & 0x3ff), 2);
            for (std::int64_t i = 0; i < group_size; i++) {
                add(static_cast<std::uint32_t>(random()) >> 8, 1);
            }
        } else if (dtype == HALYARD_E4M3) {
            add(sign << 7 | (bits >> 8) % 0x70, 1);
        } else if (dtype == HALYARD_F16) {
            add(sign << 15 | (14 + up) << 10 | (bits & 0x3ff), 2);
        } else {  // bf16 is the upper half of f32
            const std::uint32_t word = sign << 31 | (126 + up) << 23 | (bits & 0x7fffff);
            add(dtype == HALYARD_F32 ? word : word >> 16, bytes_of(dtype));
        }
    }
    return tile;
}

const std::vector<char> &tile_of(std::int64_t dtype) {
    static std::map<std::int64_t, std::vector<char>> made;
    std::vector<char> &tile = made[dtype];
    return tile.empty() ? tile = make_tile(dtype) : tile;
}

/// Of f32, or of a sign, an exponent and a fraction in fewer bits. NaN and infinity are NaN.
double decode(std::int64_t dtype, const void *at) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, static_cast<std::size_t>(bytes_of(dtype)));
    if (dtype == HALYARD_F32 || dtype == HALYARD_BF16) {
        return std::bit_cast<float>(dtype == HALYARD_F32 ? word : word << 16);
    }
    const bool is_f16 = dtype == HALYARD_F16;
    const int n_fraction = is_f16 ? 10 : 3, bias = is_f16 ? 15 : 7, n_bits = is_f16 ? 16 : 8;
    const auto exponent = static_cast<int>(word >> n_fraction & ((1u << (n_bits - 1 - n_fraction)) - 1));
    const auto fraction = static_cast<double>(word & ((1u << n_fraction) - 1));
    if (is_f16 ? exponent == 31 : (word & 0x7f) == 0x7f) {
        return NAN;
    }
    const double magnitude =
        std::ldexp(fraction + (exponent > 0 ? 1 << n_fraction : 0), std::max(exponent, 1) - bias - n_fraction);
    return word >> (n_bits - 1) & 1 ? -magnitude : magnitude;
}

}  // namespace

bench_work::bench_work(const bench_desc &described)
    : desc(described), positions(make_positions(*this)), slots(make_slots(*this)) {
    lay_out();
    // Shared, so that the system does not choose larger pages for some works only.
    void *const data =
        mmap(nullptr, layout.n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (data == MAP_FAILED) {
        throw Failed("can't get " + std::to_string(layout.n_bytes >> 20) + " MiB of memory");
    }
    memory = static_cast<char *>(data);
    place();
}

bench_work::~bench_work() {
    subjects.clear();
    munmap(memory, layout.n_bytes);
}

void bench_work::lay_out() {
    // Tensors begin half a page apart rather than a whole one, because a CPU takes a load for one of the bytes just
    // stored where both addresses are the same but for the page. A road has more of them; pages of a shift's caches are
    // pages of memory.
    std::size_t gap = 0;
    const auto place = [&](std::int64_t n, std::int64_t each) {
        const std::size_t at = layout.n_bytes, n_bytes = static_cast<std::size_t>(n * each);
        layout.n_bytes += (n_bytes + memory_page - 1) / memory_page * memory_page + gap;
        return at;
    };
    const std::int64_t n = desc.tokens, row = desc.row_elements, bytes = bytes_of(desc.dtype);
    layout.positions = place(n, sizeof(std::int64_t));
    layout.cos = place(n * desc.rotary_dim / 2, sizeof(float));
    layout.sin = place(n * desc.rotary_dim / 2, sizeof(float));
    if (desc.n_slots > 0) {
        layout.slots = place(n, sizeof(std::int64_t));
        layout.scale = place(1, sizeof(float));
        layout.scratch = place(desc.n_slots / 8 + 1, 1);
    }
    gap = is_kv() ? 64 : is_shift() ? 0 : memory_page / 2;
    layout.rows = place(n * row, bytes);
    layout.outputs = is_kv() || desc.in_place ? layout.rows : place(n * row, bytes);
    for (std::int64_t p = 0; p < desc.n_parts; p++) {
        layout.weight[p] = desc.parts[p].norm_size > 0 ? place(desc.parts[p].norm_size, bytes) : 0;
    }
    for (std::int64_t p = 0; p < desc.n_parts; p++) {
        const bench_part &part = desc.parts[p];
        const auto in_row = [&](std::size_t at) {
            return View{at + static_cast<std::size_t>(part.offset * bytes), row, part.stride_head};
        };
        const auto dense = [&](std::int64_t n_rows, std::int64_t dtype) {
            const std::int64_t head = head_size(dtype, part.head_dim), elements = part.heads * head;
            return View{place(n_rows * elements, bytes_of(dtype)), elements, head};
        };
        layout.x[p] = in_row(layout.rows);
        if (is_kv()) {
            layout.y[p] = part.is_cached ? dense(desc.n_slots, desc.cache) : dense(n, desc.dtype);
        } else {
            layout.y[p] = in_row(layout.outputs);
        }
    }
    layout.n_copies = count_copies(*this);
    layout.step = layout.n_bytes - layout.rows;
    layout.n_bytes += (layout.n_copies - 1) * layout.step;
}

void bench_work::place() {
    std::copy_n(positions.begin(), desc.tokens, at<std::int64_t>(layout.positions));
    auto *cos = at<float>(layout.cos), *sin = at<float>(layout.sin);
    for (std::int64_t t = 0; t < desc.tokens; t++) {
        for (std::int64_t k = 0; k < desc.rotary_dim / 2; k++) {
            const auto exponent = static_cast<long double>(-2 * k) / static_cast<long double>(desc.rotary_dim);
            const auto position = static_cast<long double>(positions[static_cast<std::size_t>(t)]);
            const long double theta = position * std::pow(10000.0L, exponent);
            *cos++ = static_cast<float>(std::cos(theta));
            *sin++ = static_cast<float>(std::sin(theta));
        }
    }
    if (desc.n_slots > 0) {
        std::copy(slots.begin(), slots.end(), at<std::int64_t>(layout.slots));
        *at<float>(layout.scale) = scale;
    }
    std::minstd_rand random(4);
    std::uniform_real_distribution<float> drawn(-0.25f, 0.25f);
    for (std::int64_t p = 0; p < desc.n_parts; p++) {
        for (std::int64_t j = 0; j < desc.parts[p].norm_size; j++) {
            const float weight = (desc.unit_offset ? 0.0f : 1.0f) + drawn(random);
            at<std::uint16_t>(layout.weight[p])[j] =
                static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(weight) >> 16);
        }
    }
    for (std::size_t copy = 0; copy < layout.n_copies; copy++) {
        place_x(copy);
    }
}

void bench_work::place_x(std::size_t copy) const {
    const std::vector<char> &tile = tile_of(desc.dtype);
    for (std::size_t done = 0; done < tensor_bytes(); done += tile.size()) {
        std::memcpy(x(copy) + done, tile.data(), std::min(tile.size(), tensor_bytes() - done));
    }
}

void bench_work::reset() {
    next_copy = 0;
    if (is_kv()) {
        const std::size_t first = layout.y[0].at;  // all outputs follow
        std::memset(at<char>(first), 0xff, layout.n_bytes - first);
    } else if (!desc.in_place) {
        std::memset(y(0), 0xff, tensor_bytes());  // NaN in every storage
    }
    for (std::size_t copy = 0; copy < (is_shift() ? layout.n_copies : 1); copy++) {
        place_x(copy);
    }
}

std::int32_t bench_work::last_position() const {
    const std::int64_t last = *std::max_element(positions.begin(), positions.end());
    return static_cast<std::int32_t>(std::max<std::int64_t>(last, n_positions - 1));
}

std::vector<double> bench_work::read_head(std::int64_t p, std::int64_t token, std::int64_t head) const {
    const bench_part &part = desc.parts[p];
    const View &view = layout.y[p];
    const std::int64_t row = part.is_cached ? slots[static_cast<std::size_t>(token)] : token;
    const std::int64_t dtype = part.is_cached ? desc.cache : desc.dtype, n_bytes = bytes_of(dtype);
    const std::int64_t first = row * view.stride_token + head * view.stride_head;
    const char *const at =
        this->at<char>(view.at + (is_shift() ? layout.n_copies - 1 : 0) * layout.step) + first * n_bytes;
    std::vector<double> values;
    for (std::int64_t j = 0; j < part.head_dim; j++) {
        const char *const group = at + j / group_size * group_bytes;
        values.push_back(is_records(dtype)
                             ? decode(HALYARD_F16, group) * static_cast<signed char>(group[2 + j % group_size])
                             : decode(dtype, at + j * n_bytes));
    }
    return values;
}

template <typename Visit>
void bench_work::read_heads(const Visit &visit) const {
    const std::int64_t n_checked = std::min<std::int64_t>(desc.tokens, 64);
    for (std::int64_t i = 0; i < n_checked; i++) {
        const std::int64_t token = n_checked == 1 ? 0 : i * (desc.tokens - 1) / (n_checked - 1);
        for (std::int64_t p = 0; p < desc.n_parts; p++) {
            for (std::int64_t h = 0; h < desc.parts[p].heads; h++) {
                visit(read_head(p, token, h));
            }
        }
    }
}

void bench_work::keep() {
    kept_.clear();
    read_heads([&](const std::vector<double> &head) { kept_.push_back(head); });
}

double bench_work::difference() const {
    double largest = 0.0;
    auto right = kept_.begin();
    read_heads([&](const std::vector<double> &head) {
        const double squares = std::inner_product(right->begin(), right->end(), right->begin(), 0.0);
        const double root = std::sqrt(squares / static_cast<double>(head.size()));
        for (std::size_t j = 0; j < head.size(); j++) {
            const double error = std::fabs(head[j] - (*right)[j]) / root;
            largest = std::isnan(error) ? INFINITY : std::max(largest, error);
        }
        right++;
    });
    return largest;
}
