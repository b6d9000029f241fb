// What happened when in a real training: counters, compute times for profiles, and timelines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "dreamddp/timeline.h"

namespace dreamddp {

/// Compute times of one iteration: f_l and b_l per layer, s, and what lies around them (design section 4).
/// Waits for the link are not in them.
struct IterationTimes {
  std::vector<double> forward_seconds;   ///< from the first read of a layer to the next layer's
  std::vector<double> backward_seconds;  ///< from the end of the backward before it; 0 where none came
  double step_seconds = 0;
  double loop_before_seconds = 0;  ///< from the step before to the first read: the user's own loop
  double loop_after_seconds = 0;   ///< from the end of the last backward to the step
};

/// Sums since the last reset.
struct TrainingStatistics {
  std::int64_t iterations = 0;  ///< finished by a step
  double seconds = 0;           ///< from step end to step end
  double exposed_seconds = 0;   ///< compute waiting for the lane
  double link_seconds = 0;      ///< in which at least one op was being carried out
  std::int64_t ops = 0;         ///< launched
  std::int64_t num_bytes = 0;   ///< in the ops launched
};

/// Records one worker's training. Times are read from std::chrono::steady_clock.
///
/// Thread safety: the engine serialises the calls, but for op_begins() and op_ends(), which the lane's thread
/// may make at any time, and spans().
class TrainingRecorder {
 public:
  explicit TrainingRecorder(int rank) : rank_(rank) {}

  /// Layers and ops of the plan that events and ops refer to from now on.
  void set_plan(std::vector<std::string> layers, std::vector<std::string> ops);
  /// Ops alone. None may be under way.
  void set_ops(std::vector<std::string> ops);
  /// More ops, behind those that there are.
  void add_ops(const std::vector<std::string>& ops);

  void layer_is_read(std::size_t layer);
  void forward_ends();
  void layer_backward_ends(std::size_t layer);
  void step_begins();
  /// @param completes whether the step ends an iteration: a final backward came before it
  void step_ends(bool completes);
  void op_is_launched(std::int64_t num_bytes);
  void wait_begins();
  void wait_ends();
  void op_begins(std::size_t op);
  void op_ends(std::size_t op, std::int64_t iteration);

  /// The iteration that spans are labelled with.
  void set_iteration(std::int64_t iteration) { iteration_ = iteration; }

  void set_sampling(bool active) { sampling_ = active; }
  std::vector<IterationTimes> take_samples();

  /// Records the spans of the next iterations, from the next event on.
  void record(std::int64_t num_iterations);
  std::vector<Span> spans() const;

  TrainingStatistics statistics() const;
  void reset_statistics();

 private:
  static constexpr double never = -1;

  // Times on a clock that stands still while compute waits, so that differences are compute times.
  struct Marks {
    std::vector<double> first_reads;    // per layer: its first read
    std::vector<double> backward_ends;  // per layer: the end of its backward in the final micro-batch
    double begin = never;               // the end of the step before
    double forward_end = never;         // of the last forward before the final backward
    double step_begin = never;
    double step_end = never;
  };
  static IterationTimes times_of(const Marks& marks);

  double compute_now() const;
  void begin_marks();
  void open_span(SpanKind kind, const std::string& name);
  void close_span();
  void add(Span span);

  const int rank_;
  std::vector<std::string> layers_;
  std::int64_t iteration_ = 0;
  Marks marks_;
  double waited_seconds_ = 0;
  double wait_begin_ = 0;
  double last_step_end_ = never;
  double waited_at_step_end_ = 0;
  TrainingStatistics statistics_;
  bool sampling_ = false;
  std::vector<IterationTimes> samples_;
  std::int64_t iterations_to_record_ = 0;
  Span open_;  // the compute span under way; none where it begins at 0
  Span interrupted_;

  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::string> ops_;
  std::vector<double> op_begins_;
  std::size_t num_open_ops_ = 0;
  double link_begin_ = 0;  // of the time in which ops have been open
  double link_seconds_ = 0;
  bool recording_ = false;
  std::vector<Span> spans_;
};

}  // namespace dreamddp
