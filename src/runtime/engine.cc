#include "runtime/engine.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>
#include <utility>

#include "dreamddp/error.h"
#include "runtime/torch_transport.h"

namespace dreamddp {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<at::Tensor> all_parameters(const std::vector<LayerParameters>& layers) {
  std::vector<at::Tensor> parameters;
  for (const LayerParameters& layer : layers) {
    parameters.insert(parameters.end(), layer.parameters.begin(), layer.parameters.end());
  }
  return parameters;
}

/// "'h.2'", "'h.2' and 3 more layers"
std::string name_layers(const Op& op, const Plan& plan) {
  std::string text = "'" + plan.layers[op.segments.front().layer] + "'";
  if (op.segments.size() > 1) {
    text += " and " + std::to_string(op.segments.size() - 1) + " more";
  }
  return text;
}

void reject_unsupported(const Plan& plan, const Profile& profile) {
  const EventOrder order(profile);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.quantity != Quantity::parameters || op_mode(op, order) != OpMode::in_place) {
      reject({.field = "ops[" + std::to_string(i) + "] of layer " + name_layers(op, plan),
              .value = op.quantity == Quantity::gradients ? "gradients" : "a held or carried average",
              .allowed = "parameters, averaged in place",
              .remedy =
                  "Take a plan of `balanced`, `local-sgd` or `equal-count`; others can be simulated only."});
    }
  }
}

}  // namespace

Engine::Engine(std::vector<LayerParameters> layers, c10::intrusive_ptr<c10d::ProcessGroup> group,
               EngineOptions options)
    : layers_(std::move(layers)), group_(std::move(group)), options_(options) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    layer_of_parameter_.insert(layer_of_parameter_.end(), layers_[layer].parameters.size(), layer);
  }
  seen_in_backward_.assign(layer_of_parameter_.size(), -1);
  missing_.assign(layers_.size(), 0);
}

Engine::~Engine() = default;

void Engine::attach() {
  const std::weak_ptr<Engine> weak = weak_from_this();
  hooks_ = std::make_unique<GradientHooks>(all_parameters(layers_), [weak](std::size_t parameter) {
    if (const std::shared_ptr<Engine> engine = weak.lock()) {
      engine->on_gradient(parameter);
    }
  });
}

void Engine::detach() { hooks_.reset(); }

std::unique_ptr<Lane> Engine::make_lane(std::vector<std::vector<TensorSlice>> ops,
                                        std::function<std::string(const Chunk&)> describe) {
  TransportOptions transport{.staging_bytes = options_.staging_bytes,
                             .num_slots = options_.num_slots,
                             .timeout = options_.timeout,
                             .describe = std::move(describe)};
  LaneOptions lane;
  lane.num_slots = options_.num_slots;
  lane.op_begins = [this](std::int64_t /*sequence*/, std::size_t op) {
    const std::lock_guard lock(recorder_mutex_);
    if (op < op_begins_.size()) {
      op_begins_[op] = now_seconds();
    }
  };
  lane.op_ends = [this](std::int64_t sequence, std::size_t op) {
    const std::lock_guard lock(recorder_mutex_);
    if (op < op_begins_.size() && recorder_.is_recording()) {
      recorder_.add({.kind = SpanKind::link,
                     .name = op_labels_[op],
                     .rank = group_->getRank(),
                     .iteration = iteration_of(sequence),
                     .begin_seconds = op_begins_[op],
                     .end_seconds = now_seconds()});
    }
  };
  return std::make_unique<Lane>(std::make_unique<TorchTransport>(ops, group_, std::move(transport)),
                                std::move(lane));
}

std::int64_t Engine::iteration_of(std::int64_t sequence) const {
  const auto num_ops = static_cast<std::int64_t>(plan_->ops.size());
  const std::int64_t launches = sequence + first_op_;
  return first_period_start_ + launches / num_ops * plan_->period +
         plan_->ops[static_cast<std::size_t>(launches % num_ops)].launch.iteration;
}

