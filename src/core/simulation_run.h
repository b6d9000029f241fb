// The virtual clock: times a recorded period again and again until it is steady.
//
// For callers that have validated plan, profile and link: simulate() and the planners.
#pragma once

#include <cstddef>
#include <vector>

#include "core/action_tape.h"
#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// When a step of the tape took place, from the beginning of the period: for a launch the op's time on the
/// link, start_i to finish_i; for a wait the time that compute stood still.
struct StepTimes {
  double begin_seconds = 0;
  double end_seconds = 0;
};

/// start_i = max(ready_i, start_{i-1} + x_{i-1}, finish_{i-m}); finish_i = start_i + x_i + a.
class VirtualClock {
 public:
  /// What one period leaves to the next, as times after its end; 0 for what is over by then.
  using State = std::vector<double>;

  /// @param tape kept by reference
  /// @param op_seconds x_i for every op of the plan
  VirtualClock(const ActionTape& tape, std::vector<double> op_seconds, const Link& link);

  /// Runs one period.
  /// @param times filled with one entry for each step of the tape, when not null
  /// @return for how long compute waited
  double run_period(std::vector<StepTimes>* times = nullptr);

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }
  /// Whether states differ by rounding only.
  bool are_close(const State& a, const State& b) const;

 private:
  const ActionTape& tape_;
  std::vector<double> op_seconds_;
  double latency_seconds_;
  double rounding_seconds_;
  std::size_t num_remembered_;  ///< launches of the period before that this one may ask for
  std::size_t in_flight_;       ///< m, or 0 where it never holds a launch back
  State state_;                 ///< start + x of the last launch, then finishes of remembered launches
  std::vector<double> finishes_;
};

/// x_i = sum of fraction * c_l, for every op.
std::vector<double> op_link_seconds(const Plan& plan, const std::vector<double>& transfer_seconds);

/// Runs periods until they repeat, one by one or in a cycle.
/// @return mean of the time for which compute waits in a period
double steady_wait_seconds(VirtualClock& clock);

/// Mean iteration time in the steady state; simulate() without its checks and its report.
double steady_iteration_seconds(const Plan& plan, const Profile& profile, const Link& link,
                                const std::vector<double>& transfer_seconds);

}  // namespace dreamddp
