// The published schedule: a depth-first search for a sequential partition, then bubble filling. Design
// section 7.
#include <algorithm>

#include "core/planners/algorithms.h"
#include "core/planners/published_search.h"

namespace dreamddp {
namespace {

/// How many of the first layers iteration h can average beside its own set [begin, end) while its time stays
/// the same. The time only grows with their number.
std::size_t num_filled(const PartitionProblem& problem, std::size_t begin, std::size_t end) {
  const double allowed = exposed_seconds(problem, begin, end) + problem.resolution;
  const auto fits = [&](std::size_t count) {
    SetTimes set(problem);
    for (std::size_t i = 0; i < std::min(count, begin); ++i) set.add(problem.layers[i]);
    for (std::size_t i = begin; i < std::max(count, end); ++i) set.add(problem.layers[i]);
    return set.exposed_seconds() <= allowed;
  };
  std::size_t low = 0;
  std::size_t high = problem.layers.size();
  while (low < high) {
    const std::size_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

std::vector<std::size_t> fill_partition(const PartitionProblem& problem, const Partition& partition) {
  std::vector<std::size_t> extra;
  std::size_t begin = 0;
  for (const std::size_t end : partition) {
    const bool is_like_the_last = begin == end && extra.size() > 1 && partition[extra.size() - 2] == end;
    extra.push_back(is_like_the_last ? extra.back() : num_filled(problem, begin, end));
    begin = end;
  }
  return extra;
}

Plan plan_dreamddp(const Profile& profile, const Link& link, const PlanOptions& options) {
  const PartitionProblem problem = make_partition_problem(profile, link, options.period);
  require_manageable("dreamddp", problem);
  const SearchResult found =
      search_partition(problem, {.max_nodes = options.max_nodes, .max_seconds = options.max_seconds});
  if (options.search != nullptr) *options.search = found.statistics;
  return partition_plan("dreamddp", profile, problem, found.partition,
                        fill_partition(problem, found.partition));
}

}  // namespace dreamddp
