// The engine's part of policies: decisions at the begin of a backward, signals shared at its end.
//
// An iteration's ops are those of the layers that are due in it. Which ones is decided when its final
// backward begins, from signals that were averaged since the end of the backward before: they have a step and
// a forward's time on the link.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/engine.h"

namespace dreamddp {

void Engine::set_policy(Profile profile, const Link& link, PolicyRunOptions options,
                        const PolicyState* state) {
  const Lock lock(mutex_);
  options.first_iteration = scheduler_->iteration() + (backward_ended_ ? 1 : 0);
  auto policy = std::make_unique<PolicyRun>(layers_, std::move(profile), link, std::move(options));
  if (state != nullptr) policy->set_state(*state);
  auto signals = std::make_shared<RunningPlan>();
  signals->labels = {"signals of the policies"};
  signals->doing = {"sharing what the policies look at (one op an iteration"};
  signals->ops = {{.slices = whole_slices({policy->signals()}), .statistics = {}}};
  signals->op_bytes = {num_bytes(signals->ops[0].slices)};
  signals_ = std::move(signals);
  signals_under_way_.reset();
  all_are_averaged_ = false;
  transport().keep_first(0);
  transport().add_ops(signals_->ops);
  recorder_->set_ops(signals_->labels);
  policy_ = std::move(policy);
}

void Engine::decide(Lock& lock) {
  wait_for_signals(lock);
  // What the plans of many sets of layers take is bounded; nothing of them is under way now.
  carry_out(scheduler_->finish(), lock);
  wait_for_pending(lock);
  if (policy_->num_plans() >= PolicyRun::most_plans) {
    policy_->forget_plans();
    transport().keep_first(1);
    recorder_->set_ops(signals_->labels);
  }
  DueOps& due = policy_->begin_backward(std::exchange(all_are_averaged_, false));
  if (!due.is_in_lane) {
    due.is_in_lane = true;
    due.first_op = transport().add_ops(due.running->ops);
    recorder_->add_ops(due.running->labels);
  }
  scheduler_->replace_plan(due.scheduler);
  running_ = due.running;
  first_op_ = due.first_op;
}

void Engine::wait_for_signals(Lock& lock) {
  if (!signals_under_way_) return;
  pending_waits_.push_back(*std::exchange(signals_under_way_, std::nullopt));
  wait_for_pending(lock);
}

void Engine::share_signals() {
  policy_->backward_ends();
  signals_under_way_ = scheduler_->take_sequence();
  launch({*signals_under_way_, 0, scheduler_->iteration()}, signals_, 0);
}

PolicyState Engine::policy_state() {
  Lock lock(mutex_);
  wait_for_signals(lock);
  return policy_->state();
}

void Engine::all_are_averaged() {
  const Lock lock(mutex_);
  all_are_averaged_ = true;
}

std::vector<std::int64_t> Engine::staleness() const {
  const Lock lock(mutex_);
  if (!policy_ || !scheduler_ || policy_->iteration() != scheduler_->iteration()) return {};
  return policy_->staleness();
}

std::vector<IterationDecisions> Engine::decisions(std::int64_t first_iteration) const {
  const Lock lock(mutex_);
  if (!policy_) return {};
  const auto& recent = policy_->recent();
  const auto begin = std::ranges::lower_bound(recent, first_iteration, {}, &IterationDecisions::iteration);
  return {begin, recent.end()};
}

}  // namespace dreamddp
