#include "core/planners/fused.h"

#include <algorithm>
#include <utility>

namespace dreamddp {

Profile before_fusing(const Profile& profile) {
  const EventOrder order(profile, Update::fused);
  Profile result;
  result.layers.push_back({.name = "(step)",
                           .forward_seconds = profile.step_seconds,
                           .backward_seconds = 0,
                           .num_bytes = 0,
                           .transfer_seconds = 0,
                           .last_read = {}});
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    Layer layer = profile.layers[l];
    const std::size_t update = order.last_read(l, 0).layer;
    layer.last_read = update == l ? LastRead{} : LastRead{LastReadKind::other_backward, update + 1};
    result.layers.push_back(std::move(layer));
  }
  if (!profile.backward_order.empty()) {
    for (const std::size_t layer : profile.backward_order) result.backward_order.push_back(layer + 1);
    result.backward_order.push_back(0);
  }
  result.sizes_are_estimated = profile.sizes_are_estimated;
  return result;
}

Plan fuse(Plan plan, const Profile& profile) {
  plan.update = Update::fused;
  plan.layers.erase(plan.layers.begin());
  const std::size_t last_backward = backward_sequence(profile).back();
  for (Op& op : plan.ops) {
    std::size_t first = profile.layers.size();
    for (Segment& segment : op.segments) {
      --segment.layer;
      first = std::min(first, segment.layer);
    }
    if (op.launch.kind == EventKind::after_step) {
      op.launch = {op.launch.iteration, EventKind::after_backward, last_backward};
    } else {
      --op.launch.layer;
    }
    if (op.deadline.kind == EventKind::before_step) {
      op.deadline = end_of_window(first, op.deadline.iteration, Update::fused);
    } else {
      --op.deadline.layer;
    }
  }
  return plan;
}

Event end_of_window(std::size_t layer, std::int64_t iteration, Update update) {
  if (update == Update::step) return {iteration, EventKind::before_step, 0};
  return {iteration + 1, EventKind::before_forward, layer};
}

}  // namespace dreamddp
