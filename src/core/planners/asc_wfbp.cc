// Wait-free backpropagation with small gradients merged and several transfers in flight: the best way to cut
// the gradients, in the order in which they become ready, into ops.
//
// Whether all can finish by a time F is decided from the end: the last op has to start a latency and its link
// time before F, the one before it early enough not to delay it, and so on. Let each op, walking back, take
// as many gradients as are ready when it has to start. Any other way to cut them starts no later where the
// same gradients are left, with no fewer ops, whatever the number in flight: so this one keeps F if any does.
// A binary search finds the least F. The last F that is kept gives the fewest ops, too.
#include <algorithm>
#include <optional>

#include "core/planners/algorithms.h"
#include "core/planners/rounded_times.h"

namespace dreamddp {
namespace {

struct TimedGradient {
  ReadyGradient gradient;
  double ready_seconds = 0;  ///< from the begin of the forward
  double link_seconds = 0;
};

struct GradientProblem {
  std::vector<TimedGradient> gradients;  ///< in the order in which they become ready
  double horizon = 0;                    ///< C - s
  double latency = 0;                    ///< a
  std::size_t in_flight = 1;             ///< m
  double resolution = 0;                 ///< times that differ by less are taken as equal
};

GradientProblem make_gradient_problem(const Profile& given, const Link& link) {
  const Profile profile = with_rounded_times(given);
  const std::vector<double> transfers = layer_transfer_seconds(profile, link);
  double now = 0;
  for (const Layer& layer : profile.layers) now += layer.forward_seconds;
  std::vector<double> backward_end(profile.layers.size());
  for (const std::size_t layer : backward_sequence(profile))
    backward_end[layer] = now += profile.layers[layer].backward_seconds;

  GradientProblem problem;
  problem.horizon = now;
  problem.latency = link.latency_seconds;
  double total = now + problem.latency;
  for (const ReadyGradient& gradient : ready_gradients(profile)) {
    problem.gradients.push_back({gradient, backward_end[gradient.ready.layer], transfers[gradient.layer]});
    total += transfers[gradient.layer];
  }
  problem.in_flight = std::min(static_cast<std::size_t>(link.in_flight), problem.gradients.size() + 1);
  problem.resolution = 1e-9 * total;
  return problem;
}

/// Where ops begin, the last one first; nothing where they cannot all finish by `due`.
std::optional<std::vector<std::size_t>> cut(const GradientProblem& problem, double due) {
  std::vector<std::size_t> begins;
  std::vector<double> starts;  // of the ops, the last one first
  for (std::size_t end = problem.gradients.size(); end > 0;) {
    const TimedGradient& last = problem.gradients[end - 1];
    // When the link must be free again, and when the latency must have passed for the op m places later.
    double link_due = starts.empty() ? due - problem.latency : starts.back();
    if (starts.size() >= problem.in_flight)
      link_due = std::min(link_due, starts[starts.size() - problem.in_flight] - problem.latency);
    double start = link_due;
    std::size_t begin = end;
    while (begin > 0 && start - problem.gradients[begin - 1].link_seconds >= last.ready_seconds)
      start -= problem.gradients[--begin].link_seconds;
    if (begin == end) return std::nullopt;
    begins.push_back(begin);
    starts.push_back(start);
    end = begin;
  }
  return begins;
}

std::vector<std::size_t> best_cut(const GradientProblem& problem) {
  // Nothing is gained by finishing before the backward ends.
  double too_early = problem.horizon + problem.resolution;
  if (auto begins = cut(problem, too_early)) return *begins;
  // One op for all, after the last gradient, always is a way.
  double kept = problem.horizon + problem.latency + problem.resolution;
  for (const TimedGradient& gradient : problem.gradients) kept += gradient.link_seconds;
  std::vector<std::size_t> begins = cut(problem, kept).value();
  while (kept - too_early > problem.resolution) {
    const double due = too_early + (kept - too_early) / 2;
    if (auto better = cut(problem, due)) {
      kept = due;
      begins = *better;
    } else {
      too_early = due;
    }
  }
  return begins;
}

}  // namespace

Plan plan_asc_wfbp(const Profile& profile, const Link& link, const PlanOptions&) {
  const GradientProblem problem = make_gradient_problem(profile, link);
  Plan plan = plan_without_ops("asc-wfbp", profile, 1);
  if (problem.gradients.empty()) return plan;
  std::vector<std::size_t> begins = best_cut(problem);
  std::ranges::reverse(begins);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : problem.gradients.size();
    std::vector<ReadyGradient> gradients;
    for (std::size_t g = begins[i]; g < end; ++g) gradients.push_back(problem.gradients[g].gradient);
    plan.ops.push_back(gradient_op(gradients));
  }
  return plan;
}

}  // namespace dreamddp
