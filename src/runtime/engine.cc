#include "runtime/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>
#include <utility>

#include "runtime/lateness.h"
#include "runtime/torch_device_stream.h"
#include "runtime/torch_transport.h"

namespace dreamddp {
namespace {

std::vector<at::Tensor> all_parameters(const std::vector<LayerParameters>& layers) {
  std::vector<at::Tensor> parameters;
  for (const LayerParameters& layer : layers) {
    parameters.insert(parameters.end(), layer.parameters.begin(), layer.parameters.end());
  }
  return parameters;
}

c10::Device device_of(const std::vector<LayerParameters>& layers) {
  return layers.empty() ? c10::Device(c10::kCPU) : layers.front().parameters.front().device();
}

/// Longer than any pause: Gloo closes a connection for good when a reduction on it times out, so it is the
/// lane that gives up.
constexpr std::chrono::milliseconds reduction_timeout = std::chrono::hours(24 * 30);

constexpr const char* closed_meanwhile =
    "dreamddp: the engine was closed while a thread waited for an average. Close it when no training runs.";

std::shared_ptr<ProgressBoard> make_board(const c10d::ProcessGroup& group, const EngineOptions& options) {
  c10::intrusive_ptr<c10d::Store> store;
  if (group.getSize() > 1) {
    try {
      store = c10::make_intrusive<c10d::PrefixStore>("dreamddp/" + std::to_string(options.attachment),
                                                     group.getStore()->clone());
      store->setTimeout(options.timeout);
    } catch (const std::exception&) {
      store.reset();  // errors then do not name the ranks that are missing
    }
  }
  return std::make_shared<ProgressBoard>(std::move(store), group.getRank(), group.getSize(), options.timeout);
}

}  // namespace

Engine::Engine(std::vector<LayerParameters> layers, c10::intrusive_ptr<c10d::ProcessGroup> group,
               EngineOptions options)
    : layers_(std::move(layers)),
      group_(std::move(group)),
      options_(std::move(options)),
      device_(make_device_stream(device_of(layers_))),
      board_(make_board(*group_, options_)),
      recorder_(std::make_shared<TrainingRecorder>(group_->getRank(), device_)) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    layer_of_parameter_.insert(layer_of_parameter_.end(), layers_[layer].parameters.size(), layer);
  }
  seen_in_backward_.assign(layer_of_parameter_.size(), -1);
  missing_.assign(layers_.size(), 0);
  is_repeated_.assign(layers_.size(), false);
  is_updated_.assign(layers_.size(), false);
}

Engine::~Engine() { close(); }

void Engine::attach() {
  const std::weak_ptr<Engine> weak = weak_from_this();
  hooks_ = std::make_unique<GradientHooks>(all_parameters(layers_), [weak](std::size_t parameter) {
    if (const std::shared_ptr<Engine> engine = weak.lock()) {
      engine->in_backward([&] { engine->on_gradient(parameter); });
    }
  });
}

void Engine::set_repeated(std::span<const std::size_t> layers) {
  const Lock lock(mutex_);
  is_repeated_.assign(layers_.size(), false);
  for (const std::size_t layer : layers) is_repeated_.at(layer) = true;
}

template <typename Function>
void Engine::in_backward(Function function) {
  try {
    function();
  } catch (const SyncError& error) {
    if (options_.throw_in_backward) options_.throw_in_backward(error);
    throw;
  }
}

void Engine::detach() { hooks_.reset(); }

void Engine::close() {
  detach();
  std::shared_ptr<Lane> lane;
  std::function<void()> on_unplanned_backward;
  std::function<void(std::size_t)> on_layer_update;
  {
    const Lock lock(mutex_);
    scheduler_.reset();
    pending_waits_.clear();
    lane.swap(lane_);
    on_unplanned_backward.swap(on_unplanned_backward_);
    on_layer_update.swap(on_layer_update_);
  }
  if (lane) lane->abort(closed_meanwhile);  // ends the waits of other threads
  lane.reset();
  board_->close();
}

std::unique_ptr<Lane> Engine::make_lane(std::vector<TransportOp> ops,
                                        std::function<std::string(const Chunk&)> describe,
                                        LaneOptions options) const {
  const LatenessReport report{.board = board_,
                              .describe = std::move(describe),
                              .rank = group_->getRank(),
                              .timeout = options_.timeout};
  options.timeout = options_.timeout;
  options.num_slots = options_.num_slots;
  options.device = device_;
  report_to_board(options, board_);
  options.is_late = [report](const Lateness& late) { return report.of(late); };
  TransportOptions transport{
      .staging_bytes = options_.staging_bytes,
      .num_slots = options_.num_slots,
      .timeout = reduction_timeout,
      .device = device_of(layers_),
      .describe_failure = [report](const auto&... failure) { return report.of_failure(failure...); }};
  return std::make_unique<Lane>(
      std::make_unique<TorchTransport>(std::move(ops), group_, std::move(transport)), std::move(options));
}

