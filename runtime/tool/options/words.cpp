#include "tool/options/words.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace halyard::tool {
namespace {

struct Words {
    std::string_view library, tool;
};

/// What a sentence may begin with, and what it may hold anywhere. What the tool itself checks first, positions and the
/// window for instance, does not come here. A test tries bad command lines and finds no word of the API.
constexpr Words beginnings[] = {
    {"base is ", "--base is "},
    {"attention_factor is ", "--attention-factor is "},
    {"inv_freq[", "in --inv-freq, inv_freq["},
    {"n_pairs is ", "the length of --inv-freq is "},
    {"target is ", "--target is "},
};
constexpr Words anywhere[] = {
    {"desc.", ""},
    {"options.seq_len", "--seq-len"},
    {"axis_counts[0]", "the first number of --axis-map"},
    {"axis_counts[1]", "the second number of --axis-map"},
    {"axis_counts[2]", "the third number of --axis-map"},
    {"axis_counts[3]", "the fourth number of --axis-map"},
    {"axis_counts", "the numbers of --axis-map"},
    {"reference is HALYARD_REFERENCE_HF_F32", "--reference is hf_f32"},
    {"reference is HALYARD_REFERENCE_VLLM_F16", "--reference is vllm_f16"},
    {"reference is HALYARD_REFERENCE_VLLM_BF16", "--reference is vllm_bf16"},
    {"reference is HALYARD_REFERENCE_GGML", "--reference is ggml"},
    {"HALYARD_ANGLES_PHASE", "--angles phase"},
    {"HALYARD_ANGLES_FACTORED", "--angles factored"},
    {"; PHASE needs", "; phase needs"},
    {"the angle source would have", "a table from the least to the greatest position would have"},
    {": see halyard_gpu.h", ", and this tool was built without GPUs"},
    {"no kernel can be taken: target is", "no kernel can be taken: --target is"},
    {"tensors[0].head_dim is", "X's head_dim is"},
    {"x[0] has rows", "X has rows"},
    {"linear.positions[", "in --positions, ["},
    {"linear.matrix[", "--axis-matrix ["},
    {"linear.n_axes is", "the number of axes of --axis-matrix is"},
};

/// Damerau and Levenshtein's: how many letters were left out, added, changed, or swapped with the next.
std::size_t count_slips(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        before = std::exchange(above, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t changed = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, changed});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
    }
    return row.back();
}

}  // namespace

std::string say_options(std::string sentence) {
    for (const auto &[library, tool] : anywhere) {
        for (auto at = sentence.find(library); at != sentence.npos; at = sentence.find(library, at + tool.size())) {
            sentence.replace(at, library.size(), tool);
        }
    }
    for (const auto &[library, tool] : beginnings) {
        if (sentence.starts_with(library)) {
            sentence.replace(0, library.size(), tool);
        }
    }
    return sentence;
}

std::string find_nearest(std::string_view word, const std::vector<std::string> &known) {
    std::string nearest;
    std::size_t least = std::min<std::size_t>(3, word.size() / 2 + 1);  // more slips than that, and it is another word
    for (const auto &each : known) {
        const auto n_slips = word.size() > 2 && each.starts_with(word) ? 1 : count_slips(word, each);
        if (n_slips < least) {
            nearest = each;
            least = n_slips;
        }
    }
    return nearest;
}

}  // namespace halyard::tool
