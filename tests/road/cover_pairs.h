// Which of many combinations to test.
#pragma once

#include "checks/oracle.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

/// Choices in which each pair of levels of two factors occurs together at least once.
template <std::size_t n_factors>
std::vector<std::array<int, n_factors>> cover_pairs(oracle::Random &random,
                                                    const std::array<int, n_factors> &n_levels) {
    using Choice = std::array<int, n_factors>;
    using Pair = std::array<int, 4>;  // two factors and their levels
    std::set<Pair> missing;
    for (int a = 0; a < static_cast<int>(n_factors); a++) {
        for (int b = a + 1; b < static_cast<int>(n_factors); b++) {
            for (int i = 0; i < n_levels[static_cast<std::size_t>(a)]; i++) {
                for (int j = 0; j < n_levels[static_cast<std::size_t>(b)]; j++) {
                    missing.insert({a, b, i, j});
                }
            }
        }
    }
    const auto for_each_pair = [](const Choice &choice, auto function) {
        for (int a = 0; a < static_cast<int>(n_factors); a++) {
            for (int b = a + 1; b < static_cast<int>(n_factors); b++) {
                function(Pair{a, b, choice[static_cast<std::size_t>(a)], choice[static_cast<std::size_t>(b)]});
            }
        }
    };
    std::vector<Choice> rows;
    while (!missing.empty()) {
        Choice best = {};
        int most = -1;
        for (int attempt = 0; attempt < 40; attempt++) {  // each holds a pair that is missing
            auto wanted = missing.begin();
            std::advance(wanted, random.in(0, static_cast<std::int64_t>(missing.size()) - 1));
            Choice choice;
            for (std::size_t f = 0; f < n_factors; f++) {
                choice[f] = static_cast<int>(random.in(0, n_levels[f] - 1));
            }
            choice[static_cast<std::size_t>((*wanted)[0])] = (*wanted)[2];
            choice[static_cast<std::size_t>((*wanted)[1])] = (*wanted)[3];
            int n_new = 0;
            for_each_pair(choice, [&](const Pair &pair) { n_new += missing.count(pair) != 0 ? 1 : 0; });
            if (n_new > most) {
                most = n_new;
                best = choice;
            }
        }
        for_each_pair(best, [&](const Pair &pair) { missing.erase(pair); });
        rows.push_back(best);
    }
    return rows;
}
