#include "server/placed.h"

#include "checks/oracle.h"
#include "checks/road_oracle.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <system_error>

namespace halyard::bench {

namespace {

constexpr std::size_t memory_page = 4096;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

std::size_t count_copies(const Work &work) {
    if (work.cold_table) {
        return static_cast<std::size_t>(n_cold_positions / work.n_tokens);
    }
    if (!work.cold) {
        return static_cast<std::size_t>(work.n_layers);
    }
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const std::size_t ring =
        std::max<std::size_t>(256u << 20, last_level > 0 ? 4 * static_cast<std::size_t>(last_level) : 0);
    return ring / (work.tensor_bytes() * (work.in_place ? 1 : 2)) + 1;
}

/// Where calls rotate to: those that are described, or else the positions of a decoding step (1 token), of a batch of
/// requests at different places (64), or of a prompt; for a cold table those of one call after the other.
std::vector<std::int64_t> positions_of(const Work &work) {
    std::vector<std::int64_t> positions(static_cast<std::size_t>(work.cold_table ? n_cold_positions : work.n_tokens));
    std::iota(positions.begin(), positions.end(), std::max<std::int64_t>(work.first_position, 0));
    std::minstd_rand random(2);
    if (work.is_shift()) {
        std::fill(positions.begin(), positions.end(), work.moved_by);
    } else if (work.cold_table) {
        std::shuffle(positions.begin(), positions.end(), random);
    } else if (work.first_position < 0 && work.n_tokens <= 64) {
        std::generate(positions.begin(), positions.end(),
                      [&] { return static_cast<std::int64_t>(random() % n_positions); });
    }
    return positions;
}

/// A road's tokens have random slots. A shift's, and those in pages, fill pages that are in random order.
std::vector<std::int64_t> slots_of(const Work &work) {
    const std::int64_t size = work.is_shift() || work.in_pages ? page_size : 1;
    std::vector<std::int64_t> pages(static_cast<std::size_t>(work.n_slots / size)), slots;
    std::iota(pages.begin(), pages.end(), 0);
    std::minstd_rand random(3);
    std::shuffle(pages.begin(), pages.end(), random);
    for (std::int64_t t = 0; t < (work.n_slots > 0 ? work.n_tokens : 0); t++) {
        slots.push_back(pages[static_cast<std::size_t>(t / size)] * size + t % size);
    }
    return slots;
}

constexpr std::size_t tile_elements = 1 << 14;

/// Scales from 2^-8 to 2^-7, and any int8.
std::vector<char> make_groups() {
    std::vector<char> groups;
    std::minstd_rand random(5);
    while (groups.size() < tile_elements) {
        const auto scale = static_cast<std::uint16_t>(7 << 10 | (random() & 0x3ff));
        groups.insert(groups.end(), {static_cast<char>(scale), static_cast<char>(scale >> 8)});
        std::generate_n(std::back_inserter(groups), group_size, [&] { return static_cast<char>(random() >> 8); });
    }
    return groups;
}

/// Elements that fill every x, repeated: numbers of either sign and absolute values from 0.5 to 2, or any of e4m3's, or
/// groups.
const std::vector<char> &tile_of(dtype type) {
    static std::map<dtype, std::vector<char>> made;
    std::vector<char> &tile = made[type];
    if (tile.empty() && type == dtype::uint8) {
        tile = make_groups();
    }
    std::minstd_rand random(1);
    while (tile.size() < tile_elements * static_cast<std::size_t>(bytes_of(type))) {
        // A sign, a fraction, and the exponent of [0.5, 1) or of [1, 2).
        const auto bits = static_cast<std::uint32_t>(random());
        const std::uint32_t sign = bits >> 30 & 1, up = bits >> 29 & 1;
        const auto value = std::bit_cast<float>(sign << 31 | (126 + up) << 23 | (bits & 0x7fffff));
        const std::uint32_t word = type == dtype::e4m3 ? sign << 7 | (bits >> 8) % 0x70
                                                       : oracle::narrow(static_cast<std::int32_t>(type), value);
        const auto *bytes = reinterpret_cast<const char *>(&word);  // little-endian
        tile.insert(tile.end(), bytes, bytes + bytes_of(type));
    }
    return tile;
}

double decode(dtype type, const char *at) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, static_cast<std::size_t>(bytes_of(type)));
    const auto kind = static_cast<std::int32_t>(type);
    return type == dtype::e4m3 ? static_cast<double>(oracle::decode(kind, word)) : oracle::widen(kind, word);
}

/// Where an element of a head lies, in bytes, or its group.
std::int64_t place_of(dtype type, std::int64_t j, std::int64_t stride) {
    return type == dtype::uint8 ? j / group_size * group_bytes : j * stride * bytes_of(type);
}

