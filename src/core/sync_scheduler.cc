#include "dreamddp/sync_scheduler.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "core/schedule_rules.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr std::int64_t never = -1;

}  // namespace

SyncScheduler::SyncScheduler(std::shared_ptr<const Plan> plan, const Profile& profile,
                             std::int64_t first_iteration)
    : plan_(std::move(plan)),
      rules_(std::make_shared<const ScheduleRules>(*plan_, profile)),
      iteration_(first_iteration),
      ops_(plan_->ops.size()),
      forward_ended_(profile.layers.size(), never),
      backward_ended_(profile.layers.size(), never),
      read_begun_(profile.layers.size(), never),
      read_ended_(profile.layers.size(), never) {
  if (first_iteration < 0)
    reject({"first_iteration", std::to_string(first_iteration), "a whole number of at least 0",
            "Give the number of iterations trained before, 0 at the start"});
  if (plan_->ops.empty()) return;
  const std::int64_t place = first_iteration % plan_->period;
  const auto first =
      std::ranges::find_if(plan_->ops, [&](const Op& op) { return op.launch.iteration >= place; });
  const bool in_next_period = first == plan_->ops.end();
  next_op_ = in_next_period ? 0 : static_cast<std::size_t>(first - plan_->ops.begin());
  next_iteration_ =
      first_iteration - place + (in_next_period ? plan_->period : 0) + plan_->ops[next_op_].launch.iteration;
}

void SyncScheduler::resume(const std::vector<OpRun>& in_flight) {
  for (const OpRun& run : in_flight) {
    const bool is_op = run.op < ops_.size();
    if (!is_op || rules_->ops[run.op].mode == OpMode::in_place || run.iteration < 0 ||
        run.iteration >= iteration_ || run.iteration % plan_->period != plan_->ops[run.op].launch.iteration ||
        run.sequence >= 0 || deadline_iteration(run) < iteration_)
      reject({"ops in flight",
              "op " + std::to_string(run.op) + " of iteration " + std::to_string(run.iteration),
              "held and carried ops that are in flight at iteration " + std::to_string(iteration_),
              "Resume from a state that was saved with this plan"});
    OpState& state = ops_[run.op];
    state.run = run;
    ++state.num_in_flight;
    if (rules_->ops[run.op].mode == OpMode::held) ++num_held_back_;
    in_flight_.push_back(run);
  }
}

std::int64_t SyncScheduler::deadline_iteration(const OpRun& run) const {
  return run.iteration + rules_->ops[run.op].deadline_delay;
}

bool SyncScheduler::next_is_ready() {
  if (ops_.empty() || next_iteration_ != iteration_) return false;
  const OpRules& op = rules_->ops[next_op_];
  if (op.launch.kind == EventKind::after_step) return false;
  if (backward_finished_) return true;
  const auto& launch_event = op.launch.kind == EventKind::after_forward ? forward_ended_ : backward_ended_;
  if (launch_event[op.launch.layer] != iteration_) return false;
  if (op.mode != OpMode::in_place) return true;
  const auto layers = rules_->layers[next_op_];
  if (op.precedes_reads) {
    next_passed_ = 0;  // a layer that was not being read may be by now
  }
  while (next_passed_ < layers.size()) {
    const std::uint32_t layer = layers[next_passed_];
    const bool is_read = read_ended_[layer] == iteration_;
    // The gradient of a tensor that is tied to another layer needs the backwards of both.
    const bool has_passed =
        op.is_gradient
            ? backward_ended_[layer] == iteration_ && (is_read || rules_->last_read_at_forward[layer])
            : is_read || (op.precedes_reads && read_begun_[layer] != iteration_);
    if (!has_passed) return false;
    ++next_passed_;
  }
  return true;
}

void SyncScheduler::launch_next() {
  due_.clear();
  for (const std::uint32_t op : rules_->predecessors[next_op_]) add_if_due(op);
  settle_due();

  OpState& state = ops_[next_op_];
  state.run = {num_launched_++, next_op_, iteration_};
  state.released = rules_->ops[next_op_].mode == OpMode::in_place;
  state.passed = 0;
  ++state.num_in_flight;
  in_flight_.push_back(state.run);
  actions_.push_back({ActionKind::launch, state.run});
  if (rules_->ops[next_op_].mode == OpMode::held) {
    ++num_held_back_;
    release_if_read(next_op_);
  }

  next_passed_ = 0;
  next_op_ = (next_op_ + 1) % ops_.size();
  const std::int64_t period_begin = iteration_ - plan_->ops[state.run.op].launch.iteration;
  next_iteration_ =
      period_begin + (next_op_ == 0 ? plan_->period : 0) + plan_->ops[next_op_].launch.iteration;
}

void SyncScheduler::launch_ready() {
  while (next_is_ready()) launch_next();
}

// A layer may be read again after its last read, by a forward that the profile does not know of (recomputing
// a checkpoint, a second forward): what waits for the end of its reads waits again.
void SyncScheduler::reopen_read(std::size_t layer) {
  read_ended_[layer] = never;
  next_passed_ = 0;
  for (const std::uint32_t op : rules_->writers[layer]) ops_[op].passed = 0;
}

