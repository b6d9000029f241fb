// A lower bound on the iteration time of every plan. Design section 5.
#pragma once

#include <cstdint>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// C + max(0, sum c_l/H - (C - s), max_l(sum_{j<=l} c_j/H - D_l - G_l)) for in-place plans; without the
/// last term for plans that may hold averages; max(C, sum c_l/H) for plans that may carry them.
///
/// Layers with a last read other than their own backward are left out of the prefix sums.
/// @param mode the most permissive mode that the plan uses
/// @param transfer_seconds c_l for every layer
/// @param period H
double bound_seconds(const Profile& profile, const std::vector<double>& transfer_seconds, std::int64_t period,
                     OpMode mode = OpMode::in_place);

}  // namespace dreamddp