/// Element j of a head.
double read_at(dtype type, const char *at, std::int64_t j) {
    return type == dtype::uint8 ? decode(dtype::f16, at) * static_cast<signed char>(at[2 + j % group_size])
                                : decode(type, at);
}

/// cos and sin of a position's pairs.
struct Turn {
    std::vector<long double> cos, sin;
    Turn(const Work &work, std::int64_t position) {
        for (const long double f : oracle::inv_freq_of(rope_base, work.rotary_dim)) {
            const long double theta = f * static_cast<long double>(position);
            cos.push_back(std::cos(theta));
            sin.push_back(std::sin(theta));
        }
    }
};

/// How long the pair of an element is, which a rotation does not change; of what is in no pair, how large it is. After
/// a Hadamard transform: as long as a pair of the head is on average.
long double length_at(const oracle::Road &road, const std::vector<long double> &values, std::int64_t j) {
    const std::int64_t of_window = j % road.head_dim - road.rotary_offset, n_pairs = road.rotary_dim / 2;
    const auto value = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
    if (road.hadamard != 0) {
        const long double *const head = &values[static_cast<std::size_t>(j - j % road.head_dim)];
        return std::sqrt(2 * std::inner_product(head, head + road.head_dim, head, 0.0L) /
                         static_cast<long double>(road.head_dim));
    }
    if (of_window < 0 || of_window >= road.rotary_dim) {
        return std::fabs(value(j));
    }
    return std::hypot(
        value(j), value(!road.half_out ? j + 1 - 2 * (of_window % 2) : j + (of_window < n_pairs ? n_pairs : -n_pairs)));
}

/// A scale s is a 127th of the largest value, in f16, and q is rounded by s before it is f16: q * s is off by half of
/// s, and by what f16 rounds of it, which also the value is off by.
long double rounding_in_record(const oracle::RoadValues &values, std::size_t j) {
    constexpr long double half_ulp = 0x1p-11L * 1.001L;
    const std::size_t first = j - j % group_size;
    long double largest = 0;
    for (std::size_t i = first; i < first + group_size; i++) {
        largest = std::max(largest, std::fabs(values.value[i]) + values.bound[i]);
    }
    return 0.5L * largest / 127 * (1 + half_ulp) + half_ulp * (std::fabs(values.value[j]) + values.bound[j]);
}

}  // namespace

Arena::Arena(std::size_t n_bytes) : file_(memfd_create("halyard_bench", 0)), data_(nullptr), n_bytes_(n_bytes) {
    void *data = MAP_FAILED;
    if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(n_bytes)) == 0) {
        data = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, 0);
    }
    if (data == MAP_FAILED) {
        const std::error_code why(errno, std::generic_category());
        if (file_ >= 0) {
            close(file_);
        }
        throw std::system_error(why, "can't get " + std::to_string(n_bytes >> 20) + " MiB of memory");
    }
    data_ = static_cast<char *>(data);
}

Arena::~Arena() {
    munmap(data_, n_bytes_);
    close(file_);
}

Placed::Layout Placed::lay_out(const Work &work) {
    Layout layout;
    // Tensors begin half a page apart rather than a whole one, because a CPU takes a load for one of the bytes just
    // stored where both addresses are the same but for the page. A road has more of them; pages of a shift's caches are
    // pages of memory.
    std::size_t gap = 0;
    const auto place = [&](std::int64_t n, std::int64_t each) {
        const std::size_t at = layout.n_bytes;
        layout.n_bytes += round_up(static_cast<std::size_t>(n * each), memory_page) + gap;
        return at;
    };
    const std::int64_t n = work.n_tokens, row = work.row_elements, bytes = bytes_of(work.type);
    layout.positions = place(n, sizeof(std::int64_t));
    layout.cos = place(n * work.rotary_dim / 2, sizeof(float));
    layout.sin = place(n * work.rotary_dim / 2, sizeof(float));
    if (work.n_slots > 0) {
        layout.slots = place(n, sizeof(std::int64_t));
        layout.scale = place(1, sizeof(float));
        layout.scratch = place(work.n_slots / 8 + 1, 1);
    }
    gap = work.is_road() ? 64 : work.is_shift() ? 0 : memory_page / 2;
    layout.rows = place(n * row, bytes);
    const std::size_t outputs = work.is_road() || work.in_place ? layout.rows : place(n * row, bytes);
    for (const Part &part : work.parts) {
        layout.weight.push_back(part.norm_size > 0 ? place(part.norm_size, bytes) : 0);
    }
    for (const Part &part : work.parts) {
        const auto in_row = [&](std::size_t at) {
            return View{at + static_cast<std::size_t>(part.offset * bytes), row, part.stride_head, work.stride_element};
        };
        const auto dense = [&](std::int64_t n_rows, dtype type) {
            const std::int64_t head = head_size(type, part.head_dim), elements = part.n_heads * head;
            return View{place(n_rows * elements, bytes_of(type)), elements, head, 1};
        };
        layout.x.push_back(in_row(layout.rows));
        if (work.is_road()) {
            layout.between.push_back(dense(n, work.type));
            layout.y.push_back(part.is_cached ? dense(work.n_slots, work.cache) : dense(n, work.type));
        } else {
            layout.y.push_back(in_row(outputs));
        }
    }
    layout.n_copies = count_copies(work);
    if (!work.cold_table) {
        layout.step = layout.n_bytes - layout.rows;
        layout.n_bytes += (layout.n_copies - 1) * layout.step;
    }
    return layout;
}