void Engine::set_plan(const Plan& plan, const Profile& profile, std::int64_t first_iteration,
                      bool after_backward) {
  validate(plan, profile);
  reject_unsupported(plan, profile);
  if (finish()) {
    wait();
  }
  const Lock lock(mutex_);
  std::unordered_map<std::string, std::size_t> index_of;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    index_of.emplace(profile.layers[i].name, i);
  }
  std::vector<const LayerParameters*> parameters_of(profile.layers.size(), nullptr);
  plan_layer_.assign(layers_.size(), 0);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto found = index_of.find(layers_[i].name);
    if (found == index_of.end()) {
      reject({.field = "layers of the profile",
              .value = "none named '" + layers_[i].name + "'",
              .allowed = "all layers of the model that have trainable parameters",
              .remedy = "Measure the profile with this model."});
    }
    plan_layer_[i] = found->second;
    parameters_of[found->second] = &layers_[i];
  }
  std::vector<std::vector<TensorSlice>> slices;
  std::vector<std::string> labels;
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    std::vector<TensorSlice> op_slices;
    for (const Segment& segment : plan.ops[i].segments) {
      if (const LayerParameters* layer = parameters_of[segment.layer]; layer != nullptr) {
        const auto part = segment_slices(*layer, segment.begin, segment.end);
        op_slices.insert(op_slices.end(), part.begin(), part.end());
      }
    }
    bytes.push_back(num_bytes(op_slices));
    slices.push_back(std::move(op_slices));
    labels.push_back("op " + std::to_string(i) + ": " + name_layers(plan.ops[i], plan));
  }
  lane_.reset();
  plan_ = std::make_shared<const Plan>(plan);
  scheduler_ = std::make_unique<SyncScheduler>(plan_, profile, first_iteration);
  first_op_ = static_cast<std::int64_t>(scheduler_->next_op());
  first_period_start_ = first_iteration - first_iteration % plan.period;
  op_bytes_ = std::move(bytes);
  layer_names_ = plan.layers;
  marks_ = IterationMarks(profile.layers.size());
  {
    const std::lock_guard recorder_lock(recorder_mutex_);
    op_labels_ = std::move(labels);
    op_begins_.assign(plan.ops.size(), 0);
  }
  lane_ = make_lane(std::move(slices), [this](const Chunk& chunk) {
    return "averaging " + name_layers(plan_->ops[chunk.op], *plan_) + " (op " + std::to_string(chunk.op) +
           " of the plan, step " + std::to_string(iteration_of(chunk.sequence)) + ")";
  });
  if (after_backward) {
    backward_ended_ = true;
    carry_out(scheduler_->backward_finishes());
  }
}

void Engine::carry_out(const SyncScheduler::Actions& actions) {
  for (const Action& action : actions) {
    switch (action.kind) {
      case ActionKind::launch:
        statistics_.ops += 1;
        statistics_.num_bytes += op_bytes_[action.run.op];
        lane_->launch(action.run.sequence, action.run.op);
        break;
      case ActionKind::wait:
        pending_waits_.push_back(action.run.sequence);
        break;
      case ActionKind::release:
        throw std::logic_error("a result was released, but all ops are in place");
    }
  }
}

bool Engine::forward_starts() {
  const Lock lock(mutex_);
  forward_in_no_sync_ = no_sync_;
  backward_ = -1;
  if (!scheduler_) {
    return false;
  }
  scheduler_->set_accumulating(is_accumulating());
  if (backward_ended_) {
    backward_ended_ = false;
    early_launched_ = false;
    carry_out(scheduler_->iteration_begins());
  }
  put_off_.clear();
  return !pending_waits_.empty();
}

bool Engine::forward_begins(std::span<const std::size_t> layers) {
  const Lock lock(mutex_);
  if (!scheduler_) {
    return false;
  }
  if (!at::GradMode::is_enabled()) {
    for (const std::size_t layer : layers) {
      carry_out(scheduler_->read_begins(layer));
    }
    return !pending_waits_.empty();
  }
  const double now = compute_now();
  for (const std::size_t layer : layers) {
    if (marks_.first_reads[layer] == IterationMarks::never) {
      marks_.first_reads[layer] = now;
    }
    carry_out(scheduler_->forward_begins(layer));
  }
  open_span(SpanKind::forward, layer_names_[layers.back()]);
  return !pending_waits_.empty();
}

