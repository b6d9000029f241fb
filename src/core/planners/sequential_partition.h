// Sequential partitions: iteration h averages a set L_h of layers that follow one another, each layer in an
// op of its own in the backward window. Design sections 4 and 7.
//
// Layers are taken in the order of their last reads, which is L .. 1 where all are read last in their own
// backwards. All ops of an iteration are due before its step, so iterations do not touch one another, and the
// exposed time of one is how much later than the backward the last op of its set finishes. That is the
// partition formula with the start times tau, and with latency and several ops in flight it is what the
// simulator says of the plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// A layer with parameters at its place in the order of last reads.
struct SequentialLayer {
  std::size_t layer = 0;
  double ready_seconds = 0;  ///< from the begin of the forward to the last read
  double link_seconds = 0;   ///< c_l
};

/// Times are in seconds. Positions are indices in `layers`.
struct SequentialProblem {
  std::vector<SequentialLayer> layers;
  std::size_t period = 1;     ///< H
  double horizon = 0;         ///< C - s: from the begin of the forward to the step
  double latency = 0;         ///< a
  std::size_t in_flight = 1;  ///< m
  double resolution = 0;      ///< times that differ by less are taken as equal

  double exposed_seconds(double finish) const { return finish > horizon ? finish - horizon : 0; }
  bool hides(double finish) const { return finish <= horizon + resolution; }
  /// Whether only the last op holds back the next one: start_i = max(ready_i, finish_{i-1}).
  bool is_one_by_one() const { return latency == 0 || in_flight == 1; }
};

SequentialProblem make_sequential_problem(const Profile& profile, const Link& link, std::int64_t period);

/// The link in one iteration: start_i = max(ready_i, start_{i-1} + x_{i-1}, finish_{i-m}) and
/// finish_i = start_i + x_i + a.
class SetClock {
 public:
  /// @param problem kept by reference
  explicit SetClock(const SequentialProblem& problem);

  /// Back to an idle link.
  void clear() {
    free_ = 0;
    last_finish_ = 0;
    num_launched_ = 0;
    oldest_ = 0;
  }
  /// When the op of this layer would finish if it were launched next.
  double finish_of(const SequentialLayer& layer) const {
    return start_of(layer) + layer.link_seconds + latency_;
  }
  void launch(const SequentialLayer& layer) {
    free_ = start_of(layer) + layer.link_seconds;
    last_finish_ = free_ + latency_;
    if (finishes_.empty()) return;
    finishes_[oldest_] = last_finish_;
    oldest_ = oldest_ + 1 == finishes_.size() ? 0 : oldest_ + 1;
    ++num_launched_;
  }
  /// When the last op finishes; 0 where there is none.
  double finish() const { return last_finish_; }

 private:
  double start_of(const SequentialLayer& layer) const {
    if (finishes_.empty()) return std::max(layer.ready_seconds, last_finish_);
    const double start = std::max(layer.ready_seconds, free_);
    return num_launched_ < finishes_.size() ? start : std::max(start, finishes_[oldest_]);
  }

  double latency_;
  double free_ = 0;  ///< start + x of the last op
  double last_finish_ = 0;
  std::vector<double> finishes_;  ///< of the last m ops, in a ring; empty where the last one says it all
  std::size_t num_launched_ = 0;
  std::size_t oldest_ = 0;  ///< where finish_{i-m} lies, and where the next finish goes
};

/// L_1 .. L_H: set h holds the positions from begins[h] to begins[h + 1], the last one all that remain.
/// Ascending; may be shorter than H.
using SetBegins = std::vector<std::size_t>;

/// Exposed seconds of a period.
double exposed_seconds(const SequentialProblem& problem, const SetBegins& begins);

/// The positions of every iteration, ascending; exactly H lists.
std::vector<std::vector<std::size_t>> sets_of(const SequentialProblem& problem, const SetBegins& begins);

/// @param sets positions for every iteration, ascending
Plan make_sequential_plan(std::string_view planner, const Profile& profile, const SequentialProblem& problem,
                          const std::vector<std::vector<std::size_t>>& sets);

}  // namespace dreamddp
