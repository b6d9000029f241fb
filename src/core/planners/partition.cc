#include "core/planners/partition.h"

#include <algorithm>
#include <string>

#include "core/planners/algorithms.h"
#include "core/planners/balanced_problem.h"
#include "dreamddp/error.h"

namespace dreamddp {

PartitionProblem make_partition_problem(const Profile& profile, const Link& link, std::int64_t period) {
  const balanced::Problem rounded = balanced::make_problem(profile, link, period);
  PartitionProblem problem{.layers = {},
                           .period = rounded.period,
                           .latency = rounded.latency,
                           .in_flight = rounded.in_flight,
                           .resolution = rounded.resolution};
  std::vector<std::size_t> layers = layers_with_parameters(profile);
  const auto rank = [&](std::size_t l) { return rounded.layers[l].rank[balanced::backward_window]; };
  std::ranges::sort(layers, std::ranges::greater{}, rank);  // ranks are distinct
  for (const std::size_t l : layers) {
    problem.layers.push_back({.layer = l,
                              .link_seconds = rounded.layers[l].link_seconds,
                              .cover_seconds = rounded.layers[l].cover[balanced::backward_window]});
  }
  return problem;
}

void require_manageable(std::string_view planner, const PartitionProblem& problem) {
  constexpr std::size_t max_entries = std::size_t{1} << 26;  // below 1 GB
  const std::size_t num_layers = std::max<std::size_t>(problem.layers.size(), 1);
  if (problem.period <= max_entries / num_layers) return;
  reject({.field = "period",
          .value = std::to_string(problem.period),
          .allowed = "at most " + std::to_string(max_entries / num_layers) + " for " +
                     std::to_string(num_layers) + " layers by '" + std::string(planner) + "'",
          .remedy = "Give a shorter period, or use the planner 'balanced'."});
}

void SetTimes::add(const PartitionLayer& layer) {
  const std::size_t in_flight = problem_->in_flight;
  double start = -layer.cover_seconds;
  if (num_ops_ > 0) start = std::max(start, in_flight == 1 ? last_finish_ : link_free_);
  if (in_flight > 1) {
    if (num_ops_ >= in_flight) {
      start = std::max(start, finishes_[num_ops_ % in_flight]);
    } else {
      finishes_.push_back(0);
    }
  }
  link_free_ = start + layer.link_seconds;
  last_finish_ = link_free_ + problem_->latency;
  if (in_flight > 1) finishes_[num_ops_ % in_flight] = last_finish_;
  ++num_ops_;
}

double SetTimes::exposed_seconds() const { return num_ops_ == 0 ? 0 : std::max(0.0, last_finish_); }

double exposed_seconds(const PartitionProblem& problem, std::size_t begin, std::size_t end) {
  SetTimes set(problem);
  for (std::size_t i = begin; i < end; ++i) set.add(problem.layers[i]);
  return set.exposed_seconds();
}

double exposed_seconds(const PartitionProblem& problem, const Partition& partition) {
  double seconds = 0;
  std::size_t begin = 0;
  for (const std::size_t end : partition) {
    seconds += exposed_seconds(problem, begin, end);
    begin = end;
  }
  return seconds;
}

Plan partition_plan(std::string_view planner, const Profile& profile, const PartitionProblem& problem,
                    const Partition& partition) {
  return partition_plan(planner, profile, problem, partition, std::vector<std::size_t>(partition.size(), 0));
}

Plan partition_plan(std::string_view planner, const Profile& profile, const PartitionProblem& problem,
                    const Partition& partition, const std::vector<std::size_t>& extra) {
  Plan plan = plan_without_ops(planner, profile, static_cast<std::int64_t>(problem.period));
  const EventOrder order(profile);
  std::size_t begin = 0;
  for (std::size_t h = 0; h < partition.size(); ++h) {
    const auto iteration = static_cast<std::int64_t>(h);
    const auto average = [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        const std::size_t layer = problem.layers[i].layer;
        plan.ops.push_back({.quantity = Quantity::parameters,
                            .segments = {{.layer = layer}},
                            .launch = order.last_read(layer, iteration),
                            .deadline = {iteration, EventKind::before_step, 0}});
      }
    };
    average(0, std::min(extra[h], begin));
    average(begin, std::max(partition[h], extra[h]));
    begin = partition[h];
  }
  return plan;
}

}  // namespace dreamddp
