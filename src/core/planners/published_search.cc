#include "core/planners/published_search.h"

#include <chrono>
#include <limits>

namespace dreamddp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double not_known = -1;
constexpr std::int64_t nodes_between_looks_at_the_time = 1024;

// A branch takes the next layer at once and leaves the other choice, to move on, for later. Moving on begins
// with an empty set, so all that it needs is where it begins and what the sets before it expose; their begins
// are still there, as the branch in between changes later ones only.
class Search {
 public:
  Search(const SequentialProblem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        clock_(problem),
        begins_(problem.period, 0),
        exposed_of_last_set_(problem.layers.size(), not_known) {
    best_.exposed_seconds = std::numeric_limits<double>::infinity();
  }

  SearchResult run() {
    const Clock::time_point begin = Clock::now();
    pending_.push_back({0, 0, 0});
    while (!pending_.empty()) {
      const SetBegin next = pending_.back();
      pending_.pop_back();
      if (!descend(next, begin)) {
        best_.statistics.complete = false;
        break;
      }
    }
    best_.statistics.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return best_;
  }

 private:
  struct SetBegin {
    std::size_t position;
    std::size_t set;
    double exposed;  ///< by the sets before it
  };

  /// Follows a partition to its end, from the begin of a set on.
  /// @return false where a limit has been reached
  bool descend(SetBegin current, Clock::time_point begin) {
    const std::size_t num_layers = problem_.layers.size();
    begin_set(current);
    for (std::size_t position = current.position;;) {
      if (is_over_limit(begin)) return false;
      if (options_.check_interrupt && best_.statistics.nodes % nodes_between_looks_at_the_time == 0)
        options_.check_interrupt();
      ++best_.statistics.nodes;
      if (position == num_layers) {
        complete(current.set + 1, current.exposed + problem_.exposed_seconds(clock_.finish()));
        return true;
      }
      if (current.set + 1 == problem_.period) {  // the last set takes all that remains
        complete(current.set + 1, current.exposed + exposed_of_last_set(position));
        return true;
      }
      const Prunings& prunings = options_.prunings;
      const SequentialLayer& layer = problem_.layers[position];
      const bool is_empty = position == current.position;
      const bool must_take = (prunings.at_least_one && is_empty) ||
                             (prunings.optimal_hiding && problem_.hides(clock_.finish_of(layer)));
      const SetBegin next{position, current.set + 1,
                          current.exposed + problem_.exposed_seconds(clock_.finish())};
      if (!must_take && prunings.delayed_overflow && !problem_.hides(clock_.finish())) {
        current = next;
        begin_set(current);
        continue;
      }
      if (!must_take) pending_.push_back(next);
      clock_.launch(layer);
      ++position;
    }
  }

  void begin_set(const SetBegin& set) {
    begins_[set.set] = set.position;
    clock_.clear();
  }

  bool is_over_limit(Clock::time_point begin) {
    const SearchStatistics& statistics = best_.statistics;
    if (statistics.complete_solutions == 0) return false;
    if (statistics.nodes >= options_.max_nodes) return true;
    if (!options_.max_seconds || statistics.nodes < next_look_at_the_time_) return false;
    next_look_at_the_time_ = statistics.nodes + nodes_between_looks_at_the_time;
    return Clock::now() - begin >= std::chrono::duration<double>(*options_.max_seconds);
  }

  /// Of the last set alone, from this position to the end.
  double exposed_of_last_set(std::size_t position) {
    double& exposed = exposed_of_last_set_[position];
    if (exposed == not_known) {
      clock_.clear();
      for (std::size_t i = position; i < problem_.layers.size(); ++i) clock_.launch(problem_.layers[i]);
      exposed = problem_.exposed_seconds(clock_.finish());
    }
    return exposed;
  }

  void complete(std::size_t num_sets, double exposed) {
    ++best_.statistics.complete_solutions;
    if (exposed >= best_.exposed_seconds - problem_.resolution) return;
    best_.exposed_seconds = exposed;
    best_.begins.assign(begins_.begin(), begins_.begin() + static_cast<std::ptrdiff_t>(num_sets));
  }

  const SequentialProblem& problem_;
  const SearchOptions& options_;
  SetClock clock_;
  SetBegins begins_;
  std::vector<double> exposed_of_last_set_;
  std::vector<SetBegin> pending_;
  std::int64_t next_look_at_the_time_ = 0;
  SearchResult best_;
};

}  // namespace

SearchResult published_search(const SequentialProblem& problem, const SearchOptions& options) {
  return Search(problem, options).run();
}

}  // namespace dreamddp
