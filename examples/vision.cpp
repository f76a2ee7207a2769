// A vision encoder: patches of an image have two positions, row and column. Half of a head's pairs reads the row, the
// other half the column.
//
// So the attention between two patches depends on how far apart they are, down and across, and not on where they lie.
// The program checks this for two patches that move together.
#include <halyard/halyard.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

constexpr std::int32_t n_rows = 24, n_columns = 32;
constexpr std::int64_t n_patches = n_rows * n_columns, n_heads = 2, head_dim = 64;

int main() {
    // 16 pairs turn with the row, the other 16 with the column, each with the same frequencies: base^(-2k / 32).
    std::vector<double> inv_freq(head_dim / 2);
    for (std::size_t k = 0; k < inv_freq.size(); ++k) {
        inv_freq[k] = std::pow(10000.0, -2.0 * static_cast<double>(k % 16) / 32.0);
    }
    const halyard::angle_source angles(  // positions go from 0 to the longer side
        halyard::frequencies::from_list(inv_freq.data(), static_cast<std::int64_t>(inv_freq.size())),
        halyard::describe_angles(HALYARD_ANGLES_TABLE, halyard::axis_map::sections({16, 16}), 0, n_columns));
    const halyard::plan plan(halyard::plan_desc(
        head_dim, {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half)}));

    // Positions are two arrays [tokens], one after the other: every patch's row, then every patch's column.
    std::vector<std::int32_t> coordinates(2 * n_patches);
    for (std::int32_t i = 0; i < n_patches; ++i) {
        coordinates[static_cast<std::size_t>(i)] = i / n_columns;
        coordinates[static_cast<std::size_t>(n_patches + i)] = i % n_columns;
    }
    auto positions = halyard::positions(coordinates.data(), {1, n_patches});
    positions.n_axes = 2;
    positions.stride_axis = n_patches;

    // Every patch has the same content, so that only positions tell them apart.
    std::vector<float> x(n_patches * n_heads * head_dim);
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(std::cos(0.7 * static_cast<double>(i % (n_heads * head_dim))));
    }
    const auto view = halyard::tensor(x.data(), halyard::dtype::f32, {1, n_patches, n_heads, head_dim});
    halyard::run_options how;
    how.positions = positions;
    halyard::run(plan, angles, view, view, how);

    const auto score = [&](std::int32_t row, std::int32_t column, std::int32_t down, std::int32_t across) {
        const float *a = &x[static_cast<std::size_t>(row * n_columns + column) * n_heads * head_dim];
        const float *b = &x[static_cast<std::size_t>((row + down) * n_columns + column + across) * n_heads * head_dim];
        double sum = 0.0;
        for (std::int64_t i = 0; i < head_dim; ++i) {
            sum += static_cast<double>(a[i]) * b[i];
        }
        return sum;
    };
    const double here = score(0, 0, 2, 5), there = score(20, 25, 2, 5), other = score(0, 0, 5, 2);
    std::printf("2 down and 5 across: %.4f at the corner, %.4f at row 20, column 25\n", here, there);
    std::printf("5 down and 2 across: %.4f\n", other);
    return std::fabs(here - there) < 1e-4 && std::fabs(here - other) > 0.1 ? 0 : 1;
}
