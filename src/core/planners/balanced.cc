// Parts of the model spread over the iterations so that compute hides them: the default planner. Design
// section 5.
//
// Layers are walked from the tightest windows to the widest and given to the (iteration, window) pairs;
// within a pair neighbours are merged into ops; then pieces and ops are moved while that helps. The published
// bound is reached to a fraction of a percent where the link has no latency. What has to be searched for is
// the number of ops where it has one.
#include <algorithm>
#include <utility>

#include "core/planners/algorithms.h"
#include "core/planners/balanced_fill.h"
#include "core/planners/balanced_improve.h"

namespace dreamddp {
namespace {

using namespace balanced;

constexpr std::size_t num_improved = 2;                  // of the first schedules, the best ones
constexpr std::int64_t max_work_with_latency = 200'000;  // tens of milliseconds
constexpr std::int64_t max_work = 20'000;                // without latency all that can be saved are ops

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
  Plan plan = plan_without_ops("balanced", profile, options.period);
  plan.ops = make_ops(problem, best_schedule(problem), EventOrder(profile));
  return plan;
}

}  // namespace dreamddp
