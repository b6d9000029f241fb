// The engine's part of a checkpoint: averages that are under way between two iterations.
#include <memory>
#include <vector>

#include "runtime/engine.h"

namespace dreamddp {

/// The lane's, which make_lane() made.
TorchTransport& Engine::transport() const { return static_cast<TorchTransport&>(lane_->transport()); }

std::vector<PendingOp> Engine::pending() {
  std::vector<OpRun> kept_back;
  std::shared_ptr<Lane> lane;
  {
    Lock lock(mutex_);
    if (!scheduler_) return {};
    for (std::size_t layer = 0; layer < scheduler_->plan().layers.size(); ++layer) {
      carry_out(scheduler_->read_begins(layer), lock);
    }
    if (signals_under_way_) pending_waits_.push_back(*signals_under_way_);
    wait_for_pending(lock);
    kept_back = scheduler_->in_flight();
    lane = lane_;
  }
  for (const OpRun& run : kept_back) lane->wait_until_reduced(run.sequence);
  const Lock lock(mutex_);
  std::vector<PendingOp> pending;
  if (!lane_) return pending;  // closed meanwhile
  for (const OpRun& run : kept_back) {
    pending.push_back({run.iteration, transport().copy_of_kept(run.sequence)});
  }
  return pending;
}

}  // namespace dreamddp
