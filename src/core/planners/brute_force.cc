// The best sequential partition by trying all of them: a check on the other planners of partitions.
#include <string>

#include "core/planners/algorithms.h"
#include "core/planners/published_search.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr double max_partitions = 2e6;  // about a second

/// Ways to cut L layers into H consecutive sets, empty ones allowed: L+H-1 over H-1.
double num_partitions(std::size_t num_layers, std::size_t num_sets) {
  double ways = 1;
  for (std::size_t h = 1; h < num_sets && ways <= max_partitions; ++h)
    ways *= static_cast<double>(num_layers + h) / static_cast<double>(h);
  return ways;
}

}  // namespace

Plan plan_brute_force(const Profile& profile, const Link& link, const PlanOptions& options) {
  const PartitionProblem problem = make_partition_problem(profile, link, options.period);
  if (num_partitions(problem.layers.size(), problem.period) > max_partitions) {
    reject({.field = "period",
            .value = std::to_string(options.period),
            .allowed = "a period by which 'brute-force' has at most 2 million ways to cut " +
                       std::to_string(problem.layers.size()) + " layers",
            .remedy = "Use the planner 'sequential', which finds the same optimum at any size."});
  }
  const SearchResult found =
      search_partition(problem, {.at_least_one = false, .optimal_hiding = false, .delayed_overflow = false});
  if (options.search != nullptr) *options.search = found.statistics;
  return partition_plan("brute-force", profile, problem, found.partition);
}

}  // namespace dreamddp
