// Sequential partitions: which consecutive layers each iteration of a period averages. Design sections 4
// and 7.
//
// Layers are taken in the order of their last reads, from the output side on; set h holds what iteration h
// averages in its backward window, every layer in an op of its own.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// A layer in its backward window.
struct PartitionLayer {
  std::size_t layer = 0;
  double link_seconds = 0;   ///< c_l
  double cover_seconds = 0;  ///< G_l: from its last read to the step
};

/// The layers with parameters, by last read. Times are rounded, so that the time unit of a profile does not
/// matter.
struct PartitionProblem {
  std::vector<PartitionLayer> layers;
  std::size_t period = 1;  ///< H
  double latency = 0;      ///< a
  std::size_t in_flight = 1;
  double resolution = 0;  ///< times that differ by less are taken as equal
};

PartitionProblem make_partition_problem(const Profile& profile, const Link& link, std::int64_t period);

/// @throws std::invalid_argument where layers times period is more than a planner should work with
void require_manageable(std::string_view planner, const PartitionProblem& problem);

/// The transfers of one set by the time model of design section 4: start_i = max(ready_i, start_{i-1} +
/// x_{i-1}, finish_{i-m}), as seconds before (negative) or after the step.
class SetTimes {
 public:
  explicit SetTimes(const PartitionProblem& problem) : problem_(&problem) {}

  void add(const PartitionLayer& layer);
  bool is_empty() const { return num_ops_ == 0; }
  /// How long the step waits.
  double exposed_seconds() const;
  /// Whether the step does not wait.
  bool is_hidden() const { return exposed_seconds() <= problem_->resolution; }

 private:
  const PartitionProblem* problem_;
  std::size_t num_ops_ = 0;
  double link_free_ = 0;
  double last_finish_ = 0;
  std::vector<double> finishes_;  // of the last m ops, as a ring; unused for m = 1
};

/// Exposed seconds of layers [begin, end) of the problem as one set.
double exposed_seconds(const PartitionProblem& problem, std::size_t begin, std::size_t end);

/// Where the sets end, for each of the H iterations: set h is [ends[h-1], ends[h]).
using Partition = std::vector<std::size_t>;

/// Sum over a period.
double exposed_seconds(const PartitionProblem& problem, const Partition& partition);

/// The least possible; empty sets at the end.
Partition best_partition(const PartitionProblem& problem);

/// The plan of a partition.
Plan partition_plan(std::string_view planner, const Profile& profile, const PartitionProblem& problem,
                    const Partition& partition);

/// As above, and iteration h also averages those of the layers [0, extra[h]) that are not in its set.
Plan partition_plan(std::string_view planner, const Profile& profile, const PartitionProblem& problem,
                    const Partition& partition, const std::vector<std::size_t>& extra);

/// Whether a time of `a` is shorter than one of `b` by more than rounding can explain.
inline bool is_better(const PartitionProblem& problem, double a, double b) {
  return a < b - problem.resolution;
}

}  // namespace dreamddp
