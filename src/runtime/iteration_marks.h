// When the events of a real iteration happened: the raw material of profiles and recorded timelines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dreamddp/timeline.h"

namespace dreamddp {

/// Times of one iteration of one worker, on a clock that stands still while compute waits for the link.
/// So differences are compute times (design section 4), whatever was waited for.
struct IterationMarks {
  static constexpr double never = -1;

  explicit IterationMarks(std::size_t num_layers)
      : first_reads(num_layers, never), backward_ends(num_layers, never) {}

  std::vector<double> first_reads;    ///< per layer: its first forward_begins
  std::vector<double> backward_ends;  ///< per layer: the end of its backward (in the final micro-batch)
  double begin = never;               ///< the end of the step before, or the first event
  double forward_end = never;         ///< the end of the last forward before the final backward
  double step_begin = never;
  double step_end = never;
};

/// Compute times of one iteration: f_l and b_l per layer, s, and what lies around them.
struct IterationTimes {
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  double step_seconds = 0;
  double loop_before_seconds = 0;  ///< from the step before to the first read: the user's own loop
  double loop_after_seconds = 0;   ///< from the end of the last backward to the step
};

/// f_l lasts from the first read of l to the next layer's, the last one's to the end of the forward; b_l from
/// the end of the backward before it. A layer that did not come has 0.
IterationTimes iteration_times(const IterationMarks& marks);

/// A worker's timeline as it happens: a compute span ends where the next event comes.
class SpanRecorder {
 public:
  void start(std::int64_t num_iterations) { iterations_left_ = num_iterations; }
  bool is_recording() const { return iterations_left_ > 0; }
  void end_iteration() { iterations_left_ -= iterations_left_ > 0 ? 1 : 0; }
  void add(Span span) {
    if (span.end_seconds > span.begin_seconds) {
      spans_.push_back(std::move(span));
    }
  }
  const std::vector<Span>& spans() const { return spans_; }

 private:
  std::int64_t iterations_left_ = 0;
  std::vector<Span> spans_;
};

}  // namespace dreamddp
