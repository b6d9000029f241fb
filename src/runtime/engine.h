// Carries a plan out in a running training: turns hooks into events of the SyncScheduler, and its actions
// into work for the lane. Design sections 3, 8 and 9.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "dreamddp/error.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"
#include "dreamddp/sync_scheduler.h"
#include "runtime/device_stream.h"
#include "runtime/gradient_hooks.h"
#include "runtime/lane.h"
#include "runtime/launch_log.h"
#include "runtime/policy_run.h"
#include "runtime/profiler_spans.h"
#include "runtime/progress_board.h"
#include "runtime/running_plan.h"
#include "runtime/tensor_slices.h"
#include "runtime/torch_transport.h"
#include "runtime/training_recorder.h"

namespace c10d {
class ProcessGroup;
}

namespace dreamddp {

struct EngineOptions {
  std::int64_t staging_bytes = std::int64_t{8} << 20;  ///< of the ring, in all
  std::size_t num_slots = 2;                           ///< staging buffers in the ring
  std::chrono::milliseconds timeout{300000};           ///< how long a rank waits for the others
  std::int64_t attachment = 0;  ///< counts the engines that a group has had; the same on all ranks
  /// Called about ten times a second by waits; what it throws ends them. Null: nothing ends them.
  std::function<void()> check_interrupt;
  /// Throws what stands for the error in a backward: autograd takes an exception that it does not know for a
  /// RuntimeError. Null: the error itself.
  std::function<void(const SyncError&)> throw_in_backward;
};

/// A held or carried op between its launch and its write: what is needed to write it elsewhere.
struct PendingOp {
  std::int64_t iteration = 0;  ///< of its launch, counted from the start of training
  KeptMeans kept;
};

/// One worker's engine.
///
/// Thread safety: events come one at a time, from the training thread and, during a backward, from autograd's
/// threads; whatever else may be called from any thread. A mutex guards the state. It is never held while a
/// call waits or enters Python, so a caller with the GIL waits for it for a moment at most.
///
/// Methods that return bool say whether the caller must call wait() before it goes on, which blocks until the
/// lane has caught up. They, and all other events, block themselves where an op is launched while means of
/// held or carried ones are still to be written, and where policies decide: release the GIL for events, too.
/// On a GPU the events of a thread speak of the work that its current stream has been given. An error of the
/// lane is thrown by the next event or wait as SyncError; so is a close() during a wait.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// @param layers the model's trainable parameters, all on one device; the engine hooks their gradients in
  /// attach()
  /// @param group of the engine alone: no other collective may run on it while a plan is carried out
  Engine(std::vector<LayerParameters> layers, c10::intrusive_ptr<c10d::ProcessGroup> group,
         EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Hooks the gradients, while no backward runs. Until set_plan() nothing is communicated.
  void attach();
  /// Gradients of these layers come more than once in a backward (their parameters are used in several
  /// checkpointed parts): which one is the last is known only at its end, where the layers join.
  void set_repeated(std::span<const std::size_t> layers);
  /// Removes the hooks, while no backward runs. Ops in flight go on; finish() waits for them.
  void detach();
  /// Removes the hooks and drops what is under way: for the end of the process. Waits for at most
  /// LaneOptions::grace. Waits of other threads end with SyncError, and events do nothing afterwards.
  void close();

  /// Called at the end of final backwards, while there is no plan; it may set one.
  void on_unplanned_backward(std::function<void()> callback);

  /// Lets policies decide what is averaged, from the next final backward on, in the layers of a profile. The
  /// plan that is set before must have no ops, and set_plan() ends it.
  /// @param state from policy_state() of an engine with the same rules, layers and ranks; null: a start
  /// @throws std::invalid_argument for rules that do not fit the layers, and another state
  void set_policy(Profile profile, const Link& link, PolicyRunOptions options,
                  const PolicyState* state = nullptr);
  /// Between two iterations: all that the policies go on from. Blocks until it is agreed.
  /// @throws SyncError
  PolicyState policy_state();
  /// All layers have been averaged outside the plan: to the policies they are fresh.
  void all_are_averaged();
  /// Between a final backward and the end of its step: of each layer, the local steps since its last average.
  /// Empty where no policies decide about this iteration.
  std::vector<std::int64_t> staleness() const;
  /// What the policies have decided so far about `first_iteration` and later ones, as far as it is kept.
  std::vector<IterationDecisions> decisions(std::int64_t first_iteration = 0) const;

  /// Fused updates: called in final backwards to step one of the engine's layers, when its gradients are
  /// complete or at the end of the backward, once and by one thread at a time, before any average of it
  /// begins. While there is no plan it is not called: on_unplanned_backward() then steps all layers.
  void on_layer_update(std::function<void(std::size_t layer)> update);

  /// Carries out `plan` from now on, starting at `first_iteration` (counted from the start of training).
  /// Layers of events are those of `profile`, from here on. Blocks until ops of the plan before have ended.
  /// @param after_backward the final backward of first_iteration has just ended, its step has not begun; all
  ///   its ops that come before the step are launched now. Else the next event is that iteration's first
  ///   read.
  /// @param pending ops in flight at first_iteration, in launch order, from pending() of an engine with the
  ///   same plan, profile and layers
  /// @throws std::invalid_argument for a plan that is not valid for the profile, and a profile that lacks
  ///   layers of the model
  /// @throws SyncError where an op of the plan before fails
  void set_plan(const Plan& plan, const Profile& profile, std::int64_t first_iteration, bool after_backward,
                std::vector<PendingOp> pending = {});
  /// Between two iterations: waits until averages in place are written, and copies what held and carried ops
  /// are going to write. Blocks; no value of the training depends on whether it was called.
  /// @throws SyncError
  std::vector<PendingOp> pending();

  /// The model's forward begins (with gradients enabled), before any layer's.
  bool forward_starts();
  /// A module is about to run. Before there is a plan this tells of checkpointed parts; later
  /// forward_begins() does.
  void module_begins();
  /// Layers are about to be read; with gradients disabled by an evaluation, which does not advance the plan.
  bool forward_begins(std::span<const std::size_t> layers);
  /// Modules that read layers for the last time in the forward have ended theirs.
  void forward_ends(std::span<const std::size_t> layers);
  /// The model's forward has ended.
  void forward_finishes();
  /// A final backward without gradients, of a rank that has no data left: it launches the ops that the others
  /// launch, with the parameters as they are.
  void backward_without_data();
  /// The backward of a layer that owns no parameters, but reads a tied one, has ended.
  void reader_backward_ends(std::size_t layer);
  bool step_begins();
  void step_ends();
  /// Waits for everything in flight, on a device until it is done there. Blocks.
  /// @throws SyncError
  void finish();
  /// Waits for what the last event returned true for. Blocks.
  /// @throws SyncError
  void wait();

  /// Other ranks do not fail while they wait for this one, until it is called with false.
  void set_paused(bool is_paused);
  /// Blocks until all ranks have called this as often; see ProgressBoard::meet().
  /// @throws SyncError
  void meet(const std::string& doing);
  /// Nobody is waiting for this rank until it launches an op again.
  void rest();
  /// Whether an op of the plan has failed. Events and waits then throw SyncError.
  bool has_failed() const;

  /// Averages tensors of floating point over all ranks, now and in order; blocks. The plan may not have ops
  /// in flight.
  /// @throws SyncError
  void average(const std::vector<at::Tensor>& tensors);

  /// Inside no_sync(): backwards are not the last of their iteration. A forward inside makes its backward one
  /// of them, wherever that runs.
  void set_no_sync(bool active);

  /// Iteration of the plan, counted from the start of training; 0 before set_plan().
  std::int64_t iteration() const;
  /// Whether a final backward has ended since the last step, so that a step belongs to it.
  bool awaits_step() const;

  void set_sampling(bool active);
  /// Compute times of the iterations since the last call, in the profile's layers.
  /// Blocks for the device, where there is one.
  std::vector<IterationTimes> take_samples();

  /// Blocks for the device, where there is one.
  void record(std::int64_t num_iterations);
  /// Spans recorded so far, on the clock of std::chrono::steady_clock. Blocks for the device, too.
  std::vector<Span> spans() const;

  TrainingStatistics statistics() const;
  void reset_statistics();

 private:
  using Lock = std::unique_lock<std::mutex>;

  template <typename Function>
  void in_backward(Function function);
  void on_gradient(std::size_t parameter);
  void on_backward_end();
  void enter_backward(Lock& lock);
  void note_recomputation(Lock& lock);
  void begin_backward(Lock& lock);
  void update_layer(std::size_t layer, Lock& lock);
  void finish_backward(Lock& lock);
  void carry_out(SyncScheduler::Actions actions, Lock& lock);
  void wait_for_pending(Lock& lock);
  TorchTransport& transport() const;
  std::unique_ptr<Lane> make_lane(std::vector<TransportOp> ops,
                                  std::function<std::string(const Chunk&)> describe,
                                  LaneOptions options) const;
  void launch(const OpRun& run);
  void launch(const OpRun& run, const std::shared_ptr<const RunningPlan>& running, std::size_t first_op);
  void decide(Lock& lock);
  void wait_for_signals(Lock& lock);
  void share_signals();
  void wait_for(const std::vector<std::int64_t>& sequences, Lane& lane, const LaunchLog& log) const;
  bool is_accumulating() const { return no_sync_ || forward_in_no_sync_; }

  const std::vector<LayerParameters> layers_;
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const EngineOptions options_;
  const std::shared_ptr<DeviceStream> device_;  // of the parameters; null on a CPU
  std::vector<std::size_t> layer_of_parameter_;

  mutable std::mutex mutex_;
  std::unique_ptr<GradientHooks> hooks_;
  std::shared_ptr<const RunningPlan> running_;
  std::size_t first_op_ = 0;  // where its ops begin in the lane's table
  std::shared_ptr<LaunchLog> log_;
  std::unique_ptr<SyncScheduler> scheduler_;
  std::shared_ptr<Lane> lane_;  // waits keep it without the mutex
  std::vector<std::int64_t> pending_waits_;
  std::function<void()> on_unplanned_backward_;
  std::function<void(std::size_t)> on_layer_update_;
  std::mutex update_mutex_;  // optimizers are not thread-safe; taken without mutex_

  // Where policies decide: see engine_policy.cc.
  std::unique_ptr<PolicyRun> policy_;
  std::shared_ptr<const RunningPlan> signals_;     // one op, the first of the lane's table
  std::optional<std::int64_t> signals_under_way_;  // its sequence number
  bool all_are_averaged_ = false;                  // since the last decision

  bool in_forward_ = false;  // a training forward of the model, some parts of which may have no gradients

  // The backward that is running: the outermost one.
  int backward_ = no_backward;
  bool recomputes_ = false;  // modules run in it: checkpointed parts, which may have backwards of their own
  bool backward_is_final_ = false;
  bool backward_ended_ = false;        // final, and its step has not come
  std::vector<int> seen_in_backward_;  // per parameter: the backward that last brought its gradient
  std::vector<std::size_t> missing_;   // per engine layer: gradients still to come
  std::vector<bool> is_repeated_;      // per engine layer, see set_repeated()
  std::vector<bool> is_updated_;       // per engine layer: stepped in this backward

  bool no_sync_ = false;
  bool forward_in_no_sync_ = false;
  // Note [Early windows and no_sync]
  // An op launched at the end of a layer's forward must not be launched in a micro-batch whose backward turns
  // out to be inside no_sync(): the next micro-batch would read the averaged weights. So in the first
  // iteration such events are put off until the backward shows which kind it is, and for good once a forward
  // outside no_sync() was followed by a backward inside. For good, too, once several forwards came before one
  // backward: the second would read what the end of the first has launched.
  bool put_off_early_ = true;
  bool backward_only_no_sync_ = false;
  bool awaits_backward_ = false;  // a forward outside no_sync() has begun, and no backward since
  bool several_forwards_ = false;
  std::vector<std::size_t> put_off_;
  bool early_launched_ = false;

  // The lane's thread, which may outlive the engine, uses them, too.
  const std::shared_ptr<ProgressBoard> board_;
  const std::shared_ptr<ProfilerSpans> profiler_ = std::make_shared<ProfilerSpans>();

  // Guarded by mutex_, but for what the lane calls; the lane's thread may outlive the engine.
  const std::shared_ptr<TrainingRecorder> recorder_;
};

}  // namespace dreamddp
