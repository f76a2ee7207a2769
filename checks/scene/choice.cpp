#include "checks/scene/choice.h"

#include <set>

namespace scenes {

std::vector<Levels> cover_pairs(oracle::Random &random, const Levels &n_levels) {
    using Pair = std::array<int, 4>;  // two factors and their levels
    std::set<Pair> missing;
    const auto for_each_pair = [](auto function) {
        for (int a = 0; a < n_factors; a++) {
            for (int b = a + 1; b < n_factors; b++) {
                function(a, b);
            }
        }
    };
    const auto of = [](auto &levels, int factor) -> auto & { return levels[static_cast<std::size_t>(factor)]; };
    for_each_pair([&](int a, int b) {
        for (int i = 0; i < of(n_levels, a) * of(n_levels, b); i++) {
            missing.insert({a, b, i % of(n_levels, a), i / of(n_levels, a)});
        }
    });
    std::vector<Levels> rows;
    while (!missing.empty()) {
        Levels best = {};
        int most = -1;
        for (int attempt = 0; attempt < 40; attempt++) {  // each holds a pair that is missing
            auto wanted = missing.begin();
            std::advance(wanted, random.in(0, static_cast<std::int64_t>(missing.size()) - 1));
            Levels levels;
            for (int f = 0; f < n_factors; f++) {
                of(levels, f) = static_cast<int>(random.in(0, of(n_levels, f) - 1));
            }
            of(levels, (*wanted)[0]) = (*wanted)[2];
            of(levels, (*wanted)[1]) = (*wanted)[3];
            int n_new = 0;
            for_each_pair([&](int a, int b) {
                n_new += missing.count({a, b, of(levels, a), of(levels, b)}) != 0 ? 1 : 0;
            });
            if (n_new > most) {
                most = n_new;
                best = levels;
            }
        }
        for_each_pair([&](int a, int b) { missing.erase({a, b, of(best, a), of(best, b)}); });
        rows.push_back(best);
    }
    return rows;
}

}  // namespace scenes
