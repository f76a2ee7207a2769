// How the elements of a cache lie in its file.
#pragma once

#include "tool/files/npy.h"
#include "tool/files/refusal.h"
#include "tool/options/arguments.h"

#include "halyard/halyard.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace halyard::tool {

/// What --cache-layout says.
class CacheLayout {
public:
    /// Takes rows, nhd, hnd or tile:bs,Tt,s0,s1,Dt,s2,s3. Returns what is wrong with it, or "".
    std::string parse(const std::string &text) {
        const bool has_tile = text.starts_with("tile:");
        const auto name = has_tile ? std::string_view(text).substr(0, 5) : text;
        kind_ = std::find_if(std::begin(kinds), std::end(kinds), [&](const Kind &kind) { return kind.name == name; });
        text_ = text;
        if (kind_ == std::end(kinds)) {
            return "'" + text + "' is not rows, nhd, hnd or tile:bs,Tt,s0,s1,Dt,s2,s3";
        }
        return has_tile ? parse_tile() : "";
    }

    /// heads and head_dim, as a cache's shape tells them. Throws Refusal.
    std::array<std::int64_t, 2> find_heads(const NpyArray &cache) const {
        const auto &shape = cache.shape;
        if (shape.size() != kind_->n_dims || (is_tile() && shape[2] % tile_[0] != 0)) {
            refuse(cache, "");
        }
        return {shape[kind_->heads_at], is_tile() ? shape[2] / tile_[0] : shape.back()};
    }

    /// Throws Refusal where the file's shape is not that of a cache of such heads.
    halyard_cache_desc describe(const NpyArray &cache, std::int64_t heads, std::int64_t head_dim) const {
        const auto &shape = cache.shape;
        if (shape.size() != kind_->n_dims || shape[kind_->heads_at] != heads ||
            !is_product(shape.back(), is_tile() ? tile_[0] : 1, head_dim)) {
            refuse(cache, ", for " + std::to_string(heads) + " heads of " + std::to_string(head_dim));
        }
        const auto n_pages = kind_->tokens_at == 0 ? 1 : shape[0];
        const auto page_size = is_tile() ? tile_[0] : shape[kind_->tokens_at];
        auto desc = kind_->tokens_at < kind_->heads_at ? describe_nhd_cache(n_pages, page_size, heads, head_dim)
                                                       : describe_hnd_cache(n_pages, page_size, heads, head_dim);
        if (is_tile()) {
            const auto &[block_size, tokens, stride_tokens, stride_token, elements, stride_elements, stride_element] =
                tile_;
            if (stride_element == 0 && std::min(elements, head_dim) > 1) {
                throw Refusal("--cache-layout " + text_ + " has an s3 of 0, by which neighbouring elements would meet");
            }
            // Tiles that follow each other evenly are one, 0: the library is strict about a last one that is cut off.
            desc.extent = shape[2];
            desc.tile_tokens = is_product(stride_tokens, tokens, stride_token) ? 0 : tokens;
            desc.stride_tile_tokens = stride_tokens;
            desc.stride_token = stride_token;
            desc.tile_elements = is_product(stride_elements, elements, stride_element) ? 0 : elements;
            desc.stride_tile_elements = stride_elements;
            desc.stride_element = stride_element;
        }
        if (desc.n_slots == 0) {
            refuse_shape(cache, "it needs a slot");
        }
        return desc;
    }

private:
    /// A name, the shape of the files, and which of its dimensions hold the heads and a page's tokens.
    struct Kind {
        std::string_view name;
        const char *shape;
        std::size_t n_dims, heads_at, tokens_at;
    };
    static constexpr Kind kinds[] = {{"rows", "[slots, heads, head_dim]", 3, 1, 0},
                                     {"nhd", "[pages, bs, heads, head_dim]", 4, 2, 1},
                                     {"hnd", "[pages, heads, bs, head_dim]", 4, 1, 2},
                                     {"tile:", "[pages, heads, bs * head_dim]", 3, 1, 2}};

    std::string parse_tile() {
        static constexpr const char *names[] = {"bs", "Tt", "s0", "s1", "Dt", "s2", "s3"};
        std::size_t at = text_.find(':'), n = 0;
        for (; at != text_.npos && n < tile_.size(); ++n) {
            const auto begin = at + 1;
            at = text_.find(',', begin);
            const auto number = parse_number<std::int64_t>(std::string_view(text_).substr(begin, at - begin));
            if (!number) {
                break;
            }
            tile_[n] = *number;
        }
        if (n < tile_.size() || at != text_.npos) {
            return "'" + text_ + "' is not tile:bs,Tt,s0,s1,Dt,s2,s3, seven whole numbers";
        }
        for (std::size_t i = 0; i < tile_.size(); ++i) {
            const std::int64_t least = names[i][0] == 's' ? 0 : 1;  // strides may be 0 where there is one step
            if (tile_[i] < least) {
                return names[i] + (" of '" + text_) + "' is " + std::to_string(tile_[i]) + ", but must be at least " +
                       std::to_string(least);
            }
        }
        return "";
    }

    [[noreturn]] void refuse(const NpyArray &cache, const std::string &more) const {
        refuse_shape(cache, "--cache-layout " + text_ + " is " + kind_->shape + more);
    }

    bool is_tile() const { return tile_[0] != 0; }

    const Kind *kind_ = nullptr;
    std::string text_;                    // as it was typed
    std::array<std::int64_t, 7> tile_{};  // of tile:…, in that order
};

}  // namespace halyard::tool
