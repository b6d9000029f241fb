// Synchronous SGD: the gradients of all layers in one op after the backward.
#include "core/planners/algorithms.h"

namespace dreamddp {

Plan plan_ssgd(const Profile& profile, const Link&, const PlanOptions&) {
  Plan plan = plan_without_ops("ssgd", profile, 1);
  std::vector<std::size_t> layers;
  for (const std::size_t layer : backward_sequence(profile)) {
    if (profile.layers[layer].num_bytes != 0) layers.push_back(layer);
  }
  if (layers.empty()) return plan;
  plan.ops.push_back(gradient_op(layers));
  // Not before the whole backward has ended, also where its last layers have no parameters.
  plan.ops.back().launch.layer = backward_sequence(profile).back();
  return plan;
}

}  // namespace dreamddp
