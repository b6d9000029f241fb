// The published planner: a depth-first search for a sequential partition, then bubble filling. Design
// section 7.
#include <algorithm>
#include <iterator>

#include "core/planners/algorithms.h"
#include "core/planners/published_search.h"

namespace dreamddp {
namespace {

// Beyond, bubbles are left: a plan has to fit into memory where H is huge, too.
constexpr std::size_t most_filled_ops = 1'000'000;

std::vector<std::size_t> with_output_side(const std::vector<std::size_t>& set,
                                          const std::vector<std::size_t>& output_side, std::size_t count) {
  std::vector<std::size_t> merged;
  std::merge(set.begin(), set.end(), output_side.begin(),
             output_side.begin() + static_cast<std::ptrdiff_t>(count), std::back_inserter(merged));
  return merged;
}

double finish(const SequentialProblem& problem, const std::vector<std::size_t>& set, SetClock& clock) {
  clock.clear();
  for (const std::size_t position : set) clock.launch(problem.layers[position]);
  return clock.finish();
}

/// Adds layers from the output side, as many as fit while the time of the iteration does not grow. Every
/// further op makes the last one finish later or leaves it alone, so a binary search finds how many.
void fill_bubble(const SequentialProblem& problem, std::vector<std::size_t>& set, SetClock& clock) {
  std::vector<std::size_t> output_side;
  for (std::size_t position = 0; position < problem.layers.size(); ++position) {
    if (!std::ranges::binary_search(set, position)) output_side.push_back(position);
  }
  const double allowed = std::max(problem.horizon, finish(problem, set, clock)) + problem.resolution;
  std::size_t fits = 0;
  std::size_t too_many = output_side.size() + 1;
  while (fits + 1 < too_many) {
    const std::size_t count = fits + (too_many - fits) / 2;
    if (finish(problem, with_output_side(set, output_side, count), clock) <= allowed) {
      fits = count;
    } else {
      too_many = count;
    }
  }
  set = with_output_side(set, output_side, fits);
}

}  // namespace

Plan plan_dreamddp(const Profile& profile, const Link& link, const PlanOptions& options) {
  const SequentialProblem problem = make_sequential_problem(profile, link, options.period);
  const SearchResult result = published_search(problem, options.search);
  if (options.search_statistics != nullptr) *options.search_statistics = result.statistics;
  std::vector<std::vector<std::size_t>> sets = sets_of(problem, result.begins);
  SetClock clock(problem);
  std::size_t num_ops = problem.layers.size();
  for (std::vector<std::size_t>& set : sets) {
    if (num_ops > most_filled_ops) break;
    const std::size_t num_before = set.size();
    fill_bubble(problem, set, clock);
    num_ops += set.size() - num_before;
  }
  return make_sequential_plan("dreamddp", profile, problem, sets);
}

}  // namespace dreamddp
