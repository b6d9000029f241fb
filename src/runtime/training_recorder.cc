#include "runtime/training_recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace dreamddp {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Layers that came (at a time of at least 0), in the order in which they came.
std::vector<std::pair<double, std::size_t>> in_order(const std::vector<double>& times) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    if (times[layer] >= 0) {
      order.emplace_back(times[layer], layer);
    }
  }
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

void TrainingRecorder::set_plan(std::vector<std::string> layers, std::vector<std::string> ops) {
  layers_ = std::move(layers);
  begin_iteration();
  set_ops(std::move(ops));
}

void TrainingRecorder::set_ops(std::vector<std::string> ops) {
  const std::lock_guard lock(mutex_);
  op_begins_.assign(ops.size(), 0);
  num_open_ops_ = 0;
  ops_ = std::move(ops);
}

void TrainingRecorder::add_ops(const std::vector<std::string>& ops) {
  const std::lock_guard lock(mutex_);
  ops_.insert(ops_.end(), ops.begin(), ops.end());
  op_begins_.resize(ops_.size(), 0);
}

void TrainingRecorder::layer_is_read(std::size_t layer) {
  Moment& first_read = now_.marks.first_reads[layer];
  if (first_read.seconds == never) first_read = compute_now();
  open_span(SpanKind::forward, layers_[layer]);
}

void TrainingRecorder::forward_ends() {
  now_.marks.forward_end = compute_now();
  open_span(SpanKind::backward, "");
}

void TrainingRecorder::layer_backward_ends(std::size_t layer) {
  now_.marks.backward_ends[layer] = compute_now();
  if (open_.span.kind == SpanKind::backward) open_.span.name = layers_[layer];
  open_span(SpanKind::backward, "");
}

void TrainingRecorder::step_begins() {
  if (now_.marks.step_begin.seconds == never) now_.marks.step_begin = compute_now();
  open_span(SpanKind::step, "step");
}

void TrainingRecorder::step_ends(bool completes) {
  close_span();
  if (!completes) return;
  now_.marks.step_end = compute_now();
  Moment end = now_.marks.step_end;
  end.num_waits = 0;
  if (sampling_ && was_measured(now_)) samples_.push_back(std::exchange(now_, {}));
  begin_iteration();
  now_.marks.begin = std::move(end);

  add_waits_that_are_over();
  const double now = now_seconds();
  if (last_step_end_ != never) {
    statistics_.iterations += 1;
    statistics_.seconds += now - last_step_end_;
    statistics_.exposed_seconds += waited_seconds_ - waited_at_step_end_;
  }
  last_step_end_ = now;
  waited_at_step_end_ = waited_seconds_;
  if (iterations_to_record_ == 1) {
    const std::lock_guard lock(mutex_);
    recording_ = false;
  }
  if (iterations_to_record_ > 0) --iterations_to_record_;
}

void TrainingRecorder::op_is_launched(std::int64_t num_bytes) {
  statistics_.ops += 1;
  statistics_.num_bytes += num_bytes;
}

void TrainingRecorder::wait_begins() {
  interrupted_ = open_;
  close_span();
  wait_begin_ = now_seconds();
  wait_begin_event_ = record_event(true);
}

void TrainingRecorder::wait_ends() {
  const double now = now_seconds();
  const EventPointer end = record_event(true);
  if (device_) {
    waits_.push_back({wait_begin_event_, end});
    if (sampling_) now_.waits.push_back(waits_.back());
  } else {
    waited_seconds_ += now - wait_begin_;
  }
  if (iterations_to_record_ == 0) {
    return;
  }
  add({.span = {.kind = SpanKind::wait,
                .name = interrupted_.span.name,
                .rank = rank_,
                .iteration = iteration_,
                .begin_seconds = wait_begin_,
                .end_seconds = now},
       .begin = wait_begin_event_,
       .end = end});
  open_ = interrupted_;
  open_.begin = end;
  open_.span.begin_seconds = interrupted_.span.begin_seconds > 0 ? now : 0;
}

/// Of a device, which may have come to the end of some waits meanwhile.
void TrainingRecorder::add_waits_that_are_over() {
  while (!waits_.empty() && device_->is_over(*waits_.front().end)) {
    waited_seconds_ += device_->seconds_between(*waits_.front().begin, *waits_.front().end);
    waits_.pop_front();
  }
}

void TrainingRecorder::op_begins(std::size_t op) {
  const double now = now_seconds();
  const std::lock_guard lock(mutex_);
  op_begins_[op] = now;
  if (num_open_ops_++ == 0) link_begin_ = now;
}

void TrainingRecorder::op_ends(std::size_t op, std::int64_t iteration) {
  const double now = now_seconds();
  const std::lock_guard lock(mutex_);
  if (num_open_ops_ == 1) link_seconds_ += now - link_begin_;
  if (num_open_ops_ > 0) --num_open_ops_;
  if (recording_) {
    spans_.push_back({.span = {.kind = SpanKind::link,
                               .name = ops_[op],
                               .rank = rank_,
                               .iteration = iteration,
                               .begin_seconds = op_begins_[op],
                               .end_seconds = now}});
  }
}

TrainingStatistics TrainingRecorder::statistics() const {
  TrainingStatistics all = statistics_;
  const std::lock_guard lock(mutex_);
  all.link_seconds = link_seconds_;
  return all;
}

