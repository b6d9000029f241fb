// Parts of the model spread over the iterations so that compute hides them. Design section 5.
#include <algorithm>
#include <cstdlib>
#include <cstdio>
#include <utility>

#include "core/planners/algorithms.h"
#include "core/planners/balanced_assign.h"
#include "core/planners/balanced_improve.h"

namespace dreamddp {
namespace balanced {
namespace {

/// The op of one group in its window; cycle h is the one of iteration h.
Op make_op(const Problem& problem, const EventOrder& order, const std::vector<Piece>& pieces, const Group& group, Window window,
           std::int64_t cycle) {
  Op op;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const Segment& segment = pieces[i].segment;
    // Shares of a layer that meet again are one.
    if (!op.segments.empty() && op.segments.back().layer == segment.layer &&
        op.segments.back().end == segment.begin) {
      op.segments.back().end = segment.end;
    } else {
      op.segments.push_back(segment);
    }
  }
  const std::size_t first = pieces[group.begin].segment.layer;
  if (window == backward_window) {
    op.launch = order.last_read(first, cycle);
    op.deadline = {cycle, EventKind::before_step, 0};
  } else {
    // The forward window of cycle 0 was opened by the last step of the period before.
    const std::int64_t iteration = cycle == 0 ? problem.period : cycle;
    op.launch = {iteration - 1, EventKind::after_step, 0};
    op.deadline = {iteration, EventKind::before_forward, first};
  }
  return op;
}

std::vector<Op> make_ops(const Problem& problem, const Schedule& schedule, const EventOrder& order) {
  std::vector<Op> ops;
  for (std::int64_t h = 0; h < problem.period; ++h) {
    const TimedCycle& now = schedule.cycles[static_cast<std::size_t>(h)];
    const auto& backward = now.merged[backward_window].groups;
    for (auto group = backward.rbegin(); group != backward.rend(); ++group) {
      ops.push_back(make_op(problem, order, now.cycle[backward_window], *group, backward_window, h));
    }
    const std::int64_t next = (h + 1) % problem.period;
    const TimedCycle& after = schedule.cycles[static_cast<std::size_t>(next)];
    for (const Group& group : after.merged[forward_window].groups) {
      ops.push_back(make_op(problem, order, after.cycle[forward_window], group, forward_window, next));
    }
  }
  return ops;
}

}  // namespace
}  // namespace balanced

Plan plan_balanced(const Profile& profile, const Link& link, const PlanOptions& options) {
  using namespace balanced;
  const Problem problem = make_problem(profile, link, options.period);
  Plan plan = plan_without_ops("balanced", profile, options.period);
  std::vector<Schedule> all;
  const double e=problem.unavoidable;
  for (double share : {0.0, 0.5, 1.0})
    all.push_back(make_schedule(problem, assign(problem, whole_layers(problem), {.exposed = {share*e, (1-share)*e}, .latency = 0, .may_split = true})));
  const int kmax = getenv("KMAX") ? atoi(getenv("KMAX")) : 8;
  if (problem.latency > 0) for (int k = 1; k <= kmax; ++k)
    for (double share : {0.0, 0.5, 1.0})
    all.push_back(make_schedule(problem, assign(problem, equal_parts(problem, k * problem.period), {.exposed = {share*e, (1-share)*e}, .latency = problem.latency, .may_split = false})));
  std::stable_sort(all.begin(), all.end(), [&](const Schedule& a, const Schedule& b) { return is_better(problem, a, b); });
  if (getenv("VERB")) { printf("\n"); for (auto& s : all) printf("%.4f ", (s.exposed/problem.period+problem.horizon)/(problem.horizon+e)); }
  size_t n = getenv("NIMP") ? atoi(getenv("NIMP")) : 3;
  all.resize(std::min(all.size(), n));
  Schedule best = all[0];
  for (auto& s : all) { if (n) improve(problem, s, getenv("TR") ? atoi(getenv("TR")) : 20000); 
  if (getenv("VERB")) printf(">%.4f ", (s.exposed/problem.period+problem.horizon)/(problem.horizon+e));
  if (is_better(problem, s, best)) best = s; }
  plan.ops = make_ops(problem, best, EventOrder(profile));
  return plan;
}

}  // namespace dreamddp
