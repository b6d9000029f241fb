// Wait-free backpropagation: each layer's gradient as soon as its backward has made it.
#include "core/planners/algorithms.h"

namespace dreamddp {

Plan plan_wfbp(const Profile& profile, const Link&, const PlanOptions&) {
  Plan plan = plan_without_ops("wfbp", profile, 1);
  for (const std::size_t layer : backward_sequence(profile)) {
    if (profile.layers[layer].num_bytes != 0) plan.ops.push_back(gradient_op({layer}));
  }
  return plan;
}

}  // namespace dreamddp
