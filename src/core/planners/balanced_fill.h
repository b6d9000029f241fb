// First assignments of layers to windows. Design section 5.
#pragma once

#include <vector>

#include "core/planners/balanced_problem.h"

namespace dreamddp::balanced {

/// Assignments that walk the layers from the tightest to the widest windows and waste little link time, each
/// with the least exposed time that its way of walking allows. Never empty; in no particular order.
std::vector<Assignment> fill_windows(const Problem& problem);

}  // namespace dreamddp::balanced
