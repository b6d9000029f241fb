// Gradients merged, with several transfers in flight, so that the last of them ends as early as possible.
//
// Merging saves latencies but lets a gradient wait for later ones. With one op in flight a dynamic program
// finds the best cuts: a group starts when its last gradient is ready and the group before it has ended, and
// the earlier that one ends the better. With m in flight latencies overlap, about m at a time; so the program
// runs with several fractions of the latency, and what is kept is the result that the time model finds the
// fastest.
#include <algorithm>
#include <limits>

#include "core/planners/algorithms.h"

namespace dreamddp {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct GradientTimes {
  double ready = 0;         ///< seconds before the step, negative
  double link_seconds = 0;  ///< c_l
};

/// Where groups end, in the order of the gradients.
using Groups = std::vector<std::size_t>;

std::vector<GradientTimes> gradient_times(const Profile& given, const Link& link,
                                          const std::vector<ReadyGradient>& gradients) {
  const Profile profile = with_rounded_times(given);
  const std::vector<double> transfers = layer_transfer_seconds(profile, link);
  std::vector<double> rest_of_backward(profile.layers.size());  // after the layer's own
  const std::vector<std::size_t> backward = backward_sequence(profile);
  double rest = 0;
  for (std::size_t i = backward.size(); i > 0; --i) {
    rest_of_backward[backward[i - 1]] = rest;
    rest += profile.layers[backward[i - 1]].backward_seconds;
  }
  std::vector<GradientTimes> times;
  for (const ReadyGradient& gradient : gradients)
    times.push_back({-rest_of_backward[gradient.ready.layer], transfers[gradient.layer]});
  return times;
}

/// The end of the last transfer by the time model of design section 4, after (or before) the step.
double last_finish(const std::vector<GradientTimes>& gradients, const Groups& groups, double latency,
                   std::size_t in_flight) {
  std::vector<double> finishes;
  double link_free = -infinity;
  std::size_t begin = 0;
  for (const std::size_t end : groups) {
    double start = std::max(gradients[end - 1].ready, link_free);
    if (finishes.size() >= in_flight) start = std::max(start, finishes[finishes.size() - in_flight]);
    link_free = start;
    for (std::size_t i = begin; i < end; ++i) link_free += gradients[i].link_seconds;
    finishes.push_back(link_free + latency);
    begin = end;
  }
  return finishes.empty() ? -infinity : finishes.back();
}

/// The cuts with which the last group ends first, one op in flight; of these the fewest groups. O(L^2).
Groups best_groups(const std::vector<GradientTimes>& gradients, double latency, double resolution) {
  const std::size_t num_gradients = gradients.size();
  std::vector<double> link_until(num_gradients + 1, 0);
  for (std::size_t i = 0; i < num_gradients; ++i)
    link_until[i + 1] = link_until[i] + gradients[i].link_seconds;
  std::vector<double> finish(num_gradients + 1, infinity);  // of gradients [0, end)
  std::vector<std::size_t> begin_of_last(num_gradients + 1, 0);
  std::vector<std::size_t> num_groups(num_gradients + 1, 0);
  finish[0] = -infinity;
  for (std::size_t end = 1; end <= num_gradients; ++end) {
    for (std::size_t begin = 0; begin < end; ++begin) {
      const double start = std::max(gradients[end - 1].ready, finish[begin]);
      const double candidate = start + (link_until[end] - link_until[begin]) + latency;
      const bool is_faster = candidate < finish[end] - resolution;
      const bool is_as_fast = candidate <= finish[end] + resolution;
      if (!is_faster && !(is_as_fast && num_groups[begin] + 1 < num_groups[end])) continue;
      finish[end] = candidate;
      begin_of_last[end] = begin;
      num_groups[end] = num_groups[begin] + 1;
    }
  }
  Groups groups;
  for (std::size_t end = num_gradients; end > 0; end = begin_of_last[end]) groups.push_back(end);
  std::ranges::reverse(groups);
  return groups;
}

}  // namespace

Plan plan_asc_wfbp(const Profile& profile, const Link& link, const PlanOptions&) {
  const std::vector<ReadyGradient> gradients = ready_gradients(profile);
  const std::vector<GradientTimes> times = gradient_times(profile, link, gradients);
  const double resolution = 1e-9 * (compute_seconds(profile) + link.latency_seconds);
  const auto in_flight = static_cast<std::size_t>(link.in_flight);
  const double share = link.latency_seconds / static_cast<double>(link.in_flight);
  Groups best;
  double least = infinity;
  for (const double latency : {link.latency_seconds, 2 * share, share, share / 2, 0.0}) {
    Groups groups = best_groups(times, std::min(latency, link.latency_seconds), resolution);
    const double exposed = std::max(0.0, last_finish(times, groups, link.latency_seconds, in_flight));
    const bool is_as_fast = exposed <= least + resolution;
    if (!(exposed < least - resolution) && !(is_as_fast && groups.size() < best.size())) continue;
    least = exposed;
    best = std::move(groups);
  }
  Plan plan = plan_without_ops("asc-wfbp", profile, 1);
  auto begin = gradients.begin();
  for (const std::size_t end : best) {
    const auto last = gradients.begin() + static_cast<std::ptrdiff_t>(end);
    plan.ops.push_back(gradient_op({begin, last}));
    begin = last;
  }
  return plan;
}

}  // namespace dreamddp
