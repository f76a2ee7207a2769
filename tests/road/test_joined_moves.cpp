// Keys that move by joined sources: each batch row or token goes to and comes from sources of its own, to the bits that
// these two give alone.
#include "checks/make_sources.h"
#include "checks/rotate.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

namespace {

constexpr std::int64_t rotary_dim = 24, n_heads = 2;
constexpr std::int32_t n_axes = 2;

halyard::angle_source make(double base, double factor, std::int32_t kind, std::int32_t axis_map,
                           std::int64_t of_first) {
    auto desc = describe_source(kind, 0, 9);
    desc.axis_map = axis_map;
    desc.n_axes = n_axes;
    desc.axis_counts[0] = of_first;
    desc.axis_counts[1] = rotary_dim / 2 - of_first;
    return halyard::angle_source(with_factor(halyard::frequencies::from_base(base, rotary_dim), factor), desc);
}

/// Sources of every kind, with frequencies, factors and axes of their own.
struct Sources {
    halyard::angle_source table = make(1e4, 1.0, HALYARD_ANGLES_TABLE, HALYARD_AXIS_MAP_SECTIONS, 6);
    halyard::angle_source phase = make(1e6, 1.25, HALYARD_ANGLES_PHASE, HALYARD_AXIS_MAP_INTERLEAVED, 6);
    halyard::angle_source factored = make(1e4, 1.25, HALYARD_ANGLES_FACTORED, HALYARD_AXIS_MAP_SECTIONS, 3);

    const halyard::angle_source &operator[](std::int32_t i) const { return i == 0 ? table : i == 1 ? phase : factored; }
};

/// Which source each batch row or token reads.
struct Index {
    std::vector<std::int32_t> numbers;
    bool by_token;
    std::int64_t n_tokens;

    Index(oracle::Random &random, bool each_token, std::int64_t n_batch, std::int64_t tokens)
        : by_token(each_token), n_tokens(tokens) {
        numbers.resize(static_cast<std::size_t>(n_batch * (by_token ? tokens : 1)));
        draw(random);
    }
    void draw(oracle::Random &random) {
        for (std::int32_t &number : numbers) {
            number = static_cast<std::int32_t>(random.in(0, 2));
        }
    }
    std::int32_t of(std::int64_t token) const {
        return numbers[static_cast<std::size_t>(by_token ? token : token / n_tokens)];
    }
    halyard::angle_source join(const Sources &sources) const {
        return halyard::angle_source::joined({&sources.table, &sources.phase, &sources.factored}, numbers.data(),
                                             static_cast<std::int64_t>(numbers.size()), by_token);
    }
};

/// Keys in place, where they go to and where they come from, [axis][token]. Most move equally far.
struct Keys {
    Elements elements;
    std::vector<std::int32_t> to, from;

    Keys(oracle::Random &random, std::int32_t dtype, std::int64_t n_batch, std::int64_t n_tokens)
        : elements(Elements::random(dtype, {n_batch, n_tokens, n_heads, rotary_dim + 5}, random)) {
        for (std::int64_t i = 0; i < n_axes * n_batch * n_tokens; i++) {
            to.push_back(static_cast<std::int32_t>(random.in(-1'000'000, 1'000'000)));
            from.push_back(to.back() - (random.one_in(8) ? static_cast<std::int32_t>(random.in(0, 999)) : 100));
        }
    }
    std::int64_t count() const { return elements.shape[0] * elements.shape[1]; }
    halyard_positions view(const std::vector<std::int32_t> &positions, std::int64_t token = -1) const {
        auto view = token < 0 ? halyard::positions(positions.data(), {elements.shape[0], elements.shape[1]})
                              : halyard::positions(positions.data() + token, {1, 1});
        view.n_axes = n_axes;
        view.stride_axis = count();
        return view;
    }
    halyard_tensor tensor(Elements &of, std::int64_t token = -1) const {
        const auto type = static_cast<halyard::dtype>(of.dtype);
        return token < 0 ? of.tensor()
                         : halyard::tensor(of.at(token * n_heads * of.shape[3]), type, {1, 1, n_heads, of.shape[3]});
    }
    halyard::plan plan() const {
        halyard::plan_desc desc(rotary_dim, {halyard::describe_tensor(static_cast<halyard::dtype>(elements.dtype),
                                                                      elements.shape[3], halyard::pairing::half, 3)});
        desc.rerotates = true;
        return halyard::plan(desc);
    }
};

/// Each token by itself, from and to its own sources.
Elements move_apart(const Keys &keys, const Sources &sources, const Index &to, const Index &from) {
    const halyard::plan plan = keys.plan();
    Elements moved = keys.elements;
    for (std::int64_t token = 0; token < keys.count(); token++) {
        const halyard_tensor tensor = keys.tensor(moved, token);
        halyard::run(plan, sources[to.of(token)], tensor, tensor,
                     halyard::run_options()
                         .at(keys.view(keys.to, token))
                         .moved_from(keys.view(keys.from, token), sources[from.of(token)].get()));
    }
    return moved;
}

}  // namespace

