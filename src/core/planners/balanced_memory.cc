#include "core/planners/balanced_memory.h"

#include <algorithm>
#include <utility>

#include "core/planners/algorithms.h"

namespace dreamddp::balanced {
namespace {

double link_seconds_of(const Problem& problem, const std::vector<std::size_t>& layers) {
  double seconds = 0;
  for (const std::size_t layer : layers) seconds += problem.layers[layer].link_seconds;
  return seconds;
}

/// Cuts the layers into parts of equal link time, or of equal numbers of layers where they take none.
std::vector<std::vector<Segment>> cut_evenly(const Problem& problem, const std::vector<std::size_t>& layers,
                                             std::size_t num_parts) {
  const double total = link_seconds_of(problem, layers);
  const auto length_of = [&](std::size_t layer) {
    return total > 0 ? problem.layers[layer].link_seconds : 1.0;
  };
  const double part =
      (total > 0 ? total : static_cast<double>(layers.size())) / static_cast<double>(num_parts);
  std::vector<std::vector<Segment>> parts(num_parts);
  std::size_t current = 0;
  double room = part;
  for (const std::size_t layer : layers) {
    const double length = length_of(layer);
    Segment rest{.layer = layer};
    // The last part takes what rounding leaves over.
    while (current + 1 < num_parts && (1 - rest.begin) * length > room * (1 + 1e-9)) {
      const double end = std::clamp(rest.begin + room / length, rest.begin, 1.0);
      if (end > rest.begin) parts[current].push_back({.layer = layer, .begin = rest.begin, .end = end});
      rest.begin = end;
      ++current;
      room = part;
    }
    if (rest.begin < 1) parts[current].push_back(rest);
    room -= (1 - rest.begin) * length;
  }
  return parts;
}

}  // namespace

std::int64_t bookable_bytes(const PlanOptions& options) {
  return options.staging_bytes - std::min(options.staging_bytes, default_staging_bytes);
}

std::vector<std::vector<Op>> MemoryPlans::crossing(std::int64_t steps) const {
  const bool sizes_known =
      std::ranges::all_of(profile.layers, [](const Layer& l) { return l.num_bytes.has_value(); });
  const auto period = static_cast<std::int64_t>(problem.period);
  if (!sizes_known || steps + 1 > period) return {};
  const std::int64_t copies = steps == 0 ? 1 : 2 * (steps + 1);  // in flight at once, with their snapshots
  // A latency that is longer than the window is exposed wherever there is an op: once in a period is best.
  const double window = problem.horizon * static_cast<double>(steps + 1);
  const std::size_t num_parts = problem.latency < window ? problem.period : 1;
  const double budget = static_cast<double>(bookable_bytes(options)) / static_cast<double>(copies) *
                        static_cast<double>(num_parts);
  const EventOrder order(profile);
  std::vector<std::vector<Op>> plans;
  std::size_t last_count = 0;
  for (const double fraction : {1.0, 0.5, 0.25, 0.125}) {
    double left = budget * fraction;
    Problem rest = problem;
    std::vector<std::size_t> booked;
    const auto fits = [&](std::size_t layer) {
      left -= static_cast<double>(*profile.layers[layer].num_bytes);
      return left >= 0;
    };
    const auto end = std::ranges::find_if_not(problem.averaged, fits);
    booked.assign(problem.averaged.begin(), end);
    if (booked.empty() || booked.size() == last_count) continue;
    last_count = booked.size();
    rest.averaged.assign(end, problem.averaged.end());
    rest.horizon =
        std::max(0.0, rest.horizon - link_seconds_of(problem, booked) / static_cast<double>(num_parts));
    std::ranges::sort(booked);
    std::vector<Op> ops;
    if (!rest.averaged.empty()) ops = plan_in_place(rest);
    std::int64_t iteration = 0;
    for (std::vector<Segment>& segments : cut_evenly(problem, booked, num_parts)) {
      if (!segments.empty()) {
        ops.push_back({.quantity = Quantity::parameters,
                       .segments = std::move(segments),
                       .launch = {iteration, EventKind::after_step, 0},
                       .deadline = {iteration + 1 + steps, EventKind::before_step, 0}});
      }
      ++iteration;
    }
    // What is due earlier goes first.
    std::ranges::stable_sort(ops, {}, [&](const Op& op) { return order.position(op.launch); });
    Plan plan = plan_without_ops("balanced", profile, period);
    plan.ops = std::move(ops);
    if (booked_bytes(plan, profile) <= bookable_bytes(options)) plans.push_back(std::move(plan.ops));
    if (rest.averaged.empty() && !plans.empty()) break;  // with all layers booked, less memory gains nothing
  }
  return plans;
}

}  // namespace dreamddp::balanced
