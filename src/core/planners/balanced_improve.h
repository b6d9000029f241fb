// Local moves that make an assignment better. Design section 5.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/planners/balanced_merge.h"

namespace dreamddp::balanced {

/// A cycle with its ops.
struct TimedCycle {
  Cycle cycle;
  std::array<Merged, 2> merged;  ///< by window
};

struct Schedule {
  std::vector<TimedCycle> cycles;
  double exposed = 0;  ///< of a whole period, in seconds
  std::size_t num_ops = 0;
};

/// Merges each window's pieces into ops and times the cycles.
Schedule make_schedule(const Problem& problem, Assignment assignment);

/// Whether a takes less time than b, or about the same with fewer ops.
bool is_better(const Problem& problem, const Schedule& a, const Schedule& b);

/// Moves and exchanges pieces and ops, whole or in part, between windows while that helps.
/// @param max_trials stops after so many timed windows, so that large models are planned in bounded time
void improve(const Problem& problem, Schedule& schedule, std::int64_t max_trials);

}  // namespace dreamddp::balanced