void Engine::set_plan(const Plan& plan, const Profile& profile, std::int64_t first_iteration,
                      bool after_backward, std::vector<PendingOp> pending) {
  const auto running = make_running_plan(plan, profile, layers_, first_iteration);
  finish();
  Lock lock(mutex_);
  lane_.reset();
  board_->lane_changes();
  running_ = running;
  scheduler_ = std::make_unique<SyncScheduler>(std::shared_ptr<const Plan>(running, &running->plan), profile,
                                               first_iteration);
  first_op_ = 0;
  policy_.reset();
  recorder_->set_plan(plan.layers, running->labels);
  LaneOptions options;
  options.op_begins = [recorder = recorder_](std::int64_t /*sequence*/, std::size_t op) {
    recorder->op_begins(op);
  };
  const auto log = std::make_shared<LaunchLog>();
  log_ = log;
  options.op_ends = [recorder = recorder_, profiler = profiler_, log](std::int64_t sequence, std::size_t op) {
    recorder->op_ends(op, (*log)[sequence].iteration);
    profiler->end(sequence);
  };
  lane_ = make_lane(
      running->ops, [log](const Chunk& chunk) { return (*log)[chunk.sequence].description(); },
      std::move(options));
  std::vector<OpRun> in_flight;
  for (const PendingOp& op : pending) {
    in_flight.push_back({running->sequence_of(op.kept.op, op.iteration), op.kept.op, op.iteration});
  }
  scheduler_->resume(in_flight);
  for (std::size_t i = 0; i < pending.size(); ++i) {
    log_->note(in_flight[i].sequence, {running_, in_flight[i].op, in_flight[i].iteration});
    transport().adopt(in_flight[i].sequence, std::move(pending[i].kept));
    lane_->adopt(in_flight[i].sequence, in_flight[i].op);
  }
  if (after_backward) {
    backward_ended_ = true;
    finish_backward(lock);
  }
}

void Engine::on_unplanned_backward(std::function<void()> callback) {
  const Lock lock(mutex_);
  on_unplanned_backward_.swap(callback);  // the one before is destroyed without the mutex
}

/// Releases the mutex while it waits, in which another event may come: so the actions are a copy.
void Engine::carry_out(SyncScheduler::Actions actions, Lock& lock) {
  for (const Action& action : actions) {
    switch (action.kind) {
      case ActionKind::launch:
        // What is kept back must have been written before the same coordinates are packed again.
        if (running_->keeps_back) wait_for_pending(lock);
        launch(action.run);
        break;
      case ActionKind::wait:
        pending_waits_.push_back(action.run.sequence);
        break;
      case ActionKind::release:
        lane_->release(action.run.sequence);
        break;
    }
  }
}

void Engine::launch(const OpRun& run) { launch(run, running_, first_op_); }

/// @param first_op where the ops of `running` begin in the lane's table
void Engine::launch(const OpRun& run, const std::shared_ptr<const RunningPlan>& running,
                    std::size_t first_op) {
  recorder_->op_is_launched(running->op_bytes[run.op]);
  profiler_->begin(run.sequence, [&] { return "dreamddp::average " + running->labels[run.op]; });
  log_->note(run.sequence, {running, run.op, run.iteration});
  lane_->launch(run.sequence, first_op + run.op);
  board_->op_is_launched(run.sequence, run.iteration);
}

bool Engine::forward_starts() {
  Lock lock(mutex_);
  forward_in_no_sync_ = no_sync_;
  in_forward_ = true;
  several_forwards_ = several_forwards_ || (awaits_backward_ && !is_accumulating());
  awaits_backward_ = awaits_backward_ || !is_accumulating();
  put_off_early_ = put_off_early_ || several_forwards_;
  backward_ = no_backward;
  recomputes_ = false;
  if (!scheduler_) {
    return false;
  }
  scheduler_->set_accumulating(is_accumulating());
  if (backward_ended_) {
    backward_ended_ = false;
    early_launched_ = false;
    carry_out(scheduler_->iteration_begins(), lock);
  }
  return !pending_waits_.empty();
}

void Engine::module_begins() {
  Lock lock(mutex_);
  note_recomputation(lock);
}

