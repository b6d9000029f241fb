// Synchronous SGD: the gradients of all layers in one op after the backward.
#include "core/planners/algorithms.h"

namespace dreamddp {

Plan plan_ssgd(const Profile& profile, const Link&, const PlanOptions&) {
  Plan plan = plan_without_ops("ssgd", profile, 1);
  const std::vector<ReadyGradient> gradients = ready_gradients(profile);
  if (gradients.empty()) return plan;
  plan.ops.push_back(gradient_op(gradients));
  // Not before the whole backward has ended, also where its last layers have no parameters.
  plan.ops.back().launch = {0, EventKind::after_backward, backward_sequence(profile).back()};
  return plan;
}

}  // namespace dreamddp
