// Bubble filling: more averages in the time in which the link would be idle. Design section 7.
#pragma once

#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// Averages layers more often than the plan does, as long as the simulated time of its period stays the same.
///
/// Iteration by iteration, the layers that drift most come first; each is added whole, as an op of its own in
/// the backward window, unless it is in flight in that window already or the period would grow. A layer that
/// is read last no earlier, and takes no less link time, than one that did not fit is not tried. Traffic
/// grows. The work is bounded, so plans of many thousand ops may keep some bubbles. A plan that averages
/// gradients is returned as it is: its workers do not drift apart.
///
/// @param plan valid for `profile`
/// @param drift for every layer, how far workers drift apart in it between two averages, on any scale; layers
///   with equal drift are taken in the order of their last reads, so the output side comes first. Empty: all
///   are equal
/// @throws std::invalid_argument where `drift` has another length than the profile, or an entry that is not
///   finite or negative; where plan, profile or link are not valid or do not fit together
Plan fill_bubbles(const Plan& plan, const Profile& profile, const Link& link,
                  const std::vector<double>& drift = {});

}  // namespace dreamddp