void Engine::note_recomputation(Lock& lock) {
  if (current_backward() == no_backward) return;
  enter_backward(lock);
  recomputes_ = true;
}

bool Engine::forward_begins(std::span<const std::size_t> layers) {
  Lock lock(mutex_);
  if (!scheduler_) {
    return false;
  }
  if (!at::GradMode::is_enabled() && !in_forward_) {
    for (const std::size_t layer : layers) {
      carry_out(scheduler_->read_begins(layer), lock);
    }
    return !pending_waits_.empty();
  }
  note_recomputation(lock);
  recorder_->set_iteration(scheduler_->iteration());
  for (const std::size_t layer : layers) {
    recorder_->layer_is_read(layer);
    carry_out(scheduler_->forward_begins(layer), lock);
  }
  return !pending_waits_.empty();
}

void Engine::forward_ends(std::span<const std::size_t> layers) {
  Lock lock(mutex_);
  if (!scheduler_ || is_accumulating() || !at::GradMode::is_enabled()) {
    return;
  }
  for (const std::size_t layer : layers) {
    if (put_off_early_) {
      put_off_.push_back(layer);  // see Note [Early windows and no_sync]
    } else {
      const auto& actions = scheduler_->forward_ends(layer);
      early_launched_ = early_launched_ || !actions.empty();
      carry_out(actions, lock);
    }
  }
}

void Engine::forward_finishes() {
  const Lock lock(mutex_);
  in_forward_ = false;
  if (scheduler_ && at::GradMode::is_enabled()) {
    recorder_->forward_ends();
  }
}

