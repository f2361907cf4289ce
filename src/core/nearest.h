#pragma once

#include <span>
#include <string_view>

namespace varve {

/// The word that was meant, most likely, by one that is mistyped: at most two letters, and at most a third of them, are
/// to be put in, left out or replaced. Empty: none is that near.
std::string_view nearest_word(std::string_view mistyped, std::span<const std::string_view> words);

}  // namespace varve
