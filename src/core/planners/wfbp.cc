// Wait-free backpropagation: each layer's gradient as soon as its backward has made it.
#include "core/planners/algorithms.h"

namespace dreamddp {

Plan plan_wfbp(const Profile& profile, const Link&, const PlanOptions&) {
  Plan plan = plan_without_ops("wfbp", profile, 1);
  for (const ReadyGradient& gradient : ready_gradients(profile)) plan.ops.push_back(gradient_op({gradient}));
  return plan;
}

}  // namespace dreamddp
