// What the algorithms share: the bare plan, the layers that need averaging, and gradient ops.
#include <algorithm>

#include "core/planners/algorithms.h"

namespace dreamddp {

Plan plan_without_ops(std::string_view planner, const Profile& profile, std::int64_t period) {
  Plan plan;
  plan.planner = planner;
  plan.period = period;
  plan.layers.reserve(profile.layers.size());
  for (const Layer& layer : profile.layers) plan.layers.push_back(layer.name);
  return plan;
}

std::vector<std::size_t> layers_with_parameters(const Profile& profile) {
  std::vector<std::size_t> layers;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    if (profile.layers[l].num_bytes != 0) layers.push_back(l);
  }
  return layers;
}

std::vector<ReadyGradient> ready_gradients(const Profile& profile) {
  const EventOrder order(profile);
  std::vector<ReadyGradient> gradients;
  for (const std::size_t layer : backward_sequence(profile)) {
    if (profile.layers[layer].num_bytes == 0) continue;
    const Event backward{0, EventKind::after_backward, layer};
    const Event last_read = order.last_read(layer, 0);
    const bool is_read_later = order.position(last_read) > order.position(backward);
    gradients.push_back({layer, is_read_later ? last_read : backward});
  }
  std::stable_sort(gradients.begin(), gradients.end(), [&](const ReadyGradient& a, const ReadyGradient& b) {
    return order.position(a.ready) < order.position(b.ready);
  });
  return gradients;
}

Op gradient_op(const std::vector<ReadyGradient>& gradients) {
  Op op{.quantity = Quantity::gradients,
        .segments = {},
        .launch = gradients.back().ready,
        .deadline = {0, EventKind::before_step, 0}};
  for (const ReadyGradient& gradient : gradients) op.segments.push_back({.layer = gradient.layer});
  return op;
}

}  // namespace dreamddp
