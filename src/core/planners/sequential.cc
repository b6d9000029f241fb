// The best sequential partition, by dynamic programming over the ends of sets: O(H L^2) time at most, O(H L)
// memory, where H counts no more than L.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/planners/algorithms.h"
#include "core/planners/partition.h"

namespace dreamddp {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The partition of plan_equal_count(), whose time no better one exceeds.
Partition equal_counts(std::size_t num_layers, std::size_t num_sets) {
  Partition partition;
  for (std::size_t h = 1; h <= num_sets; ++h) partition.push_back((h * num_layers + num_sets - 1) / num_sets);
  return partition;
}

/// least_[j * (H + 1) + h] is the least exposed time of layers [0, j) in h sets.
class Table {
 public:
  explicit Table(const PartitionProblem& problem)
      : problem_(problem),
        num_layers_(problem.layers.size()),
        num_sets_(std::min(problem.period, num_layers_)),
        least_((num_layers_ + 1) * (num_sets_ + 1), infinity),
        begin_of_last_set_(least_.size(), 0) {
    least_[0] = 0;
    // Sums in another order differ in the last bits.
    limit_ = exposed_seconds(problem, equal_counts(num_layers_, num_sets_)) + problem.resolution;
  }

  Partition solve() {
    for (std::size_t begin = 0; begin < num_layers_; ++begin) extend(begin);
    // Where latency is long and hidden by others in flight, fewer sets may be better.
    std::size_t sets = num_sets_;
    for (std::size_t h = num_sets_; h > 0; --h) {
      if (is_better(problem_, least_[index(num_layers_, h)], least_[index(num_layers_, sets)])) sets = h;
    }
    Partition partition(num_sets_, num_layers_);
    std::size_t end = num_layers_;
    for (std::size_t h = sets; h > 0; --h) {
      partition[h - 1] = end;
      end = begin_of_last_set_[index(end, h)];
    }
    return partition;
  }

 private:
  std::size_t index(std::size_t end, std::size_t sets) const { return end * (num_sets_ + 1) + sets; }

  /// Tries all sets that begin here. They only grow slower with more layers, so most need not be tried.
  void extend(std::size_t begin) {
    double least_before = infinity;
    for (std::size_t h = 0; h < num_sets_; ++h)
      least_before = std::min(least_before, least_[index(begin, h)]);
    if (least_before > limit_) return;
    SetTimes set(problem_);
    for (std::size_t end = begin + 1; end <= num_layers_; ++end) {
      set.add(problem_.layers[end - 1]);
      const double exposed = set.exposed_seconds();
      if (least_before + exposed > limit_) return;
      for (std::size_t h = 0; h < num_sets_; ++h) {
        const double seconds = least_[index(begin, h)] + exposed;
        if (is_better(problem_, seconds, least_[index(end, h + 1)])) {
          least_[index(end, h + 1)] = seconds;
          begin_of_last_set_[index(end, h + 1)] = static_cast<std::uint32_t>(begin);
        }
      }
    }
  }

  const PartitionProblem& problem_;
  const std::size_t num_layers_;
  const std::size_t num_sets_;
  std::vector<double> least_;
  std::vector<std::uint32_t> begin_of_last_set_;
  double limit_ = 0;
};

}  // namespace

Partition best_partition(const PartitionProblem& problem) { return Table(problem).solve(); }

Plan plan_sequential(const Profile& profile, const Link& link, const PlanOptions& options) {
  const PartitionProblem problem = make_partition_problem(profile, link, options.period);
  require_manageable("sequential", problem);
  return partition_plan("sequential", profile, problem, best_partition(problem));
}

}  // namespace dreamddp
