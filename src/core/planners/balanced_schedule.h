// An assignment with its ops, and what it costs. Design section 5.
#pragma once

#include <array>
#include <vector>

#include "core/planners/balanced_merge.h"

namespace dreamddp::balanced {

/// A cycle with its ops.
struct TimedCycle {
  Cycle cycle;
  std::array<Merged, 2> merged;  ///< by window
};

/// What a planner compares. One op counts as a 100,000th of an iteration's compute beside the time that it
/// takes, so that of schedules that take the same time the one with fewer ops is the best.
double cost(const Problem& problem, double exposed_seconds, std::size_t num_ops);

std::size_t num_ops(const TimedCycle& timed);

/// The cost of a cycle, with the exact exposed time.
double cycle_cost(const Problem& problem, const TimedCycle& timed);

struct Schedule {
  std::vector<TimedCycle> cycles;  ///< at most H; the others are empty
  double cost = 0;                 ///< of the cycles together
};

/// Merges the pieces of each window into ops.
Schedule make_schedule(const Problem& problem, Assignment assignment);

/// Local SGD's: every layer in one op after a step.
Schedule local_sgd_schedule(const Problem& problem);

/// The one of the sequential partition with equal counts: every layer in an op of its own in the backward.
Schedule equal_count_schedule(const Problem& problem);

/// The ops of a period, in launch order.
std::vector<Op> make_ops(const Problem& problem, const Schedule& schedule, const EventOrder& order);

}  // namespace dreamddp::balanced
