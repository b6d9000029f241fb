// Plans that hold or carry averages, within the memory that the user allows. Design sections 3 and 5.
#pragma once

#include <functional>
#include <vector>

#include "core/planners/balanced_problem.h"
#include "dreamddp/planner.h"

namespace dreamddp::balanced {

/// What an iteration books is launched at the end of a step, in one op, and due d steps later before the
/// step: d = 0 holds it, d >= 1 carries it. All iterations book the same share of the link time (or one books
/// all, where the latency is longer than the window), of the layers with the tightest windows; what does not
/// fit into the memory is averaged in place.
struct MemoryPlans {
  const Profile& profile;
  const PlanOptions& options;
  const Problem& problem;
  /// Ops in place for the problem's layers.
  std::function<std::vector<Op>(const Problem&)> plan_in_place;

  /// Plans that cross d steps, with all the memory and with parts of it. Empty where sizes are unknown, as
  /// they decide what fits, or where nothing fits.
  std::vector<std::vector<Op>> crossing(std::int64_t steps) const;
};

/// Memory for held and carried averages: what the user allows beyond the staging ring.
std::int64_t bookable_bytes(const PlanOptions& options);

}  // namespace dreamddp::balanced
