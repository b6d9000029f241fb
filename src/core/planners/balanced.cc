// Parts of the model spread over the iterations so that compute hides them: the default planner. Design
// section 5.
//
// Layers are walked from the tightest windows to the widest and given to the (iteration, window) pairs;
// within a pair neighbours are merged into ops; then pieces and ops are moved while that helps. The published
// bound is reached to a fraction of a percent where the link has no latency. What has to be searched for is
// the number of ops where it has one. Where averages in place stay behind and the user allows memory or
// delay, averages are held or carried.
#include <algorithm>
#include <utility>

#include "core/planners/algorithms.h"
#include "core/planners/balanced_fill.h"
#include "core/planners/balanced_improve.h"
#include "core/planners/balanced_memory.h"
#include "core/simulation_run.h"
#include "dreamddp/bound.h"

namespace dreamddp {
namespace {

using namespace balanced;

constexpr std::size_t num_improved = 2;                  // of the first schedules, the best ones
constexpr std::int64_t max_work_with_latency = 200'000;  // tens of milliseconds
constexpr std::int64_t max_work = 20'000;                // without latency all that can be saved are ops

constexpr double smallest_gain = 0.001;     // for which memory or delay is spent
constexpr double at_the_bound = 1e-6;       // nothing is faster by more
constexpr double max_partition_work = 4e6;  // milliseconds

/// O(H L^2), where H counts no more than L.
double partition_work(const Problem& problem) {
  const auto num_layers = static_cast<double>(problem.averaged.size());
  return std::min(static_cast<double>(problem.period), num_layers) * num_layers * num_layers;
}

Schedule best_schedule(const Problem& problem) {
  std::vector<Schedule> schedules;
  for (Assignment& assignment : fill_windows(problem)) {
    schedules.push_back(make_schedule(problem, std::move(assignment)));
  }
  std::ranges::stable_sort(schedules, {}, &Schedule::cost);
  for (std::size_t i = 0; i < num_improved; ++i) {
    improve(problem, schedules[i], problem.latency > 0 ? max_work_with_latency : max_work);
  }
  // Never worse than these.
  schedules.push_back(local_sgd_schedule(problem));
  schedules.push_back(equal_count_schedule(problem));
  return *std::ranges::min_element(schedules, {}, &Schedule::cost);
}

}  // namespace

Plan plan_balanced(const Profile& profile, const Link& link, const PlanOptions& options) {
  const Problem problem = make_problem(profile, link, options.period);
  const std::vector<double> transfers = layer_transfer_seconds(profile, link);
  const EventOrder order(profile);
  Plan best = plan_without_ops("balanced", profile, options.period);
  const auto plan_in_place = [&](const Problem& part) { return make_ops(part, best_schedule(part), order); };
  best.ops = plan_in_place(problem);
  const auto seconds_of = [&](const Plan& plan) {
    return steady_iteration_seconds(plan, profile, link, transfers);
  };
  double least = seconds_of(best);
  const auto consider = [&](Plan plan, double worthwhile) {
    const double seconds = seconds_of(plan);
    if (seconds >= least * (1 - worthwhile)) return;
    least = seconds;
    best.ops = std::move(plan.ops);
  };
  const auto bound = [&](OpMode mode) {
    return bound_seconds(profile, transfers,
                         {.period = options.period,
                          .mode = mode,
                          .latency_seconds = link.latency_seconds,
                          .in_flight = link.in_flight});
  };
  if (least > bound(OpMode::in_place) * (1 + at_the_bound) && partition_work(problem) <= max_partition_work)
    consider(plan_sequential(profile, link, options), 1e-9);
  const MemoryPlans with_memory{profile, options, problem, plan_in_place};
  const std::int64_t max_steps =
      std::min(options.max_delay, options.period - 1);  // a longer one spans itself
  // Long delays are tried ever more coarsely: what they gain over one another is little.
  for (std::int64_t steps = 0; steps <= max_steps; steps += std::max<std::int64_t>(1, steps / 8)) {
    if (least <= bound(steps == 0 ? OpMode::held : OpMode::carried) * (1 + smallest_gain)) continue;
    for (std::vector<Op>& ops : with_memory.crossing(steps)) {
      Plan plan = plan_without_ops("", profile, options.period);
      plan.ops = std::move(ops);
      consider(std::move(plan), smallest_gain);
    }
  }
  return best;
}

}  // namespace dreamddp
