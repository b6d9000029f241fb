// The lexical level of JSON: positions in a text, and number tokens that JSON itself does not have.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dreamddp {

/// Stands in strings that replace tokens; mark_non_finite() makes sure that no other string has it.
inline constexpr char marker_byte = '\x7f';

struct MarkedText {
  std::string text;                 ///< as long as the original, so that positions stay right
  std::vector<std::string> tokens;  ///< what was replaced, in order
};

/// Replaces the tokens NaN, Infinity, -Infinity and numbers beyond the range of a double by marker strings.
/// @throws std::invalid_argument with the position, for a marker byte inside a string and for nesting deeper
///   than 64 levels
MarkedText mark_non_finite(std::string_view text, std::string_view what);

/// Whether a string stands for a replaced token.
inline bool is_marker(std::string_view text) { return !text.empty() && text.front() == marker_byte; }

/// "profile, line 3, column 14"; both count from 1, columns in bytes.
std::string place_in_text(std::string_view text, std::size_t offset, std::string_view what);

}  // namespace dreamddp
