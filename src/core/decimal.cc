#include "core/decimal.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

namespace dreamddp {

double scale_decimal(double value, int exponent) {
  if (exponent == 0 || value == 0 || !std::isfinite(value)) {
    return value;
  }
  std::array<char, 64> text;
  const auto written =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific);
  const std::string_view number(text.data(), static_cast<std::size_t>(written.ptr - text.data()));
  const std::size_t e = number.find('e');
  const char* digits = number.data() + e + (number[e + 1] == '+' ? 2 : 1);
  int shifted = 0;
  std::from_chars(digits, number.data() + number.size(), shifted);
  const std::string moved = std::string(number.substr(0, e)) + "e" + std::to_string(shifted + exponent);
  double result = 0;
  const auto read = std::from_chars(moved.data(), moved.data() + moved.size(), result);
  // Out of range: below the smallest or above the largest double, where plain arithmetic gives 0 or infinity.
  return read.ec == std::errc{} ? result : value * std::pow(10.0, exponent);
}

std::string shortest_text(double value) {
  std::array<char, 64> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), written.ptr};
}

}  // namespace dreamddp
