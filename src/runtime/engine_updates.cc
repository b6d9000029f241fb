// The engine's part of fused updates: layers that are stepped inside the backward.
#include <functional>
#include <mutex>

#include "runtime/engine.h"

namespace dreamddp {

void Engine::on_layer_update(std::function<void(std::size_t layer)> update) {
  const Lock lock(mutex_);
  on_layer_update_.swap(update);  // the one before is destroyed without the mutex
}

/// Steps the layer where updates are fused, once in a backward. The optimizer may take long and takes the
/// GIL, so it runs without the mutex.
void Engine::update_layer(std::size_t layer, Lock& lock) {
  if (!on_layer_update_ || is_updated_[layer]) return;
  is_updated_[layer] = true;
  // Its forward has waited for what carries the layer; not if it never came.
  carry_out(scheduler_->read_begins(running_->plan_layer[layer]), lock);
  wait_for_pending(lock);
  {
    const auto update = on_layer_update_;  // destroyed without the mutex, too
    lock.unlock();
    const std::lock_guard updating(update_mutex_);
    update(layer);
  }
  lock.lock();
}

}  // namespace dreamddp