TEST_CASE("moves: by joined sources, each token to the bits of its own two", "[road][moves][sources][axes]") {
    oracle::Random random(Catch::getSeed());
    const Sources sources;
    for (const auto &[n_batch, n_tokens] :
         std::vector<std::array<std::int64_t, 2>>{{1, 1}, {5, 1}, {3, 7}, {1, 300}, {40, 11}}) {
        for (const std::int32_t dtype : {HALYARD_F32, HALYARD_BF16}) {
            for (const int by_token : {0, 1, 2, 3}) {
                CAPTURE(n_batch, n_tokens, dtype, by_token);
                const Keys keys(random, dtype, n_batch, n_tokens);
                Index to(random, (by_token & 1) != 0, n_batch, n_tokens);
                Index from(random, (by_token & 2) != 0, n_batch, n_tokens);
                const auto joined = to.join(sources), from_joined = from.join(sources);
                const halyard::plan plan = keys.plan();
                Elements moved = keys.elements;
                const halyard_tensor tensor = keys.tensor(moved);
                auto options = halyard::run_options().at(keys.view(keys.to));
                const halyard::bound_run bound(plan, joined, tensor, tensor,
                                               options.moved_from(keys.view(keys.from), from_joined.get()));
                halyard::bound_stages pointers;
                pointers.from_positions = keys.from.data();
                for (int i = 0; i < 2; i++) {
                    const Elements expected = move_apart(keys, sources, to, from);
                    for (const bool is_bound : {false, true}) {
                        moved.bytes = keys.elements.bytes;
                        for (options.part = {2, 3}; options.part.part >= 0; options.part.part--) {
                            if (is_bound) {
                                bound({moved.bytes.data()}, {moved.bytes.data()}, keys.to.data(), pointers,
                                      options.part);
                            } else {
                                halyard::run(plan, joined, tensor, tensor, options);
                            }
                        }
                        CHECK((moved == expected));
                    }
                    to.draw(random);  // the index may be rewritten between runs
                    from.draw(random);
                }
                // Keys that come from the joined source that they go to, and from a plain one.
                options.part = {};
                moved.bytes = keys.elements.bytes;
                options.from_angles = nullptr;
                halyard::run(plan, joined, tensor, tensor, options);
                CHECK((moved == move_apart(keys, sources, to, to)));
                Index plain = from;
                std::fill(plain.numbers.begin(), plain.numbers.end(), 1);
                moved.bytes = keys.elements.bytes;
                options.from_angles = sources.phase.get();
                halyard::run(plan, joined, tensor, tensor, options);
                CHECK((moved == move_apart(keys, sources, to, plain)));
            }
        }
    }
}

