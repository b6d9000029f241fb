#include "core/json_tokens.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

bool is_token_byte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
         c == '.';
}

bool is_out_of_range(std::string_view token) {
  const char first = token.front();
  if (first != '-' && (first < '0' || first > '9')) {
    return false;
  }
  double unused = 0;
  const auto read = std::from_chars(token.data(), token.data() + token.size(), unused);
  // Too close to 0 is out of range as well, but reads as 0.
  return read.ec == std::errc::result_out_of_range && read.ptr == token.data() + token.size() &&
         token.find("e-") == std::string_view::npos && token.find("E-") == std::string_view::npos;
}

/// The offset behind the string that opens at `begin`.
std::size_t end_of_string(std::string_view text, std::size_t begin, std::string_view what) {
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != '"') {
    const std::string_view escape = text.substr(i, 6);
    if (text[i] == marker_byte || escape == "\\u007f" || escape == "\\u007F") {
      reject({place_in_text(text, i, what), "the control character U+007F in a string", "printable text",
              "Remove it"});
    }
    i += text[i] == '\\' ? 2 : 1;
  }
  return std::min(i + 1, text.size());
}

}  // namespace

MarkedText mark_non_finite(std::string_view text, std::string_view what) {
  constexpr int deepest = 64;
  MarkedText marked{std::string(text), {}};
  int depth = 0;
  std::size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"') {
      i = end_of_string(text, i, what);
      continue;
    }
    if (c == '[' || c == '{') {
      if (++depth > deepest) {
        reject({place_in_text(text, i, what), "more than 64 levels of nesting",
                "a file of the documented format", "Is it a file of another kind?"});
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
    if (!is_token_byte(c)) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && is_token_byte(text[end])) {
      ++end;
    }
    const std::string_view token = text.substr(i, end - i);
    if (token == "NaN" || token == "Infinity" || token == "-Infinity" || is_out_of_range(token)) {
      marked.tokens.emplace_back(token);
      marked.text[i] = marked.text[end - 1] = '"';
      std::fill(marked.text.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                marked.text.begin() + static_cast<std::ptrdiff_t>(end) - 1, marker_byte);
    }
    i = end;
  }
  return marked;
}

std::string place_in_text(std::string_view text, std::size_t offset, std::string_view what) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return std::string(what) + ", line " + std::to_string(line) + ", column " +
         std::to_string(before.size() - line_begin + 1);
}

}  // namespace dreamddp