Placed::Placed(const Work &work, const Arena &arena)
    : work_(work), arena_(arena), layout_(lay_out(work)), positions_(positions_of(work)), slots_(slots_of(work)) {
    place_positions();
    place_weights();
    for (std::size_t copy = 0; copy < (layout_.step > 0 ? layout_.n_copies : 1); copy++) {
        place_x(copy);
    }
}

/// With rows of cos and sin, and slots.
void Placed::place_positions() {
    std::copy_n(positions_.begin(), work_.n_tokens, at<std::int64_t>(layout_.positions));
    auto *cos = at<float>(layout_.cos), *sin = at<float>(layout_.sin);
    for (std::int64_t t = 0; t < work_.n_tokens; t++) {
        const Turn turn(work_, positions_[static_cast<std::size_t>(t)]);
        cos = std::copy(turn.cos.begin(), turn.cos.end(), cos);
        sin = std::copy(turn.sin.begin(), turn.sin.end(), sin);
    }
    std::copy(slots_.begin(), slots_.end(), at<std::int64_t>(layout_.slots));
}

void Placed::place_weights() {
    if (work_.n_slots > 0) {
        *at<float>(layout_.scale) = road_scale;
    }
    std::minstd_rand random(4);
    std::uniform_real_distribution<float> drawn(-0.25f, 0.25f);
    for (std::size_t i = 0; i < layout_.weight.size(); i++) {
        for (std::int64_t j = 0; j < work_.parts[i].norm_size; j++) {
            const float weight = (work_.unit_offset ? 0.0f : 1.0f) + drawn(random);
            at<std::uint16_t>(layout_.weight[i])[j] = static_cast<std::uint16_t>(oracle::narrow(HALYARD_BF16, weight));
        }
    }
}

void Placed::place_x(std::size_t copy) const {
    const std::vector<char> &tile = tile_of(work_.type);
    for (std::size_t done = 0; done < work_.tensor_bytes(); done += tile.size()) {
        std::memcpy(x(copy) + done, tile.data(), std::min(tile.size(), work_.tensor_bytes() - done));
    }
}

std::int32_t Placed::last_position() const {
    const std::int64_t last = *std::max_element(positions_.begin(), positions_.end());
    return static_cast<std::int32_t>(std::max<std::int64_t>(last, n_positions - 1));
}

void Placed::read_output(std::size_t copy) const {
    const auto *const words = reinterpret_cast<const std::uint64_t *>(y(copy));  // aligned to a cache line
    const std::uint64_t sum = std::accumulate(words, words + work_.tensor_bytes() / sizeof(*words), std::uint64_t{0});
    asm volatile("" : : "r"(sum));  // so that the compiler does not leave the sum out
}

void Placed::reset() const {
    if (work_.is_road()) {
        const std::size_t first = layout_.between[0].at;  // all outputs follow
        std::memset(at<char>(first), 0xff, layout_.n_bytes - first);
    } else if (!work_.in_place) {
        std::memset(y(0), 0xff, work_.tensor_bytes());  // NaN in every storage
    }
    for (std::size_t copy = 0; copy < (work_.is_shift() ? layout_.n_copies : 1); copy++) {
        place_x(copy);
    }
}

std::vector<Placed::Expected> Placed::expect(bool with_norm) const {
    std::vector<Expected> all;
    const std::int64_t n_checked = std::min<std::int64_t>(work_.n_tokens, 64);
    for (std::int64_t i = 0; i < n_checked; i++) {
        const std::int64_t token = n_checked == 1 ? 0 : i * (work_.n_tokens - 1) / (n_checked - 1);
        const Turn turn(work_, positions_[static_cast<std::size_t>(token)]);
        for (std::size_t p = 0; p < work_.parts.size(); p++) {
            const oracle::Road road = describe(p, with_norm);
            all.push_back({p, token, to_stored(p, road, oracle::road_of(road, read_x(p, token), turn.cos, turn.sin))});
        }
    }
    return all;
}

