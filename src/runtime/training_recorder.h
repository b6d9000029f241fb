// What happened when in a real training: counters, compute times for profiles, and timelines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dreamddp/timeline.h"
#include "runtime/device_stream.h"

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
  double exposed_seconds = 0;   ///< compute waiting for the lane; on a device, in waits that are over
  double link_seconds = 0;      ///< in which at least one op was being carried out
  std::int64_t ops = 0;         ///< launched
  std::int64_t num_bytes = 0;   ///< in the ops launched
};

/// Records one worker's training. Times are read from std::chrono::steady_clock. On a device they are those
/// of events behind the work that the calling thread's current stream has been given; they are recorded while
/// sampling or recording only, but for those of waits, and looked up by times_of(), spans() and
/// synchronise(): they alone block for the device.
///
/// Thread safety: the engine serialises the calls, but for those three, and op_begins() and op_ends() of the
/// lane's thread, which may come at any time.
class TrainingRecorder {
 public:
  static constexpr double never = -1;

  struct Moment {
    double seconds = never;
    EventPointer event = nullptr;  ///< on a device, where it is to be looked up
    std::size_t num_waits = 0;     ///< of the iteration, before it
  };
  struct Wait {
    EventPointer begin;
    EventPointer end;
  };
  /// On a clock that stands still while compute waits, so that differences are compute times.
  template <typename Time>
  struct Marks {
    std::vector<Time> first_reads;    ///< per layer: its first read
    std::vector<Time> backward_ends;  ///< per layer: the end of its backward in the final micro-batch
    Time begin;                       ///< the end of the step before
    Time forward_end;                 ///< of the last forward before the final backward
    Time step_begin;
    Time step_end;
  };
  struct Iteration {
    Marks<Moment> marks;
    std::vector<Wait> waits;  ///< on a device
  };
  using Samples = std::vector<Iteration>;

  /// @param device null where work is done at once
  explicit TrainingRecorder(int rank, std::shared_ptr<DeviceStream> device = nullptr)
      : rank_(rank), device_(std::move(device)) {}

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
  /// Those since the last call.
  Samples take_samples() { return std::exchange(samples_, {}); }
  std::vector<IterationTimes> times_of(const Samples& samples) const;

  /// Now, on the clocks of both the host and the device.
  Moment synchronise() const;
  /// Records the spans of the next iterations, from the next event on.
  /// @param begin of synchronise(); where num_iterations is 0, any
  void record(std::int64_t num_iterations, Moment begin);
  std::vector<Span> spans() const;

  TrainingStatistics statistics() const;
  void reset_statistics();

 private:
  struct RecordedSpan {
    Span span;
    EventPointer begin = nullptr;
    EventPointer end = nullptr;
  };
  static IterationTimes times_of(const Marks<double>& marks);

  bool was_measured(const Iteration& iteration) const;
  Marks<double> seconds_of(const Iteration& iteration) const;
  Moment compute_now() const;
  EventPointer record_event(bool is_wanted) const;
  void add_waits_that_are_over();
  void begin_iteration();
  void open_span(SpanKind kind, const std::string& name);
  void close_span();
  void add(RecordedSpan span);

  const int rank_;
  const std::shared_ptr<DeviceStream> device_;
  std::vector<std::string> layers_;
  std::int64_t iteration_ = 0;
  Iteration now_;
  double waited_seconds_ = 0;
  std::deque<Wait> waits_;  // on a device, whose times are not in waited_seconds_ yet
  EventPointer wait_begin_event_;
  double wait_begin_ = 0;
  double last_step_end_ = never;
  double waited_at_step_end_ = 0;
  TrainingStatistics statistics_;
  bool sampling_ = false;
  Samples samples_;
  std::int64_t iterations_to_record_ = 0;
  RecordedSpan open_;  // the compute span under way; none where it begins at 0
  RecordedSpan interrupted_;

  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::string> ops_;
  std::vector<double> op_begins_;
  std::size_t num_open_ops_ = 0;
  double link_begin_ = 0;  // of the time in which ops have been open
  double link_seconds_ = 0;
  bool recording_ = false;
  std::vector<RecordedSpan> spans_;
  Moment epoch_;  // on a device: the same moment on both clocks
};

}  // namespace dreamddp
