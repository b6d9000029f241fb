// The unit of times in a file, as a power of ten.
#pragma once

#include <string_view>

namespace dreamddp {

/// 0 for "s", -3 for "ms", -6 for "us": what scale_decimal() takes.
/// @throws std::invalid_argument
int parse_time_exponent(std::string_view text, std::string_view field);

}  // namespace dreamddp