void Engine::forward_ends(std::span<const std::size_t> layers) {
  const Lock lock(mutex_);
  if (!scheduler_ || is_accumulating() || !at::GradMode::is_enabled()) {
    return;
  }
  for (const std::size_t layer : layers) {
    if (put_off_early_) {
      put_off_.push_back(layer);  // see Note [Early windows and no_sync]
    } else {
      const auto& actions = scheduler_->forward_ends(layer);
      early_launched_ = early_launched_ || !actions.empty();
      carry_out(actions);
    }
  }
}

void Engine::forward_finishes() {
  const Lock lock(mutex_);
  if (scheduler_ && at::GradMode::is_enabled()) {
    marks_.forward_end = compute_now();
    open_span(SpanKind::backward, "");
  }
}

void Engine::begin_backward() {
  backward_is_final_ = !is_accumulating();
  if (backward_is_final_) {
    if (scheduler_ && backward_ended_) {
      throw std::runtime_error(
          "dreamddp: a second backward() without a forward in between: the parameters may be under way "
          "already. "
          "Put all but the last backward() of an iteration under no_sync(), or add the losses and call it "
          "once.");
    }
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      missing_[layer] = layers_[layer].parameters.size();
    }
    if (scheduler_) {
      scheduler_->set_accumulating(false);
      for (const std::size_t layer : put_off_) {
        carry_out(scheduler_->forward_ends(layer));
      }
    }
  } else {
    if (early_launched_) {
      throw std::runtime_error(
          "dreamddp: a backward() under no_sync() whose forward was outside: a layer's average has begun at "
          "the "
          "end of that forward, and the next micro-batch would read it. Put the forward under no_sync() "
          "too.");
    }
    backward_only_no_sync_ = backward_only_no_sync_ || !forward_in_no_sync_;
  }
  put_off_.clear();
}

void Engine::on_gradient(std::size_t parameter) {
  const Lock lock(mutex_);
  const int backward = current_backward();
  if (backward_ != backward) {
    backward_ = backward;
    begin_backward();
    at_end_of_backward([weak = weak_from_this()] {
      if (const std::shared_ptr<Engine> engine = weak.lock()) {
        engine->on_backward_end();
      }
    });
  }
  if (!backward_is_final_ || !scheduler_ || seen_in_backward_[parameter] == backward) {
    return;
  }
  seen_in_backward_[parameter] = backward;
  const std::size_t layer = layer_of_parameter_[parameter];
  if (--missing_[layer] > 0) {
    return;
  }
  const std::size_t plan_layer = plan_layer_[layer];
  marks_.backward_ends[plan_layer] = compute_now();
  open_.name = layer_names_[plan_layer];
  open_span(SpanKind::backward, "");
  carry_out(scheduler_->backward_ends(plan_layer));
}

void Engine::reader_backward_ends(std::size_t layer) {
  const Lock lock(mutex_);
  if (!scheduler_ || is_accumulating() || backward_ended_) {
    return;
  }
  marks_.backward_ends[layer] = compute_now();
  carry_out(scheduler_->backward_ends(layer));
}

void Engine::on_backward_end() {
  const Lock lock(mutex_);
  backward_ = -1;
  forward_in_no_sync_ = false;
  if (!backward_is_final_) {
    return;
  }
  backward_ended_ = true;
  if (!scheduler_) {
    return;
  }
  carry_out(scheduler_->backward_finishes());
}

bool Engine::step_begins() {
  const Lock lock(mutex_);
  if (!scheduler_) {
    return false;
  }
  if (marks_.step_begin == IterationMarks::never) {
    marks_.step_begin = compute_now();
  }
  open_span(SpanKind::step, "step");
  carry_out(scheduler_->step_begins());
  return !pending_waits_.empty();
}

void Engine::step_ends() {
  const Lock lock(mutex_);
  if (!scheduler_) {
    return;
  }
  const double now = now_seconds();
  close_span(now);
  carry_out(scheduler_->step_ends());
  if (!backward_ended_) {
    return;
  }
  backward_ended_ = false;
  early_launched_ = false;
  put_off_early_ = backward_only_no_sync_;
  marks_.step_end = now - waited_seconds_;
  if (sampling_ && marks_.begin != IterationMarks::never && marks_.forward_end != IterationMarks::never) {
    samples_.push_back(iteration_times(marks_));
  }
  const double end = marks_.step_end;
  marks_ = IterationMarks(marks_.first_reads.size());
  marks_.begin = end;
  if (last_step_end_ > 0) {
    statistics_.iterations += 1;
    statistics_.seconds += now - last_step_end_;
    statistics_.exposed_seconds += waited_seconds_ - waited_at_step_end_;
  }
  last_step_end_ = now;
  waited_at_step_end_ = waited_seconds_;
  const std::lock_guard recorder_lock(recorder_mutex_);
  recorder_.end_iteration();
  recording_ = recorder_.is_recording();
}