void Engine::begin_backward(Lock& lock) {
  backward_is_final_ = !is_accumulating();
  awaits_backward_ = false;
  if (backward_is_final_) {
    if (scheduler_ && backward_ended_) {
      throw std::runtime_error(
          "dreamddp: a second backward() without a forward in between: the parameters may be under way "
          "already. "
          "Put all but the last backward() of an iteration under no_sync(), or add the losses and call it "
          "once; give checkpoint() use_reentrant=False.");
    }
    is_updated_.assign(layers_.size(), false);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      missing_[layer] = layers_[layer].parameters.size() + (is_repeated_[layer] ? 1 : 0);
    }
    if (scheduler_) {
      scheduler_->set_accumulating(false);
      if (policy_) decide(lock);
      for (const std::size_t layer : std::exchange(put_off_, {})) {
        carry_out(scheduler_->forward_ends(layer), lock);
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

/// On a thread that runs a backward: notes it, unless it belongs to the one that is known.
void Engine::enter_backward(Lock& lock) {
  const int backward = current_backward();
  if (backward_ == backward || (backward_ != no_backward && recomputes_)) return;
  backward_ = backward;
  recomputes_ = false;
  begin_backward(lock);
  at_end_of_backward([weak = weak_from_this()] {
    if (const std::shared_ptr<Engine> engine = weak.lock()) {
      engine->in_backward([&] { engine->on_backward_end(); });
    }
  });
}

void Engine::on_gradient(std::size_t parameter) {
  Lock lock(mutex_);
  enter_backward(lock);
  if (!backward_is_final_ || !scheduler_ || seen_in_backward_[parameter] == backward_) {
    return;
  }
  seen_in_backward_[parameter] = backward_;
  const std::size_t layer = layer_of_parameter_[parameter];
  if (--missing_[layer] > 0) {
    return;
  }
  if (policy_) policy_->gradient_is_complete(layer);
  update_layer(layer, lock);
  if (!scheduler_) return;  // closed meanwhile
  const std::size_t plan_layer = running_->plan_layer[layer];
  recorder_->layer_backward_ends(plan_layer);
  carry_out(scheduler_->backward_ends(plan_layer), lock);
}

void Engine::reader_backward_ends(std::size_t layer) {
  Lock lock(mutex_);
  if (!scheduler_ || is_accumulating() || backward_ended_) {
    return;
  }
  recorder_->layer_backward_ends(layer);
  carry_out(scheduler_->backward_ends(layer), lock);
}

void Engine::on_backward_end() {
  Lock lock(mutex_);
  backward_ = no_backward;
  recomputes_ = false;
  forward_in_no_sync_ = false;
  if (!backward_is_final_) {
    return;
  }
  backward_ended_ = true;
  for (std::size_t layer = 0; layer < layers_.size() && scheduler_; ++layer) update_layer(layer, lock);
  if (scheduler_) {
    finish_backward(lock);
  } else if (const auto callback = on_unplanned_backward_) {
    lock.unlock();
    callback();
  }
}

/// Averaged gradients are there when backward() returns: people clip and look at them before the step.
void Engine::finish_backward(Lock& lock) {
  carry_out(scheduler_->backward_finishes(), lock);
  if (policy_) share_signals();
  if (!running_->has_gradients) return;
  for (const OpRun& run : scheduler_->in_flight()) {
    const bool is_gradient = running_->plan.ops[run.op].quantity == Quantity::gradients;
    if (is_gradient) pending_waits_.push_back(run.sequence);
  }
  wait_for_pending(lock);
}

void Engine::backward_without_data() {
  {
    Lock lock(mutex_);
    forward_in_no_sync_ = false;
    begin_backward(lock);
  }
  on_backward_end();
}

bool Engine::step_begins() {
  Lock lock(mutex_);
  if (!scheduler_) {
    return false;
  }
  recorder_->step_begins();
  carry_out(scheduler_->step_begins(), lock);
  return !pending_waits_.empty();
}

void Engine::step_ends() {
  Lock lock(mutex_);
  if (!scheduler_) {
    return;
  }
  recorder_->step_ends(backward_ended_);
  carry_out(scheduler_->step_ends(), lock);
  if (backward_ended_) {
    backward_ended_ = false;
    early_launched_ = false;
    put_off_early_ = backward_only_no_sync_ || several_forwards_;
  }
}

void Engine::finish() {
  std::shared_ptr<Lane> lane;
  {
    Lock lock(mutex_);
    if (!scheduler_) {
      return;
    }
    carry_out(scheduler_->finish(), lock);
    if (signals_under_way_) pending_waits_.push_back(*signals_under_way_);
    wait_for_pending(lock);
    lane = lane_;
  }
  lane->wait_until_done(options_.check_interrupt);
}

void Engine::wait() {
  Lock lock(mutex_);
  wait_for_pending(lock);
}

void Engine::wait_for(const std::vector<std::int64_t>& sequences, Lane& lane, const LaunchLog& log) const {
  for (const std::int64_t sequence : sequences) {
    at::RecordFunction span(at::RecordScope::USER_SCOPE);
    if (span.isActive()) span.before("dreamddp::wait " + log[sequence].label());
    lane.wait(sequence, options_.check_interrupt);
  }
}

/// Waits with the mutex released: a check for interrupts takes the GIL, which another thread may hold while
/// it waits for the mutex.
void Engine::wait_for_pending(Lock& lock) {
  if (pending_waits_.empty()) return;
  const std::vector<std::int64_t> waits = std::exchange(pending_waits_, {});
  recorder_->wait_begins();
  {
    const std::shared_ptr<Lane> lane = lane_;
    const std::shared_ptr<const LaunchLog> log = log_;
    lock.unlock();
    wait_for(waits, *lane, *log);
  }
  lock.lock();
  if (!scheduler_) throw SyncError(closed_meanwhile);
  recorder_->wait_ends();
}

void Engine::average(const std::vector<at::Tensor>& tensors) {
  const auto lane =
      make_lane({{.slices = whole_slices(tensors), .statistics = {}}},
                [](const Chunk& /*chunk*/) { return std::string("averaging the whole model"); }, {});
  board_->lane_changes();
  lane->launch(0, 0);
  board_->op_is_launched(0, -1);
  lane->wait(0, options_.check_interrupt);
  lane->wait_until_done(options_.check_interrupt);
  board_->lane_changes();  // back to the plan's
}

void Engine::set_paused(bool is_paused) { board_->set_paused(is_paused); }

void Engine::meet(const std::string& doing) { board_->meet(doing, options_.check_interrupt); }

void Engine::rest() { board_->rest(); }

bool Engine::has_failed() const {
  const Lock lock(mutex_);
  return lane_ && lane_->has_failed();
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
  recorder_->set_sampling(active);
}

std::vector<IterationTimes> Engine::take_samples() {
  TrainingRecorder::Samples samples;
  {
    const Lock lock(mutex_);
    samples = recorder_->take_samples();
  }
  return recorder_->times_of(samples);
}

void Engine::record(std::int64_t num_iterations) {
  const TrainingRecorder::Moment begin =
      num_iterations > 0 ? recorder_->synchronise() : TrainingRecorder::Moment{};
  const Lock lock(mutex_);
  recorder_->record(num_iterations, begin);
}

std::vector<Span> Engine::spans() const { return recorder_->spans(); }

TrainingStatistics Engine::statistics() const {
  const Lock lock(mutex_);
  return recorder_->statistics();
}

void Engine::reset_statistics() {
  const Lock lock(mutex_);
  recorder_->reset_statistics();
}

}  // namespace dreamddp