void SyncScheduler::end_read(std::size_t layer) {
  read_ended_[layer] = iteration_;
  if (num_held_back_ == 0) return;
  for (const std::uint32_t op : rules_->writers[layer])
    if (ops_[op].num_in_flight > 0 && !ops_[op].released) release_if_read(op);
}

void SyncScheduler::release_if_read(std::size_t op) {
  OpState& state = ops_[op];
  if (deadline_iteration(state.run) != iteration_) return;
  const auto layers = rules_->layers[op];
  while (state.passed < layers.size() &&
         (backward_finished_ || read_ended_[layers[state.passed]] == iteration_))
    ++state.passed;
  if (state.passed < layers.size()) return;
  state.released = true;
  --num_held_back_;
  actions_.push_back({ActionKind::release, state.run});
}

void SyncScheduler::settle(const OpRun& run) {
  OpState& state = ops_[run.op];
  if (!state.released) {
    actions_.push_back({ActionKind::release, run});
    if (rules_->ops[run.op].mode == OpMode::held) --num_held_back_;
  }
  actions_.push_back({ActionKind::wait, run});
  --state.num_in_flight;
}

template <typename Predicate>
void SyncScheduler::settle_where(Predicate is_due) {
  auto kept = in_flight_.begin();
  for (const OpRun& run : in_flight_) {
    if (is_due(run))
      settle(run);
    else
      *kept++ = run;
  }
  in_flight_.erase(kept, in_flight_.end());
}

void SyncScheduler::settle_before_read(std::size_t layer, bool in_training) {
  if (in_flight_.empty()) return;
  due_.clear();
  for (const std::uint32_t op : rules_->writers[layer])
    if (ops_[op].num_in_flight > 0 && ops_[op].released) due_.push_back(ops_[op].run);
  if (in_training)
    for (const std::uint32_t op : rules_->due_at_forward[layer]) add_if_due(op);
  settle_due();
}

// A deadline is settled when it comes, so only the oldest run of an op can have reached its own. Every period
// launches each op once: that tells the oldest run from the last one.
void SyncScheduler::add_if_due(std::size_t op) {
  const OpState& state = ops_[op];
  if (state.num_in_flight == 0) return;
  const std::int64_t periods_ago = state.num_in_flight - 1;
  const OpRun oldest{state.run.sequence - periods_ago * static_cast<std::int64_t>(ops_.size()), op,
                     state.run.iteration - periods_ago * plan_->period};
  if (deadline_iteration(oldest) <= iteration_) due_.push_back(oldest);
}

/// Settles the runs in due_, in launch order.
void SyncScheduler::settle_due() {
  std::ranges::sort(due_, {}, &OpRun::sequence);
  due_.erase(std::unique(due_.begin(), due_.end()), due_.end());
  for (const OpRun& run : due_) {
    settle(run);
    in_flight_.erase(std::ranges::lower_bound(in_flight_, run.sequence, {}, &OpRun::sequence));
  }
}

void SyncScheduler::settle_at_step(bool ends_iteration) {
  // Where updates are fused, the step that ends an iteration changes nothing any more.
  const bool changes_weights = plan_->update == Update::step || !ends_iteration;
  settle_where([&](const OpRun& run) {
    return (changes_weights && rules_->ops[run.op].mode != OpMode::carried) ||
           (ends_iteration && deadline_iteration(run) <= iteration_);
  });
}

void SyncScheduler::end_iteration() {
  settle_at_step(true);
  while (!ops_.empty() && next_iteration_ == iteration_) launch_next();
  ++iteration_;
  backward_finished_ = false;
}

const SyncScheduler::Actions& SyncScheduler::iteration_begins() {
  actions_.clear();
  if (backward_finished_) end_iteration();
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::forward_begins(std::size_t layer) {
  actions_.clear();
  if (backward_finished_) end_iteration();
  if (read_ended_[layer] == iteration_) reopen_read(layer);
  read_begun_[layer] = iteration_;
  settle_before_read(layer, true);
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::forward_ends(std::size_t layer) {
  actions_.clear();
  if (accumulating_) return actions_;
  forward_ended_[layer] = iteration_;
  if (rules_->last_read_at_forward[layer]) end_read(layer);
  launch_ready();
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::backward_ends(std::size_t layer) {
  actions_.clear();
  if (accumulating_) return actions_;
  backward_ended_[layer] = iteration_;
  for (const std::uint32_t read : rules_->last_read_at_backward[layer]) end_read(read);
  launch_ready();
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::backward_finishes() {
  actions_.clear();
  if (accumulating_ || backward_finished_) return actions_;
  backward_finished_ = true;
  for (const OpRun& run : in_flight_)
    if (rules_->ops[run.op].mode == OpMode::held && !ops_[run.op].released) release_if_read(run.op);
  launch_ready();
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::step_begins() {
  actions_.clear();
  settle_at_step(backward_finished_ && !accumulating_);
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::step_ends() {
  actions_.clear();
  if (backward_finished_ && !accumulating_) end_iteration();
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::read_begins(std::size_t layer) {
  actions_.clear();
  settle_before_read(layer, false);
  return actions_;
}

const SyncScheduler::Actions& SyncScheduler::finish() {
  actions_.clear();
  settle_where([](const OpRun&) { return true; });
  return actions_;
}

}  // namespace dreamddp
