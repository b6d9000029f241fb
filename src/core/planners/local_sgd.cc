// Local SGD: all parameters in one op after every H-th step.
#include "core/planners/algorithms.h"

namespace dreamddp {

Plan plan_local_sgd(const Profile& profile, const Link&, const PlanOptions& options) {
  const std::int64_t period = options.period;
  Plan plan = plan_without_ops("local-sgd", profile, period);
  const std::vector<std::size_t> layers = layers_with_parameters(profile);
  if (layers.empty()) return plan;
  Op op{.quantity = Quantity::parameters,
        .segments = {},
        .launch = {period - 1, EventKind::after_step, 0},
        .deadline = {period, EventKind::before_forward, layers.front()}};
  for (const std::size_t layer : layers) op.segments.push_back({.layer = layer});
  plan.ops.push_back(std::move(op));
  return plan;
}

}  // namespace dreamddp
