// Numbers as people write them, in decimal.
#pragma once

#include <string>

namespace dreamddp {

/// value * 10^exponent, rounded once from the shortest decimal text of `value`.
///
/// So 1.5 ms, 1500 us and 0.0015 s are the same double, which neither multiplying nor dividing by a power
/// of ten guarantees.
double scale_decimal(double value, int exponent);

/// The shortest decimal text that reads back as the same double.
std::string shortest_text(double value);

}  // namespace dreamddp
