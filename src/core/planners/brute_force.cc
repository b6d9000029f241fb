// The best sequential partition by exhaustive search: 2^(L-1) partitions at most, whatever H is.
#include <chrono>
#include <limits>
#include <string>

#include "core/planners/algorithms.h"
#include "core/planners/sequential_partition.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr std::size_t most_layers = 20;  // half a million partitions: tens of milliseconds

/// Tries every end of a set, then every partition of the layers behind it.
class Enumeration {
 public:
  explicit Enumeration(const SequentialProblem& problem) : problem_(problem), begins_{0} {
    best_exposed_ = std::numeric_limits<double>::infinity();
  }

  void run() { visit(0); }

  const SetBegins& best() const { return best_; }
  const SearchStatistics& statistics() const { return statistics_; }

 private:
  void visit(double exposed_before) {
    ++statistics_.nodes;
    SetClock clock(problem_);
    for (std::size_t end = begins_.back(); end < problem_.layers.size();) {
      clock.launch(problem_.layers[end++]);
      const double exposed = exposed_before + problem_.exposed_seconds(clock.finish());
      if (end == problem_.layers.size()) {
        complete(exposed);
      } else if (begins_.size() < problem_.period) {
        begins_.push_back(end);
        visit(exposed);
        begins_.pop_back();
      }
    }
  }

  void complete(double exposed) {
    ++statistics_.complete_solutions;
    if (exposed >= best_exposed_ - problem_.resolution) return;
    best_exposed_ = exposed;
    best_ = begins_;
  }

  const SequentialProblem& problem_;
  SetBegins begins_;
  SetBegins best_{0};
  double best_exposed_;
  SearchStatistics statistics_;
};

}  // namespace

Plan plan_brute_force(const Profile& profile, const Link& link, const PlanOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const SequentialProblem problem = make_sequential_problem(profile, link, options.period);
  if (problem.layers.size() > most_layers) {
    reject({.field = "planner 'brute-force': layers with parameters",
            .value = std::to_string(problem.layers.size()),
            .allowed = "at most " + std::to_string(most_layers),
            .remedy = "Use the planner 'sequential', which finds an equally good partition at any size."});
  }
  Enumeration enumeration(problem);
  enumeration.run();
  if (options.search_statistics != nullptr) {
    *options.search_statistics = enumeration.statistics();
    (*options.search_statistics)->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return make_sequential_plan("brute-force", profile, problem, sets_of(problem, enumeration.best()));
}

}  // namespace dreamddp
