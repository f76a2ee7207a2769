// A work in memory that all its subjects share: positions, rows of cos and sin, slots, tensors.
#pragma once

#include "native/library.h"

#include <cstddef>
#include <cstring>
#include <ctime>
#include <list>
#include <string>
#include <vector>

struct halyard_loops;

namespace bench {

constexpr std::int64_t page_size = 16;  // tokens in a page of a cache
constexpr float scale = 0.015625f, eps = 1e-6f;
constexpr std::int64_t group_size = 32, group_bytes = 34;  // of q8_0: a scale in f16, and elements of int8

inline bool is_records(std::int64_t dtype) { return dtype == HALYARD_UINT8; }
inline std::int64_t bytes_of(std::int64_t dtype) {
    return dtype == HALYARD_F32 ? 4 : dtype == HALYARD_F16 || dtype == HALYARD_BF16 ? 2 : 1;
}
/// How many elements a head takes; of a record: bytes.
inline std::int64_t head_size(std::int64_t dtype, std::int64_t head_dim) {
    return is_records(dtype) ? head_dim / group_size * group_bytes : head_dim;
}

}  // namespace bench

/// The calls of a subject, which is made for one way, so that a call of some nanoseconds is timed with no other.
struct bench_subject {
    virtual ~bench_subject() = default;
    virtual double seconds(std::int64_t n) = 0;
    std::string target;
};

struct bench_work {
    explicit bench_work(const bench_desc &described);
    bench_work(const bench_work &) = delete;
    bench_work &operator=(const bench_work &) = delete;
    ~bench_work();

    struct View {
        std::size_t at;  // offset into the memory
        std::int64_t stride_token, stride_head;
    };
    struct Layout {
        std::size_t positions = 0, cos = 0, sin = 0, slots = 0, scale = 0, scratch = 0;
        std::size_t rows = 0, outputs = 0;  // x and y of the first token, all parts
        std::size_t weight[BENCH_MAX_PARTS] = {};
        View x[BENCH_MAX_PARTS] = {}, y[BENCH_MAX_PARTS] = {};  // a cached part's y is its cache
        /// A hot work has one copy of its tensors, a cold one as many as exceed the caches by far, a shift one for each
        /// layer, and a call of it takes them all.
        std::size_t n_copies = 1, step = 0, n_bytes = 0;
    };

    bool is_shift() const { return desc.moved_by != 0; }
    bool is_kv() const { return desc.n_slots > 0 && !is_shift(); }
    bool is_half() const { return desc.pairing == HALYARD_PAIRING_HALF; }
    bool is_half_out() const { return desc.out_pairing == HALYARD_PAIRING_HALF; }
    std::size_t tensor_bytes() const {
        return static_cast<std::size_t>(desc.tokens * desc.row_elements * bench::bytes_of(desc.dtype));
    }
    std::int32_t last_position() const;
    template <typename T>
    T *at(std::size_t offset) const {
        return reinterpret_cast<T *>(memory + offset);
    }
    char *x(std::size_t copy) const { return at<char>(layout.rows + copy * layout.step); }
    char *y(std::size_t copy) const { return at<char>(layout.outputs + copy * layout.step); }

    void reset();
    void keep();
    double difference() const;

    const bench_desc desc;
    Layout layout;
    std::vector<std::int64_t> positions, slots;  // [tokens], of every copy
    char *memory = nullptr;
    /// What a subject's next call uses: it goes on where the one before has stopped, so that none finds in a cache what
    /// another has left there.
    std::size_t next_copy = 0;
    std::list<std::unique_ptr<bench_subject>> subjects;

private:
    void lay_out();
    void place();
    void place_x(std::size_t copy) const;
    std::vector<double> read_head(std::int64_t part, std::int64_t token, std::int64_t head) const;
    /// Calls visit with each head that is compared.
    template <typename Visit>
    void read_heads(const Visit &visit) const;

    std::vector<std::vector<double>> kept_;
};

namespace bench {

template <typename Call>
struct Subject : bench_subject {
    Subject(bench_work &its_work, Call its_call) : work(its_work), call(std::move(its_call)) {}
    double seconds(std::int64_t n) override;
    bench_work &work;
    Call call;  // takes the number of a copy
};

/// Halyard's ways; NULL: there is no such way.
std::unique_ptr<bench_subject> make_call(bench_work &work, const std::string &way, bench_library &library,
                                         const char *target);
/// C loops and ceilings, of one thread.
std::unique_ptr<bench_subject> make_loop(bench_work &work, const std::string &way);

/// Of each compiler that was found.
const std::vector<std::pair<std::string, const halyard_loops *>> &all_loops();

template <typename Call>
double Subject<Call>::seconds(std::int64_t n) {
    const auto now = [] {
        timespec time = {};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double start = now();
    for (std::int64_t i = 0; i < n * work.desc.layers; i++) {
        const std::size_t copy = work.next_copy;
        work.next_copy = copy + 1 == work.layout.n_copies ? 0 : copy + 1;
        call(copy);
    }
    return now() - start;
}

template <typename Call>
std::unique_ptr<bench_subject> make_subject(bench_work &work, Call call) {
    return std::make_unique<Subject<Call>>(work, std::move(call));
}

}  // namespace bench
