// Averages more than a plan must, in time that costs nothing. Design section 7.
#pragma once

#include <cstddef>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// Adds averages of layers to every iteration in which they are not averaged anyway, the most drifting first,
/// for as long as the simulated time of the period stays the same. A layer that does not fit is tried by half
/// and by a quarter. The traffic grows, the drift between workers falls.
///
/// Costs a few dozen simulations for each iteration of the period.
/// @param drift_order layers, the most drifting first; those left out are not added. Empty: all, from the
/// output
///   side on
/// @throws std::invalid_argument for a plan of gradients, a layer out of range or twice in drift_order, and
/// where
///   plan, profile or link are not valid or do not fit together
Plan fill_bubbles(const Plan& plan, const Profile& profile, const Link& link,
                  const std::vector<std::size_t>& drift_order = {});

}  // namespace dreamddp
