#include "core/planners/sequential_partition.h"

#include <algorithm>
#include <numeric>

#include "core/planners/algorithms.h"
#include "core/planners/rounded_times.h"

namespace dreamddp {

SequentialProblem make_sequential_problem(const Profile& given, const Link& link, std::int64_t period) {
  const Profile profile = with_rounded_times(given);
  const std::vector<double> transfers = layer_transfer_seconds(profile, link);
  const std::vector<double> cover = cover_after_last_read(profile);
  const EventOrder order(profile);
  std::vector<std::size_t> layers = layers_with_parameters(profile);
  std::ranges::reverse(layers);
  std::ranges::stable_sort(layers, {},
                           [&](std::size_t layer) { return order.position(order.last_read(layer, 0)); });

  SequentialProblem problem;
  problem.period = static_cast<std::size_t>(period);
  problem.horizon = compute_seconds(profile) - profile.step_seconds;
  problem.latency = link.latency_seconds;
  problem.in_flight = std::min(static_cast<std::size_t>(link.in_flight), layers.size() + 1);
  double total = problem.horizon + problem.latency;
  for (const std::size_t layer : layers) {
    problem.layers.push_back({layer, problem.horizon - cover[layer], transfers[layer]});
    total += transfers[layer];
  }
  problem.resolution = 1e-9 * total;
  return problem;
}

SetClock::SetClock(const SequentialProblem& problem) : latency_(problem.latency) {
  if (!problem.is_one_by_one()) finishes_.resize(problem.in_flight);
}

std::vector<std::vector<std::size_t>> sets_of(const SequentialProblem& problem, const SetBegins& begins) {
  std::vector<std::vector<std::size_t>> sets(problem.period);
  for (std::size_t h = 0; h < begins.size(); ++h) {
    const std::size_t end = h + 1 < begins.size() ? begins[h + 1] : problem.layers.size();
    sets[h].resize(end - begins[h]);
    std::iota(sets[h].begin(), sets[h].end(), begins[h]);
  }
  return sets;
}

double exposed_seconds(const SequentialProblem& problem, const SetBegins& begins) {
  SetClock clock(problem);
  double exposed = 0;
  for (std::size_t h = 0; h < begins.size(); ++h) {
    const std::size_t end = h + 1 < begins.size() ? begins[h + 1] : problem.layers.size();
    clock.clear();
    for (std::size_t i = begins[h]; i < end; ++i) clock.launch(problem.layers[i]);
    exposed += problem.exposed_seconds(clock.finish());
  }
  return exposed;
}

Plan make_sequential_plan(std::string_view planner, const Profile& profile, const SequentialProblem& problem,
                          const std::vector<std::vector<std::size_t>>& sets) {
  Plan plan = plan_without_ops(planner, profile, static_cast<std::int64_t>(sets.size()));
  const EventOrder order(profile);
  for (std::size_t h = 0; h < sets.size(); ++h) {
    const auto iteration = static_cast<std::int64_t>(h);
    for (const std::size_t position : sets[h]) {
      const std::size_t layer = problem.layers[position].layer;
      plan.ops.push_back({.quantity = Quantity::parameters,
                          .segments = {{.layer = layer}},
                          .launch = order.last_read(layer, iteration),
                          .deadline = {iteration, EventKind::before_step, 0}});
    }
  }
  return plan;
}

}  // namespace dreamddp