TEST_CASE("moves: by joined sources, heads of more pairs than rows are made at once", "[road][moves][sources]") {
    oracle::Random random(Catch::getSeed());
    const std::int64_t head_dim = 10000, n = 5;
    const auto near = halyard::angle_source::phase(halyard::frequencies::from_base(1e4, head_dim));
    const auto far = halyard::angle_source::phase(halyard::frequencies::from_base(1e6, head_dim));
    const std::int32_t index[n] = {0, 0, 1, 1, 0}, from_index[n] = {0, 0, 1, 0, 1}, to[n] = {105, 106, 107, 207, 300},
                       from[n] = {5, 6, 7, 107, 200};
    const auto joined = halyard::angle_source::joined({&near, &far}, index, n, true);
    const auto from_joined = halyard::angle_source::joined({&near, &far}, from_index, n, true);
    halyard::plan_desc desc(head_dim,
                            {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::interleaved)});
    desc.rerotates = true;
    const halyard::plan plan(desc);
    Elements moved = Elements::random(HALYARD_F32, {1, n, 1, head_dim}, random), expected = moved;
    halyard::run(plan, joined, moved.tensor(), moved.tensor(),
                 halyard::run_options()
                     .at(halyard::positions(to, {1, n}))
                     .moved_from(halyard::positions(from, {1, n}), from_joined.get()));
    for (std::int64_t token = 0; token < n; token++) {
        const auto tensor = halyard::tensor(expected.at(token * head_dim), halyard::dtype::f32, {1, 1, 1, head_dim});
        halyard::run(
            plan, index[token] == 0 ? near : far, tensor, tensor,
            halyard::run_options()
                .at(halyard::positions(to + token, {1, 1}))
                .moved_from(halyard::positions(from + token, {1, 1}), (from_index[token] == 0 ? near : far).get()));
    }
    CHECK((moved == expected));
}

namespace {

/// An executor that writes an index between the checks of a run and its work, as another thread might.
struct Writer {
    std::vector<std::int32_t> *index;
    std::vector<std::int32_t> numbers;
    int n_calls = 0;

    halyard_executor executor() { return {sizeof(halyard_executor), 4, this, &Writer::parallel_for}; }

private:
    static std::int32_t parallel_for(void *context, std::int64_t n_tasks, void (*task)(void *, std::int64_t),
                                     void *data) {
        auto &writer = *static_cast<Writer *>(context);
        *writer.index = writer.numbers;
        writer.n_calls++;
        for (std::int64_t i = 0; i < n_tasks; i++) {
            task(data, i);
        }
        return 0;
    }
};

}  // namespace

// The index is the caller's, so that a number which is none may come after the check. Then the first source is read.
TEST_CASE("moves: an index that is written during a run", "[road][moves][sources]") {
    oracle::Random random(Catch::getSeed());
    const Sources sources;
    const std::int64_t n_tokens = 4096;  // worth several threads
    const Keys keys(random, HALYARD_F32, 1, n_tokens);
    Index to(random, true, 1, n_tokens), from(random, true, 1, n_tokens), first = to;
    std::fill(first.numbers.begin(), first.numbers.end(), 0);
    const auto joined = to.join(sources), from_joined = from.join(sources);
    static constexpr std::int32_t wrong[] = {-1, 3, INT32_MAX, INT32_MIN};
    for (Index *const written : {&to, &from}) {
        Writer writer = {&written->numbers, {}};
        for (std::int64_t i = 0; i < n_tokens; i++) {
            writer.numbers.push_back(random.one_of(wrong));
        }
        const Index before = *written;
        Elements moved = keys.elements;
        const halyard_executor executor = writer.executor();
        auto options =
            halyard::run_options().at(keys.view(keys.to)).moved_from(keys.view(keys.from), from_joined.get());
        options.executor = &executor;
        halyard::run(keys.plan(), joined, moved.tensor(), moved.tensor(), options);
        CHECK(writer.n_calls == 1);
        CHECK((moved == move_apart(keys, sources, written == &to ? first : to, written == &from ? first : from)));
        written->numbers = before.numbers;
    }
}
