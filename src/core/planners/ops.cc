// What the algorithms share: the bare plan, the layers that need averaging, and gradient ops.
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

Op gradient_op(const std::vector<std::size_t>& layers) {
  Op op{.quantity = Quantity::gradients,
        .segments = {},
        .launch = {0, EventKind::after_backward, layers.back()},
        .deadline = {0, EventKind::before_step, 0}};
  for (const std::size_t layer : layers) op.segments.push_back({.layer = layer});
  return op;
}

}  // namespace dreamddp
