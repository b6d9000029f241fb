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
  begin_marks();
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
  if (marks_.first_reads[layer] == never) {
    marks_.first_reads[layer] = compute_now();
  }
  open_span(SpanKind::forward, layers_[layer]);
}

void TrainingRecorder::forward_ends() {
  marks_.forward_end = compute_now();
  open_span(SpanKind::backward, "");
}

void TrainingRecorder::layer_backward_ends(std::size_t layer) {
  marks_.backward_ends[layer] = compute_now();
  if (open_.kind == SpanKind::backward) {
    open_.name = layers_[layer];
  }
  open_span(SpanKind::backward, "");
}

void TrainingRecorder::step_begins() {
  if (marks_.step_begin == never) {
    marks_.step_begin = compute_now();
  }
  open_span(SpanKind::step, "step");
}

void TrainingRecorder::step_ends(bool completes) {
  close_span();
  if (!completes) {
    return;
  }
  marks_.step_end = compute_now();
  if (sampling_ && marks_.begin != never && marks_.forward_end != never) {
    samples_.push_back(times_of(marks_));
  }
  const double end = marks_.step_end;
  begin_marks();
  marks_.begin = end;

  const double now = now_seconds();
  if (last_step_end_ != never) {
    statistics_.iterations += 1;
    statistics_.seconds += now - last_step_end_;
    statistics_.exposed_seconds += waited_seconds_ - waited_at_step_end_;
  }
  last_step_end_ = now;
  waited_at_step_end_ = waited_seconds_;
  if (iterations_to_record_ > 0 && --iterations_to_record_ == 0) {
    const std::lock_guard lock(mutex_);
    recording_ = false;
  }
}

void TrainingRecorder::op_is_launched(std::int64_t num_bytes) {
  statistics_.ops += 1;
  statistics_.num_bytes += num_bytes;
}

void TrainingRecorder::wait_begins() {
  interrupted_ = open_;
  close_span();
  wait_begin_ = now_seconds();
}

void TrainingRecorder::wait_ends() {
  const double now = now_seconds();
  waited_seconds_ += now - wait_begin_;
  if (iterations_to_record_ == 0) {
    return;
  }
  add({.kind = SpanKind::wait,
       .name = interrupted_.name,
       .rank = rank_,
       .iteration = iteration_,
       .begin_seconds = wait_begin_,
       .end_seconds = now});
  open_ = interrupted_;
  open_.begin_seconds = interrupted_.begin_seconds > 0 ? now : 0;
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
  if (num_open_ops_ > 0 && --num_open_ops_ == 0) link_seconds_ += now - link_begin_;
  if (recording_) {
    spans_.push_back({.kind = SpanKind::link,
                      .name = ops_[op],
                      .rank = rank_,
                      .iteration = iteration,
                      .begin_seconds = op_begins_[op],
                      .end_seconds = now});
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

std::vector<IterationTimes> TrainingRecorder::take_samples() { return std::exchange(samples_, {}); }

void TrainingRecorder::record(std::int64_t num_iterations) {
  iterations_to_record_ = num_iterations;
  const std::lock_guard lock(mutex_);
  recording_ = num_iterations > 0;
}

std::vector<Span> TrainingRecorder::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

IterationTimes TrainingRecorder::times_of(const Marks& marks) {
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

double TrainingRecorder::compute_now() const { return now_seconds() - waited_seconds_; }

void TrainingRecorder::begin_marks() {
  marks_.first_reads.assign(layers_.size(), never);
  marks_.backward_ends.assign(layers_.size(), never);
  marks_.begin = marks_.forward_end = marks_.step_begin = marks_.step_end = never;
}

void TrainingRecorder::open_span(SpanKind kind, const std::string& name) {
  if (iterations_to_record_ > 0) {
    close_span();
    open_ = {.kind = kind,
             .name = name,
             .rank = rank_,
             .iteration = iteration_,
             .begin_seconds = now_seconds(),
             .end_seconds = 0};
  }
}

void TrainingRecorder::close_span() {
  if (open_.begin_seconds > 0) {
    open_.end_seconds = now_seconds();
    add(std::exchange(open_, {}));
  }
}

void TrainingRecorder::add(Span span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

}  // namespace dreamddp
