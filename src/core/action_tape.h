// What the scheduler answers in one period of the time model, in which every event comes in its place.
//
// The answers do not depend on the clock, so they are worked out once and timed as often as it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// Compute launches an op, or waits for one.
struct TapeStep {
  bool is_launch = false;
  std::uint32_t op = 0;
  /// For a wait: how many launches ago the op was launched; 1 is the last launch before this step.
  std::uint32_t launches_ago = 0;
  std::size_t piece = 0;  ///< index of the compute piece that follows: F_1 .. F_L, backwards, S, F_1 ..
  double compute_seconds_before = 0;  ///< between the step before this one, or the beginning, and this one
};

/// One period in the steady state. It begins when the optimizer step in front of its first iteration has
/// ended, with the launches that follow that step.
struct ActionTape {
  std::vector<TapeStep> steps;
  double compute_seconds_after = 0;  ///< between the last step and the end of the period
  std::size_t num_launches = 0;
  std::size_t longest_wait = 0;  ///< the largest launches_ago
};

/// @param plan valid for `profile`
ActionTape record_period(const Plan& plan, const Profile& profile);

}  // namespace dreamddp