void TrainingRecorder::reset_statistics() {
  statistics_ = {};
  const std::lock_guard lock(mutex_);
  link_seconds_ = 0;
  link_begin_ = now_seconds();
}

std::vector<IterationTimes> TrainingRecorder::times_of(const Samples& samples) const {
  if (device_ && !samples.empty()) device_->synchronise(*samples.back().marks.step_end.event);
  std::vector<IterationTimes> times;
  for (const Iteration& iteration : samples) times.push_back(times_of(seconds_of(iteration)));
  return times;
}

TrainingRecorder::Moment TrainingRecorder::synchronise() const {
  EventPointer event = record_event(true);
  if (event) device_->synchronise(*event);
  return {.seconds = now_seconds(), .event = std::move(event)};
}

void TrainingRecorder::record(std::int64_t num_iterations, Moment begin) {
  iterations_to_record_ = num_iterations;
  const std::lock_guard lock(mutex_);
  recording_ = num_iterations > 0;
  if (recording_) epoch_ = std::move(begin);
}

std::vector<Span> TrainingRecorder::spans() const {
  std::unique_lock lock(mutex_);
  const std::vector<RecordedSpan> all = spans_;
  const Moment epoch = epoch_;
  lock.unlock();
  const auto look_up = [&](const EventPointer& event, double& seconds) {
    if (!event) return;
    device_->synchronise(*event);
    seconds = epoch.seconds + device_->seconds_between(*epoch.event, *event);
  };
  std::vector<Span> spans;
  for (const RecordedSpan& recorded : all) {
    spans.push_back(recorded.span);
    look_up(recorded.begin, spans.back().begin_seconds);
    look_up(recorded.end, spans.back().end_seconds);
  }
  return spans;
}

/// Whether it was sampled from begin to end.
bool TrainingRecorder::was_measured(const Iteration& iteration) const {
  const Marks<Moment>& marks = iteration.marks;
  if (marks.begin.seconds == never || marks.forward_end.seconds == never) return false;
  return !device_ || marks.begin.event;
}

/// On a device, counted from the iteration's begin.
TrainingRecorder::Marks<double> TrainingRecorder::seconds_of(const Iteration& iteration) const {
  const auto seconds = [&](const Moment& moment) {
    if (!moment.event) return moment.seconds;
    double total = device_->seconds_between(*iteration.marks.begin.event, *moment.event);
    for (std::size_t i = 0; i < moment.num_waits; ++i) {
      total -= device_->seconds_between(*iteration.waits[i].begin, *iteration.waits[i].end);
    }
    return std::max(total, 0.0);
  };
  const auto all_seconds = [&](const std::vector<Moment>& moments) {
    std::vector<double> all;
    for (const Moment& moment : moments) all.push_back(seconds(moment));
    return all;
  };
  const Marks<Moment>& marks = iteration.marks;
  return {.first_reads = all_seconds(marks.first_reads),
          .backward_ends = all_seconds(marks.backward_ends),
          .begin = seconds(marks.begin),
          .forward_end = seconds(marks.forward_end),
          .step_begin = seconds(marks.step_begin),
          .step_end = seconds(marks.step_end)};
}

IterationTimes TrainingRecorder::times_of(const Marks<double>& marks) {
  IterationTimes times;
  times.forward_seconds.assign(marks.first_reads.size(), 0);
  times.backward_seconds.assign(marks.backward_ends.size(), 0);
  const auto reads = in_order(marks.first_reads);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const double next = i + 1 < reads.size() ? reads[i + 1].first : marks.forward_end;
    times.forward_seconds[reads[i].second] = std::max(next - reads[i].first, 0.0);
  }
  double previous = marks.forward_end;
  for (const auto& [end, layer] : in_order(marks.backward_ends)) {
    times.backward_seconds[layer] = std::max(end - previous, 0.0);
    previous = std::max(previous, end);
  }
  if (!reads.empty()) {
    times.loop_before_seconds = std::max(reads.front().first - marks.begin, 0.0);
  }
  times.loop_after_seconds = std::max(marks.step_begin - previous, 0.0);
  times.step_seconds = std::max(marks.step_end - marks.step_begin, 0.0);
  return times;
}

TrainingRecorder::Moment TrainingRecorder::compute_now() const {
  return {.seconds = now_seconds() - waited_seconds_,
          .event = record_event(sampling_),
          .num_waits = now_.waits.size()};
}

EventPointer TrainingRecorder::record_event(bool is_wanted) const {
  return device_ && is_wanted ? device_->record(/*is_timed=*/true) : nullptr;
}

void TrainingRecorder::begin_iteration() {
  now_ = {};
  now_.marks.first_reads.resize(layers_.size());
  now_.marks.backward_ends.resize(layers_.size());
}

void TrainingRecorder::open_span(SpanKind kind, const std::string& name) {
  if (iterations_to_record_ > 0) {
    close_span();
    open_ = {.span = {.kind = kind,
                      .name = name,
                      .rank = rank_,
                      .iteration = iteration_,
                      .begin_seconds = now_seconds(),
                      .end_seconds = 0},
             .begin = record_event(true)};
  }
}

void TrainingRecorder::close_span() {
  if (open_.span.begin_seconds > 0) {
    open_.span.end_seconds = now_seconds();
    open_.end = record_event(true);
    add(std::exchange(open_, {}));
  }
}

void TrainingRecorder::add(RecordedSpan span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

}  // namespace dreamddp
