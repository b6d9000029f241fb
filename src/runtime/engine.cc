#include "runtime/engine.h"

#include <ATen/record_function.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "runtime/lateness.h"
#include "runtime/torch_device_stream.h"
#include "runtime/torch_transport.h"

namespace dreamddp {
namespace {

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

void Engine::detach() {
  std::unique_ptr<GradientHooks> hooks;  // destroyed without the mutex
  const Lock lock(mutex_);
  hooks.swap(hooks_);
}

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
