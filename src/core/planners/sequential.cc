// The best sequential partition at any size, by dynamic programming.
//
// Let w(i, j) be the exposed seconds of the set of positions i .. j-1, and f_h(j) the least exposed seconds
// of positions 0 .. j-1 in at most h sets: f_h(j) = min over i of f_{h-1}(i) + w(i, j). One SetClock gives
// w(i, j) for all j, so this takes O(H L^2) steps at most. A longer set exposes no less, so j need not go
// further than where f_{h-1}(i) + w(i, j) is more than some partition exposes in all; nor does a set count
// that hides where the one that begins a layer earlier hides, too.
#include <algorithm>
#include <functional>
#include <limits>

#include "core/planners/algorithms.h"
#include "core/planners/sequential_partition.h"

namespace dreamddp {
namespace {

// More sets than that are tried only where they can help.
constexpr std::size_t most_sets_at_first = 64;

SetBegins equal_counts(const SequentialProblem& problem, std::size_t num_sets) {
  SetBegins begins;
  for (std::size_t h = 0; h < num_sets; ++h) begins.push_back(h * problem.layers.size() / num_sets);
  return begins;
}

SetBegins equal_link_times(const SequentialProblem& problem, std::size_t num_sets) {
  double total = 0;
  for (const SequentialLayer& layer : problem.layers) total += layer.link_seconds + problem.latency;
  SetBegins begins{0};
  double sum = 0;
  for (std::size_t i = 0; i < problem.layers.size(); ++i) {
    const auto done = static_cast<double>(begins.size());
    if (begins.size() < num_sets && sum * static_cast<double>(num_sets) >= total * done) begins.push_back(i);
    sum += problem.layers[i].link_seconds + problem.latency;
  }
  return begins;
}

/// Least exposed seconds that partitions in any number of sets may have. Where only the last op holds back
/// the next one, a set exposes at least what its parts expose together.
double least_possible(const SequentialProblem& problem) {
  if (!problem.is_one_by_one()) return 0;
  return exposed_seconds(problem, equal_counts(problem, problem.layers.size()));
}

class Table {
 public:
  Table(const SequentialProblem& problem, std::size_t num_sets, const std::function<void()>& check_interrupt)
      : problem_(problem),
        num_sets_(num_sets),
        check_interrupt_(check_interrupt),
        least_((problem.layers.size() + 1) * (num_sets + 1), std::numeric_limits<double>::infinity()) {
    std::fill_n(least(0), num_sets + 1, 0.0);
    const double enough = std::min(exposed_seconds(problem, equal_counts(problem, num_sets)),
                                   exposed_seconds(problem, equal_link_times(problem, num_sets))) +
                          problem.resolution;
    fill(enough);
  }

  double exposed() const { return least(problem_.layers.size())[num_sets_]; }

  /// A partition with the least exposed seconds, found from its end.
  SetBegins partition() const {
    SetBegins begins;
    std::size_t end = problem_.layers.size();
    for (std::size_t h = num_sets_; h > 0 && end > 0; --h) {
      end = begin_of_set(h, end);
      begins.push_back(end);
    }
    std::ranges::reverse(begins);
    return begins;
  }

 private:
  /// @param enough what some partition exposes in all
  void fill(double enough) {
    SetClock clock(problem_);
    std::size_t hidden_from_before = 0;  // w(i - 1, j) is 0 up to this j
    for (std::size_t i = 0; i < problem_.layers.size() && hidden_from_before < problem_.layers.size(); ++i) {
      if (check_interrupt_) check_interrupt_();
      const double* const before = least(i);
      std::size_t fewest = 0;  // sets in front of i that leave enough room
      std::size_t hidden = hidden_from_before;
      clock.clear();
      for (std::size_t j = i + 1; j <= problem_.layers.size(); ++j) {
        clock.launch(problem_.layers[j - 1]);
        const double exposed = problem_.exposed_seconds(clock.finish());
        if (exposed == 0) hidden = j;
        if (j <= hidden_from_before)
          continue;  // a set from i - 1 on hides as well, and leaves less to others
        while (fewest < num_sets_ && before[fewest] + exposed > enough) ++fewest;
        if (fewest == num_sets_) break;
        double* const after = least(j);
        for (std::size_t h = fewest; h < num_sets_; ++h)
          after[h + 1] = std::min(after[h + 1], before[h] + exposed);
      }
      hidden_from_before = hidden;
    }
  }

  /// An i with f_h(end) = f_{h-1}(i) + w(i, end): of those that leave the sets in front of it no fewer layers
  /// each, the one with which sets come out most even.
  std::size_t begin_of_set(std::size_t h, std::size_t end) const {
    if (h == 1) return 0;
    const double sought = least(end)[h];
    const std::size_t even = end - end / h;
    SetClock clock(problem_);
    std::size_t found = 0;
    for (std::size_t i = end - 1; i > 0 && (found == 0 || i >= even); --i) {
      if (check_interrupt_) check_interrupt_();
      clock.clear();
      for (std::size_t j = i; j < end; ++j) clock.launch(problem_.layers[j]);
      const double exposed = problem_.exposed_seconds(clock.finish());
      if (exposed > sought) break;
      if (least(i)[h - 1] + exposed <= sought) found = i;
    }
    return found;
  }

  double* least(std::size_t position) { return &least_[position * (num_sets_ + 1)]; }
  const double* least(std::size_t position) const { return &least_[position * (num_sets_ + 1)]; }

  const SequentialProblem& problem_;
  std::size_t num_sets_;
  const std::function<void()>& check_interrupt_;
  std::vector<double> least_;  ///< f_h(j), h fastest
};

SetBegins best_partition(const SequentialProblem& problem, const std::function<void()>& check_interrupt) {
  const std::size_t most_sets = std::min(problem.period, problem.layers.size());
  if (most_sets == 0) return {};
  const double least = least_possible(problem) + problem.resolution;
  for (std::size_t num_sets = std::min(most_sets, most_sets_at_first);;
       num_sets = std::min(most_sets, 2 * num_sets)) {
    const Table table(problem, num_sets, check_interrupt);
    if (num_sets == most_sets || table.exposed() <= least) return table.partition();
  }
}

}  // namespace

Plan plan_sequential(const Profile& profile, const Link& link, const PlanOptions& options) {
  const SequentialProblem problem = make_sequential_problem(profile, link, options.period);
  return make_sequential_plan("sequential", profile, problem,
                              sets_of(problem, best_partition(problem, options.search.check_interrupt)));
}

}  // namespace dreamddp
