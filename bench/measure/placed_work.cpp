#include "measure/placed_work.h"

#include "checks/oracle.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <system_error>
#include <utility>

namespace halyard::bench {

namespace {

constexpr std::size_t page = 4096;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// How many bytes lie between the starts of two tensors. They begin half a page apart rather than a whole one, because
/// a CPU takes a load for one of the bytes just stored where both addresses are the same but for the page.
std::size_t stride_of(const Work &work) { return round_up(work.tensor_bytes(), page) + page / 2; }

std::size_t slots_of(const Work &work) {
    if (work.cold_table) {
        return static_cast<std::size_t>(n_cold_positions / work.n_tokens);
    }
    if (!work.cold) {
        return 1;
    }
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const std::size_t ring =
        std::max<std::size_t>(256u << 20, last_level > 0 ? 4 * static_cast<std::size_t>(last_level) : 0);
    return ring / (work.tensor_bytes() * (work.in_place ? 1 : 2)) + 1;
}

std::size_t row_bytes_of(const Work &work) {
    return round_up(static_cast<std::size_t>(work.n_tokens * work.rotary_dim / 2) * sizeof(float), page);
}

std::size_t header_bytes_of(const Work &work) {
    return round_up(static_cast<std::size_t>(work.n_tokens) * sizeof(std::int64_t), page) + 2 * row_bytes_of(work);
}

/// Works with the same positions share their rows, because long double is slow.
std::shared_ptr<const std::vector<double>> exact_rows(const std::vector<std::int64_t> &positions,
                                                      std::int64_t rotary_dim) {
    static std::map<std::pair<std::vector<std::int64_t>, std::int64_t>, std::shared_ptr<const std::vector<double>>>
        made;
    auto &rows = made[{positions, rotary_dim}];
    if (rows == nullptr) {
        std::vector<double> values;
        for (const std::int64_t position : positions) {
            for (std::int64_t k = 0; k < rotary_dim / 2; k++) {
                const long double angle =
                    static_cast<long double>(position) *
                    std::pow(static_cast<long double>(rope_base),
                             -2.0L * static_cast<long double>(k) / static_cast<long double>(rotary_dim));
                values.push_back(static_cast<double>(std::cos(angle)));
                values.push_back(static_cast<double>(std::sin(angle)));
            }
        }
        rows = std::make_shared<const std::vector<double>>(std::move(values));
    }
    return rows;
}

constexpr std::size_t tile_elements = 1 << 14;

/// Elements that fill every x, repeated.
const std::vector<char> &tile_of(dtype type) {
    static std::map<dtype, std::vector<char>> made;
    std::vector<char> &tile = made[type];
    if (tile.empty()) {
        std::minstd_rand random(1);
        for (std::size_t i = 0; i < tile_elements; i++) {
            // A sign, a fraction, and the exponent of [0.5, 1) or of [1, 2).
            const auto bits = static_cast<std::uint32_t>(random());
            const std::uint32_t sign = bits >> 30 & 1, up = bits >> 29 & 1;
            const std::uint32_t f32 = sign << 31 | (126 + up) << 23 | (bits & 0x7fffff);
            const auto f16 = static_cast<std::uint16_t>(sign << 15 | (14 + up) << 10 | (bits >> 4 & 0x3ff));
            const auto bf16 = static_cast<std::uint16_t>(f32 >> 16);
            const void *element = type == dtype::f32   ? static_cast<const void *>(&f32)
                                  : type == dtype::f16 ? &f16
                                                       : &bf16;
            const auto *bytes = static_cast<const char *>(element);
            tile.insert(tile.end(), bytes, bytes + (type == dtype::f32 ? 4 : 2));
        }
    }
    return tile;
}

double read_element(dtype type, const char *at) {
    const auto kind = static_cast<std::int32_t>(type);
    return oracle::widen(kind, oracle::read_word(kind, at));
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

std::vector<std::int64_t> positions_of(const Work &work) {
    std::vector<std::int64_t> positions;
    std::minstd_rand random(2);
    if (work.cold_table) {
        positions.resize(n_cold_positions);
        std::iota(positions.begin(), positions.end(), 0);
        std::shuffle(positions.begin(), positions.end(), random);
        return positions;
    }
    if (work.first_position >= 0) {
        positions.resize(static_cast<std::size_t>(work.n_tokens));
        std::iota(positions.begin(), positions.end(), work.first_position);
        return positions;
    }
    for (std::int64_t t = 0; t < work.n_tokens; t++) {
        positions.push_back(work.n_tokens <= 64 ? static_cast<std::int64_t>(random() % n_positions) : t);
    }
    return positions;
}

std::size_t PlacedWork::bytes_needed(const Work &work) {
    return header_bytes_of(work) + (work.cold_table ? 1 : slots_of(work)) * (work.in_place ? 1 : 2) * stride_of(work);
}

PlacedWork::PlacedWork(const Work &work, const Arena &arena)
    : work_(work), arena_(arena), positions_(positions_of(work)), cos_(header_bytes_of(work) - 2 * row_bytes_of(work)),
      sin_(cos_ + row_bytes_of(work)),
      exact_(exact_rows({positions_.begin(), positions_.begin() + work.n_tokens}, work.rotary_dim)) {
    std::memcpy(at(0), positions_.data(), static_cast<std::size_t>(work.n_tokens) * sizeof(std::int64_t));
    auto *const cos = reinterpret_cast<float *>(at(cos_)), *const sin = reinterpret_cast<float *>(at(sin_));
    for (std::size_t i = 0; i < exact_->size() / 2; i++) {
        cos[i] = static_cast<float>((*exact_)[2 * i]);
        sin[i] = static_cast<float>((*exact_)[2 * i + 1]);
    }
    std::size_t next = header_bytes_of(work);
    for (std::size_t i = 0; i < slots_of(work); i++) {
        if (work.cold_table && i > 0) {
            slots_.push_back(slots_[0]);
            continue;
        }
        const std::size_t x = next, y = work.in_place ? x : x + stride_of(work);
        next = y + stride_of(work);
        slots_.push_back({x, y});
        fill(i);
    }
}

std::int32_t PlacedWork::last_position() const {
    const std::int64_t last = *std::max_element(positions_.begin(), positions_.end());
    return static_cast<std::int32_t>(std::max<std::int64_t>(last, n_positions - 1));
}

void PlacedWork::fill(std::size_t slot) const {
    const std::vector<char> &tile = tile_of(work_.type);
    for (std::size_t done = 0; done < work_.tensor_bytes(); done += tile.size()) {
        std::memcpy(x(slot) + done, tile.data(), std::min(tile.size(), work_.tensor_bytes() - done));
    }
}

void PlacedWork::read_output(std::size_t slot) const {
    const auto *const words = reinterpret_cast<const std::uint64_t *>(y(slot));  // aligned to a cache line
    const std::uint64_t sum = std::accumulate(words, words + work_.tensor_bytes() / sizeof(*words), std::uint64_t{0});
    asm volatile("" : : "r"(sum));  // so that the compiler does not leave the sum out
}

void PlacedWork::reset() const {
    if (!work_.in_place) {
        std::memset(y(0), 0xff, work_.tensor_bytes());  // NaN in every storage
    }
    fill(0);
}

double PlacedWork::max_error(const void *y) const {
    const std::int64_t bytes = work_.element_bytes(), pairs = work_.rotary_dim / 2;
    const std::vector<char> &tile = tile_of(work_.type);
    const auto x_at = [&](std::int64_t i) {
        return read_element(work_.type, tile.data() + static_cast<std::size_t>(i * bytes) % tile.size());
    };
    const auto y_at = [&](std::int64_t i) {
        return read_element(work_.type, static_cast<const char *>(y) + i * bytes);
    };
    double worst = 0.0;
    const auto compare = [&](double error) { worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error; };
    const std::int64_t step = (work_.n_tokens + 63) / 64;
    for (std::int64_t t = work_.n_tokens - 1; t >= 0; t -= step) {
        for (std::int64_t h = 0; h < work_.n_heads(); h++) {
            const auto at = [&](std::int64_t i) {
                return t * work_.n_heads() * work_.head_dim + h * work_.stride_head() + i * work_.stride_element();
            };
            for (std::int64_t k = 0; k < pairs; k++) {
                const auto of_pair = [&](pairing how, int member) {
                    return at(how == pairing::half ? k + member * pairs : 2 * k + member);
                };
                const double *exact = exact_->data() + 2 * (t * pairs + k);
                const double x0 = x_at(of_pair(work_.in, 0)), x1 = x_at(of_pair(work_.in, 1));
                const double length = std::hypot(x0, x1);
                compare(std::fabs(y_at(of_pair(work_.out, 0)) - (x0 * exact[0] - x1 * exact[1])) / length);
                compare(std::fabs(y_at(of_pair(work_.out, 1)) - (x0 * exact[1] + x1 * exact[0])) / length);
            }
            for (std::int64_t i = work_.rotary_dim; i < work_.head_dim; i++) {
                compare(std::fabs(y_at(at(i)) - x_at(at(i))));
            }
        }
    }
    return worst;
}

double PlacedWork::promised_error() const {
    const double half_ulp = work_.type == dtype::f32 ? 0.0 : work_.type == dtype::f16 ? 0x1p-11 : 0x1p-8;
    return (work_.angles == HALYARD_ANGLES_FACTORED ? 4 : 2) * 0x1p-23 + half_ulp;
}

}  // namespace halyard::bench