bool Engine::finish() {
  const Lock lock(mutex_);
  if (!scheduler_) {
    return false;
  }
  carry_out(scheduler_->finish());
  return !pending_waits_.empty();
}

void Engine::wait() {
  std::vector<std::int64_t> waits;
  Span interrupted;
  const double begin = now_seconds();
  {
    const Lock lock(mutex_);
    waits.swap(pending_waits_);
    interrupted = open_;
    close_span(begin);
  }
  for (const std::int64_t sequence : waits) {
    lane_->wait(sequence);
  }
  const double end = now_seconds();
  const Lock lock(mutex_);
  waited_seconds_ += end - begin;
  if (recording_) {
    const std::lock_guard recorder_lock(recorder_mutex_);
    recorder_.add({.kind = SpanKind::wait,
                   .name = interrupted.name,
                   .rank = group_->getRank(),
                   .iteration = scheduler_->iteration(),
                   .begin_seconds = begin,
                   .end_seconds = end});
    open_ = interrupted;
    open_.begin_seconds = end;
  }
}

void Engine::average(const std::vector<at::Tensor>& tensors) {
  std::vector<TensorSlice> slices;
  for (const at::Tensor& tensor : tensors) {
    const auto part = segment_slices({"", {tensor}}, 0, 1);
    slices.insert(slices.end(), part.begin(), part.end());
  }
  TransportOptions options{.staging_bytes = options_.staging_bytes,
                           .num_slots = options_.num_slots,
                           .timeout = options_.timeout,
                           .describe = [](const Chunk&) { return std::string("averaging the whole model"); }};
  Lane lane(std::make_unique<TorchTransport>(std::vector<std::vector<TensorSlice>>{slices}, group_,
                                             std::move(options)),
            {.num_slots = options_.num_slots, .op_begins = nullptr, .op_ends = nullptr});
  lane.launch(0, 0);
  lane.wait(0);
}

void Engine::set_no_sync(bool active) {
  const Lock lock(mutex_);
  no_sync_ = active;
}

std::int64_t Engine::iteration() const {
  const Lock lock(mutex_);
  return scheduler_ ? scheduler_->iteration() : 0;
}

bool Engine::awaits_step() const {
  const Lock lock(mutex_);
  return backward_ended_;
}

void Engine::set_sampling(bool active) {
  const Lock lock(mutex_);
  sampling_ = active;
}

std::vector<IterationTimes> Engine::take_samples() {
  const Lock lock(mutex_);
  return std::exchange(samples_, {});
}

void Engine::record(std::int64_t num_iterations) {
  const Lock lock(mutex_);
  const std::lock_guard recorder_lock(recorder_mutex_);
  recorder_.start(num_iterations);
  recording_ = recorder_.is_recording();
}

std::vector<Span> Engine::spans() const {
  const std::lock_guard lock(recorder_mutex_);
  return recorder_.spans();
}

EngineStatistics Engine::statistics() const {
  const Lock lock(mutex_);
  return statistics_;
}

void Engine::reset_statistics() {
  const Lock lock(mutex_);
  statistics_ = {};
}

double Engine::compute_now() const { return now_seconds() - waited_seconds_; }

void Engine::open_span(SpanKind kind, const std::string& name) {
  if (recording_) {
    const double now = now_seconds();
    close_span(now);
    open_ = {.kind = kind, .name = name, .begin_seconds = now};
  }
}

void Engine::close_span(double now) {
  if (recording_ && open_.begin_seconds > 0) {
    open_.rank = group_->getRank();
    open_.iteration = scheduler_->iteration();
    open_.end_seconds = now;
    const std::lock_guard lock(recorder_mutex_);
    recorder_.add(open_);
  }
  open_ = {};
}

}  // namespace dreamddp
