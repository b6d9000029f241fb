#include "core/simulation_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dreamddp {
namespace {

// Where periods neither repeat nor drift evenly for so long, their mean is known to a part in as many.
constexpr int most_periods = 20000;

VirtualClock::State combine(const VirtualClock::State& a, double factor, const VirtualClock::State& b) {
  VirtualClock::State sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + factor * b[i];
  return sum;
}

/// Moves the clock on by many periods at once where each adds the same `drift` to the state: a link that
/// falls a little more behind in every period, until something waits for it.
///
/// A period is a convex function of its state. So where it adds the same drift at the beginning and one
/// period later, it adds at least that everywhere further on, and exactly that up to any point where it does.
void skip_even_drift(VirtualClock& clock, const VirtualClock::State& drift) {
  VirtualClock::State reached = clock.state();
  for (int doublings = 0; doublings < 50; ++doublings) {
    const VirtualClock::State ahead = combine(reached, std::ldexp(1.0, doublings), drift);
    clock.set_state(ahead);
    clock.run_period();
    if (!clock.are_close(clock.state(), combine(ahead, 1, drift))) break;
    reached = clock.state();
  }
  clock.set_state(reached);
}

}  // namespace

VirtualClock::VirtualClock(const ActionTape& tape, std::vector<double> op_seconds, const Link& link)
    : tape_(tape),
      op_seconds_(std::move(op_seconds)),
      latency_seconds_(link.latency_seconds),
      num_remembered_(tape.longest_wait),
      // An op further back than the longest wait has been waited for, so it is not on the link.
      in_flight_(static_cast<std::size_t>(link.in_flight) < num_remembered_
                     ? static_cast<std::size_t>(link.in_flight)
                     : 0),
      state_(1 + num_remembered_),
      finishes_(num_remembered_ + tape.num_launches) {
  double period_seconds = tape.compute_seconds_after;
  for (const TapeStep& step : tape.steps)
    period_seconds +=
        step.compute_seconds_before + (step.is_launch ? op_seconds_[step.op] + latency_seconds_ : 0);
  rounding_seconds_ = 1e-13 * period_seconds;
}

bool VirtualClock::are_close(const State& a, const State& b) const {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > rounding_seconds_) return false;
  return true;
}

double VirtualClock::run_period(std::vector<StepTimes>* times) {
  double now = 0;
  double waited = 0;
  double link_free = state_[0];
  std::copy(state_.begin() + 1, state_.end(), finishes_.begin());
  std::size_t next = num_remembered_;  // index of the next launch in finishes_
  if (times != nullptr) times->clear();
  for (const TapeStep& step : tape_.steps) {
    now += step.compute_seconds_before;
    StepTimes span{now, now};
    if (step.is_launch) {
      span.begin_seconds = std::max(now, link_free);
      if (in_flight_ > 0) span.begin_seconds = std::max(span.begin_seconds, finishes_[next - in_flight_]);
      link_free = span.begin_seconds + op_seconds_[step.op];
      span.end_seconds = link_free + latency_seconds_;
      finishes_[next++] = span.end_seconds;
    } else {
      now = std::max(now, finishes_[next - step.launches_ago]);
      span.end_seconds = now;
      waited += span.end_seconds - span.begin_seconds;
    }
    if (times != nullptr) times->push_back(span);
  }
  now += tape_.compute_seconds_after;
  state_[0] = std::max(0.0, link_free - now);
  for (std::size_t i = 0; i < num_remembered_; ++i)
    state_[1 + i] = std::max(0.0, finishes_[tape_.num_launches + i] - now);
  return waited;
}

std::vector<double> op_link_seconds(const Plan& plan, const std::vector<double>& transfer_seconds) {
  std::vector<double> seconds(plan.ops.size());
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    for (const Segment& segment : plan.ops[i].segments)
      seconds[i] += (segment.end - segment.begin) * transfer_seconds[segment.layer];
  return seconds;
}

// Without carried ops nothing is in flight where periods meet, and the second one repeats the first. With
// them the state may drift for long, or repeat only after several periods (Brent's cycle search: compare
// with an anchor that is moved to the present at every power of two).
double steady_wait_seconds(VirtualClock& clock) {
  VirtualClock::State anchor = clock.state();
  VirtualClock::State last_drift;
  double waited = 0;  // since the anchor
  int num_periods = 0;
  int anchor_life = 1;
  for (int period = 0; period < most_periods; ++period) {
    const VirtualClock::State before = clock.state();
    if (num_periods == anchor_life) {
      anchor = before;
      anchor_life *= 2;
      num_periods = 0;
      waited = 0;
    }
    const double waited_now = clock.run_period();
    waited += waited_now;
    ++num_periods;
    if (clock.are_close(clock.state(), before)) return waited_now;
    if (clock.are_close(clock.state(), anchor)) break;
    VirtualClock::State drift = combine(clock.state(), -1, before);
    if (!last_drift.empty() && clock.are_close(combine(before, 1, last_drift), clock.state())) {
      // The drift adds the same wait in every period, so it leaves the mean alone.
      skip_even_drift(clock, drift);
      last_drift.clear();
    } else {
      last_drift = std::move(drift);
    }
  }
  return waited / num_periods;
}

double steady_iteration_seconds(const Plan& plan, const Profile& profile, const Link& link,
                                const std::vector<double>& transfer_seconds) {
  const ActionTape tape = record_period(plan, profile);
  VirtualClock clock(tape, op_link_seconds(plan, transfer_seconds), link);
  return compute_seconds(profile) + steady_wait_seconds(clock) / static_cast<double>(plan.period);
}

}  // namespace dreamddp
