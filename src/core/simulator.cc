#include "dreamddp/simulator.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/simulated_timeline.h"
#include "core/simulation_run.h"
#include "dreamddp/bound.h"

namespace dreamddp {
namespace {

OpMode most_permissive_mode(const Plan& plan, const Profile& profile) {
  const EventOrder order(profile, plan.update);
  OpMode most = OpMode::in_place;
  for (const Op& op : plan.ops) most = std::max(most, op_mode(op, order));
  return most;
}

/// A plan of gradients averages all of them in every iteration, each within a part of its layer's in-place
/// windows: the in-place bound of period 1 holds.
std::int64_t bound_period(const Plan& plan) {
  const bool has_gradients_only =
      std::ranges::all_of(plan.ops, [](const Op& op) { return op.quantity == Quantity::gradients; });
  return has_gradients_only ? 1 : plan.period;
}

/// Mean per iteration; absent where the size of a layer that an op carries is unknown.
std::optional<double> bytes_per_iteration(const Plan& plan, const Profile& profile) {
  double num_bytes = 0;
  for (const Op& op : plan.ops) {
    for (const Segment& segment : op.segments) {
      const Layer& layer = profile.layers[segment.layer];
      if (!layer.num_bytes) return std::nullopt;
      num_bytes += (segment.end - segment.begin) * static_cast<double>(*layer.num_bytes);
    }
  }
  return num_bytes / static_cast<double>(plan.period);
}

}  // namespace

Simulation simulate(const Plan& plan, const Profile& profile, const Link& link,
                    const SimulationOptions& options) {
  validate(profile);
  validate(plan, profile);
  validate(link);
  const std::vector<double> transfer_seconds = layer_transfer_seconds(profile, link);
  const std::vector<double> op_seconds = op_link_seconds(plan, transfer_seconds);
  const auto period = static_cast<double>(plan.period);

  const ActionTape tape = record_period(plan, profile);
  VirtualClock clock(tape, op_seconds, link);
  Simulation simulation;
  simulation.compute_seconds = compute_seconds(profile);
  simulation.exposed_seconds = steady_wait_seconds(clock) / period;
  simulation.iteration_seconds = simulation.compute_seconds + simulation.exposed_seconds;
  simulation.link_seconds = std::accumulate(op_seconds.begin(), op_seconds.end(), 0.0) / period;
  simulation.limit_seconds = std::max(simulation.compute_seconds, simulation.link_seconds);
  simulation.bound_seconds = bound_seconds(profile, transfer_seconds,
                                           {.period = bound_period(plan),
                                            .mode = most_permissive_mode(plan, profile),
                                            .latency_seconds = link.latency_seconds,
                                            .in_flight = link.in_flight,
                                            .update = plan.update});
  if (simulation.bound_seconds > 0)
    simulation.gap = simulation.iteration_seconds / simulation.bound_seconds - 1;
  else if (simulation.iteration_seconds > 0)
    simulation.gap = std::numeric_limits<double>::infinity();
  simulation.ops_per_iteration = static_cast<double>(plan.ops.size()) / period;
  simulation.staging_bytes = options.staging_bytes + booked_bytes(plan, profile);
  simulation.bytes_per_iteration = bytes_per_iteration(plan, profile);
  if (options.timeline != nullptr) *options.timeline = simulated_timeline(plan, profile, tape, clock);
  return simulation;
}

}  // namespace dreamddp