oracle::Road Placed::describe(std::size_t p, bool with_norm) const {
    const Part &part = work_.parts[p];
    oracle::Road road;
    road.dtype = work_.type == dtype::uint8 ? HALYARD_F32 : static_cast<std::int32_t>(work_.type);
    road.n_heads = part.n_heads;
    road.head_dim = part.head_dim;
    road.rotary_dim = part.rotates ? work_.rotary_dim : 0;
    road.rotary_offset = part.rotary_offset;
    road.half_in = work_.in == pairing::half;
    road.half_out = work_.out == pairing::half;
    road.hadamard = work_.hadamard && part.is_cached ? part.head_dim : 0;
    road.undoes = work_.is_shift();
    if (with_norm && part.norm_size > 0) {
        road.norm.emplace();
        road.norm->eps = road_eps;
        road.norm->size = part.norm_size;
        for (std::int64_t j = 0; j < part.norm_size; j++) {
            const float w = oracle::widen(HALYARD_BF16, at<std::uint16_t>(layout_.weight[p])[j]);
            road.norm->weight.push_back(work_.unit_offset ? 1.0f + w : w);
        }
    }
    return road;
}

/// As it was at first.
std::vector<float> Placed::read_x(std::size_t p, std::int64_t token) const {
    const Part &part = work_.parts[p];
    const std::vector<char> &tile = tile_of(work_.type);
    const std::int64_t row = work_.is_shift() ? slots_[static_cast<std::size_t>(token)] : token;
    std::vector<float> x;
    for (std::int64_t j = 0; j < part.n_heads * part.head_dim; j++) {
        const std::int64_t head = row * work_.row_elements + part.offset + j / part.head_dim * part.stride_head;
        const std::int64_t at =
            head * bytes_of(work_.type) + place_of(work_.type, j % part.head_dim, work_.stride_element);
        x.push_back(static_cast<float>(
            read_at(work_.type, &tile[static_cast<std::size_t>(at) % tile.size()], j % part.head_dim)));
    }
    return x;
}

std::vector<Placed::Element> Placed::to_stored(std::size_t p, const oracle::Road &road,
                                               const oracle::RoadValues &values) const {
    const dtype type = stored_type(p);
    const auto kind = static_cast<std::int32_t>(type);
    const bool in_records = type == dtype::uint8, is_scaled = type != work_.type && !in_records;
    const long double unit = is_scaled ? road_scale : 1.0L, most = in_records ? INFINITY : oracle::greatest(kind);
    std::vector<Element> elements;
    for (std::size_t j = 0; j < values.value.size(); j++) {
        const long double value = std::clamp(values.value[j] / unit, -most, most);
        const long double bound = values.bound[j] / unit + (is_scaled ? 0x1p-22L * std::fabs(value) : 0);
        const long double rounding = in_records           ? rounding_in_record(values, j)
                                     : type == dtype::f32 ? 0
                                                          : oracle::half_ulp(kind, std::fabs(value) + bound);
        elements.push_back({static_cast<double>(value), static_cast<double>(bound), static_cast<double>(rounding),
                            static_cast<double>(length_at(road, values.value, static_cast<std::int64_t>(j)) / unit)});
    }
    return elements;
}

double Placed::read_y(const Expected &expected, std::int64_t j) const {
    const Part &part = work_.parts[expected.part];
    const View &view = layout_.y[expected.part];
    const dtype type = stored_type(expected.part);
    const std::int64_t row = part.is_cached ? slots_[static_cast<std::size_t>(expected.token)] : expected.token;
    const std::int64_t h = j / part.head_dim, d = j % part.head_dim;
    const std::int64_t at_head =
        is_by_column(expected.part) ? (row / page_size * part.n_heads + h) * part.head_dim * page_size + row % page_size
                                    : row * view.stride_token + h * view.stride_head;
    const std::int64_t stride = is_by_column(expected.part) ? page_size : view.stride_element;
    const std::size_t copy = work_.is_shift() ? layout_.n_copies - 1 : 0;
    return read_at(type, at<char>(view.at + copy * layout_.step) + at_head * bytes_of(type) + place_of(type, d, stride),
                   d);
}

Placed::Found Placed::check(double slack, bool with_norm) {
    std::vector<Expected> &expected = expected_[with_norm ? 1 : 0];
    if (expected.empty()) {
        expected = expect(with_norm);
    }
    Found found;
    for (const Expected &each : expected) {
        for (std::size_t j = 0; j < each.elements.size(); j++) {
            const Element &element = each.elements[j];
            const double error = std::fabs(read_y(each, static_cast<std::int64_t>(j)) - element.value);
            found.n_wrong += error <= element.bound + element.rounding + slack * element.length ? 0 : 1;
            const double relative = std::isnan(error) ? INFINITY
                                    : element.length > 0.0
                                        ? (error - (work_.is_road() ? element.rounding : 0.0)) / element.length
                                        : 0.0;
            found.max_error = std::max(found.max_error, relative);
        }
    }
    return found;
}

}  // namespace halyard::bench
