#include "checks/cases/choice.h"

#include <algorithm>
#include <set>

namespace cases {

std::vector<Levels> cover_level_pairs(oracle::Random &random, const Levels &n_levels) {
    using Pair = std::array<std::size_t, 4>;  // two factors and their levels
    std::set<Pair> missing;
    const auto for_each_pair = [](const Levels &levels, auto function) {
        for (std::size_t a = 0; a < levels.size(); a++) {
            for (std::size_t b = a + 1; b < levels.size(); b++) {
                function(Pair{a, b, static_cast<std::size_t>(levels[a]), static_cast<std::size_t>(levels[b])});
            }
        }
    };
    for_each_pair(n_levels, [&](const Pair &n) {
        for (std::size_t i = 0; i < n[2] * n[3]; i++) {
            missing.insert({n[0], n[1], i % n[2], i / n[2]});
        }
    });
    std::vector<Levels> rows;
    while (!missing.empty()) {
        Levels best = {};
        int most = -1;
        for (int attempt = 0; attempt < 40; attempt++) {  // each attempt covers at least one missing pair
            auto wanted = missing.begin();
            std::advance(wanted, random.in(0, std::ssize(missing) - 1));
            Levels levels;
            std::transform(n_levels.begin(), n_levels.end(), levels.begin(),
                           [&](int n) { return static_cast<int>(random.in(0, n - 1)); });
            levels[(*wanted)[0]] = static_cast<int>((*wanted)[2]);
            levels[(*wanted)[1]] = static_cast<int>((*wanted)[3]);
            int n_new = 0;
            for_each_pair(levels, [&](const Pair &pair) { n_new += missing.count(pair) != 0 ? 1 : 0; });
            if (n_new > most) {
                most = n_new;
                best = levels;
            }
        }
        for_each_pair(best, [&](const Pair &pair) { missing.erase(pair); });
        rows.push_back(best);
    }
    return rows;
}

}  // namespace cases
