#include "core/planners/published_search.h"

#include <chrono>
#include <limits>

namespace dreamddp {
namespace {

class Search {
 public:
  Search(const PartitionProblem& problem, const PublishedSearchOptions& options)
      : problem_(problem), options_(options), ends_(problem.period, problem.layers.size()) {}

  SearchResult run() {
    visit(0, 0, SetTimes(problem_), 0);
    result_.statistics.seconds = elapsed_seconds();
    return result_;
  }

 private:
  /// All ways to go on, with `set` as what iteration h has so far, `next` as the next layer, and `exposed`
  /// for the iterations before.
  void visit(std::size_t next, std::size_t h, SetTimes set, double exposed) {
    while (true) {
      if (next == problem_.layers.size()) return complete(h, exposed + set.exposed_seconds());
      const bool is_last_set = h + 1 == problem_.period;
      // A search that is cut short still ends in a partition.
      if (is_last_set || !may_visit()) {
        for (; next < problem_.layers.size(); ++next) set.add(problem_.layers[next]);
        continue;
      }
      if (options_.at_least_one && set.is_empty()) {
        set.add(problem_.layers[next++]);
        continue;
      }
      SetTimes larger = set;
      larger.add(problem_.layers[next]);
      if (options_.optimal_hiding && larger.is_hidden()) {
        set = std::move(larger);
        ++next;
        continue;
      }
      if (!options_.delayed_overflow || set.is_hidden()) {
        visit(next + 1, h, std::move(larger), exposed);
        if (has_stopped_) return;
      }
      exposed += set.exposed_seconds();
      ends_[h++] = next;
      set = SetTimes(problem_);
    }
  }

  /// Counts a node. False when a limit is reached.
  bool may_visit() {
    if (has_stopped_) return false;
    constexpr std::int64_t nodes_between_looks_at_the_clock = 1024;
    SearchStatistics& statistics = result_.statistics;
    const bool is_late = options_.max_seconds > 0 &&
                         statistics.nodes % nodes_between_looks_at_the_clock == 0 &&
                         elapsed_seconds() > options_.max_seconds;
    if (is_late || (options_.max_nodes > 0 && statistics.nodes >= options_.max_nodes)) {
      has_stopped_ = true;
      statistics.is_complete = false;
      return false;
    }
    ++statistics.nodes;
    return true;
  }

  void complete(std::size_t last_set, double exposed) {
    ++result_.statistics.complete_solutions;
    if (!is_better(problem_, exposed, least_exposed_)) return;
    least_exposed_ = exposed;
    result_.partition = ends_;
    for (std::size_t h = last_set; h < ends_.size(); ++h) result_.partition[h] = problem_.layers.size();
  }

  double elapsed_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  const PartitionProblem& problem_;
  const PublishedSearchOptions& options_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Partition ends_;
  double least_exposed_ = std::numeric_limits<double>::infinity();
  bool has_stopped_ = false;
  SearchResult result_;
};

}  // namespace

SearchResult search_partition(const PartitionProblem& problem, const PublishedSearchOptions& options) {
  return Search(problem, options).run();
}

}  // namespace dreamddp
