// Fuzzes the API with random cases of rotations, KV paths and re-rotations, some of them nonsensical. A call must fail,
// or give results within the oracle's bounds and with the model's bits; and it must write nothing else.
#include "checks/cases/run_modes.h"
#include "checks/kernel_model.h"
#include "wild.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace cases;

long n_compared = 0;

void print_counts() {
    std::fprintf(stderr, "%ld calls of the API, %ld runs of them compared with the model\n", n_calls, n_compared);
}

/// Draws what a random case may have. Cases are small, so that a fuzzer can try many.
Choice draw_small_choice(Draw &draw) {
    Choice choice = draw.one_in(3) ? Choice::of_rotations() : Choice();
    choice.rerotates = draw.one_in(4);
    choice.has_bad = draw.one_in(4);
    choice.any_range = draw.one_in(4);
    static constexpr int head_dims[] = {11, 11, 7, 8, 0};
    choice.level[of_head_dim] = draw.one_of(head_dims);
    choice.level[of_shape] = 8;
    choice.level[of_heads] = 3;
    choice.level[of_values] = choice.rerotates ? 0 : 1;
    return choice;
}

halyard::plan make_plan(const Draw &draw, const Call &call, const char *target) {
    halyard_plan_desc desc = call.plan;
    desc.target = target;
    halyard_plan *plan = nullptr;
    WatchedError error;
    const halyard_status status = count_and_check(error, halyard_create_plan(&desc, &plan, &error.error));
    require((status == HALYARD_OK) == (plan != nullptr), "a plan, or an error");
    require(status == HALYARD_OK || draw.wild, "a sensible plan can be made", error.error.message);
    return halyard::plan(plan);
}

/// Compares a run on the best target, in a random run mode, with a whole run of the kernel model.
void compare(Draw &draw, Case &drawn, const halyard::plan &plan, const halyard::plan &by_model) {
    const Obstacles obstacles(drawn);
    if (!obstacles.fits) {
        return;
    }
    const RunMode mode = draw.one_of(all_run_modes);
    const auto n_parts = static_cast<std::int32_t>(draw.in(1, 6));
    WatchedError error, other;
    const halyard_status status = run(plan.get(), drawn.call, mode, n_parts, error);
    const Images result = drawn.memory.image();
    drawn.memory.restore(drawn.before);
    require(run(by_model.get(), drawn.call, RunMode::whole, 1, other) == status, "all targets return the same status",
            status != HALYARD_OK ? error.error.message : other.error.message);
    const Images expected = drawn.memory.image();
    if (status != HALYARD_OK) {
        require(without_scratch(drawn, result) == without_scratch(drawn, drawn.before) &&
                    without_scratch(drawn, expected) == without_scratch(drawn, drawn.before),
                "a run that fails has written nothing");
        require(draw.wild || drawn.is_refused(), "a sensible run succeeds", error.error.message);
        return;
    }
    require(obstacles.absurd.empty(), "what has no memory is refused", obstacles.absurd.c_str());
    const std::string fault = drawn.fault(expected), difference = drawn.difference(expected, result);
    require(fault.empty(), "outputs are what the formula says, and nothing else is written", fault.c_str());
    require(difference.empty(), "outputs are the model's", difference.c_str());
    n_compared++;
}

/// Calls halyard_make_rows with angles that are linear in positions, unless it would read beyond the arrays made here.
void ask_for_linear_rows(Draw &draw) {
    constexpr std::int64_t n_pairs = 3, most_tokens = 12;
    static constexpr double sizes[] = {0x1p-30, 1, 100, 0x1p20, 0x1p33, 0x1p45};
    static constexpr double wild_doubles[] = {1e300, -1e300, INFINITY, NAN, 0x1p-1074};
    std::vector<double> positions(HALYARD_MAX_AXES * most_tokens), matrix(HALYARD_MAX_AXES * n_pairs);
    const bool are_wild = draw.wild && draw.one_in(4);
    for (std::vector<double> *const numbers : {&positions, &matrix}) {
        const double size = draw.one_of(sizes);
        for (double &number : *numbers) {
            number = static_cast<double>(draw.in(-128, 127)) * size / 100;
        }
        if (are_wild) {
            (*numbers)[static_cast<std::size_t>(draw.in(0, std::ssize(*numbers) - 1))] = draw.one_of(wild_doubles);
        }
    }
    std::vector<float> rows(most_tokens * 2 * n_pairs, 42.0f);
    const std::vector<float> untouched = rows;
    auto args = sized<halyard_rows_args>();
    args.n_batch = draw.in(0, 3);
    args.n_tokens = draw.in(0, 4);
    auto linear = halyard::linear_angles(positions.data(), {args.n_batch, args.n_tokens}, matrix.data(),
                                         static_cast<std::int32_t>(draw.in(1, HALYARD_MAX_AXES)));
    linear.type = static_cast<std::int32_t>(draw.in(HALYARD_REAL32, HALYARD_REAL64));  // REAL32 reads halves of doubles
    args.rows = rows.data();
    args.n_floats = std::ssize(rows);
    args.linear = &linear;
    Places places = fields::places(fields::of<halyard_rows_args>(), &args, 0);
    std::erase_if(places, [](const auto &place) {
        return place.path == "n_floats" || place.path == "linear" || place.field->kind == Kind::data;
    });
    make_wild(draw, places);
    const Extent extent = Extent(linear.type == HALYARD_REAL64 ? 8 : 4)
                              .add(linear.n_axes, linear.stride_axis)
                              .add(args.n_batch, linear.stride_batch)
                              .add(args.n_tokens, linear.stride_token);
    const bool holds = extent.low >= 0 && extent.high <= static_cast<__int128>(positions.size() * sizeof(double));
    if (holds || extent.is_absurd()) {
        const halyard::plan plan(halyard::plan_desc(
            2 * n_pairs, {halyard::describe_tensor(halyard::dtype::f32, 2 * n_pairs, halyard::pairing::half)}));
        WatchedError error;
        const halyard_status status = count_and_check(error, halyard_make_rows(plan.get(), &args, &error.error));
        require(status == HALYARD_OK || rows == untouched, "rows that fail are not written");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const int printed = std::atexit(print_counts);
    (void)printed;
    Draw draw(data, size);
    draw.wild = draw.one_in(2);
    Case drawn(draw, draw_small_choice(draw), Case::InSteps());
    drawn.draw_plan();
    make_wild(draw, fields_of_plan(drawn.call));
    static const char *const targets[] = {nullptr, "reference", "x86_avx2", "x86_avx512", "no_such"};
    const char *const target = draw.wild && draw.one_in(8) ? draw.one_of(targets) : nullptr;
    const halyard::plan plan = make_plan(draw, drawn.call, target);
    if (!plan) {
        return 0;
    }
    const halyard::plan by_model = model::make_plan(drawn.call.plan);
    drawn.draw_run();
    if (drawn.angles.kind == Angles::table && drawn.call.plan.rerotates == 0 && draw.one_in(4)) {
        drawn.angles.desc.reference = static_cast<std::int32_t>(draw.in(0, HALYARD_REFERENCE_HF_F32));
    }
    make_wild(draw, fields_of_angles(draw, drawn.angles.desc));
    if (const std::string refused = drawn.create_angles(); !refused.empty()) {
        require(draw.wild, "a sensible angle source can be made", refused.c_str());
        return 0;
    }
    make_wild_contents(draw, drawn);
    make_wild(draw, fields_of_run(drawn.call));
    compare(draw, drawn, plan, by_model);
    ask_for_linear_rows(draw);
    return 0;
}
