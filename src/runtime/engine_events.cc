// Events of a training: forwards, backwards and steps.
#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <utility>

#include "runtime/engine.h"

namespace dreamddp {
namespace {

std::vector<at::Tensor> all_parameters(const std::vector<LayerParameters>& layers) {
  std::vector<at::Tensor> parameters;
  for (const LayerParameters& layer : layers) {
    parameters.insert(parameters.end(), layer.parameters.begin(), layer.parameters.end());
  }
  return parameters;
}

}  // namespace

void Engine::attach() {
  const std::weak_ptr<Engine> weak = weak_from_this();
  auto hooks = std::make_unique<GradientHooks>(all_parameters(layers_), [weak](std::size_t parameter) {
    if (const std::shared_ptr<Engine> engine = weak.lock()) {
      engine->in_backward([&] { engine->on_gradient(parameter); });
    }
  });
  const Lock lock(mutex_);
  hooks_.swap(hooks);
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

}  // namespace dreamddp
