// A sequential partition with the same number of layers in every iteration, averaged in the backward window.
#include <algorithm>

#include "core/planners/algorithms.h"

namespace dreamddp {

Plan plan_equal_count(const Profile& profile, const Link&, const PlanOptions& options) {
  const std::int64_t period = options.period;
  Plan plan = plan_without_ops("equal-count", profile, period);
  std::vector<std::size_t> layers = layers_with_parameters(profile);
  std::reverse(layers.begin(), layers.end());  // iteration 0 takes the output side
  const EventOrder order(profile);
  const auto num_layers = static_cast<std::int64_t>(layers.size());
  for (std::int64_t i = 0; i < num_layers; ++i) {
    // Floor of i * H / L: sets differ by at most one layer; with H > L some are empty.
    const std::int64_t iteration = i * period / num_layers;
    const std::size_t layer = layers[static_cast<std::size_t>(i)];
    plan.ops.push_back({.quantity = Quantity::parameters,
                        .segments = {{.layer = layer}},
                        .launch = order.last_read(layer, iteration),
                        .deadline = {iteration, EventKind::before_step, 0}});
  }
  // Early and tied layers are read for the last time out of turn.
  std::stable_sort(plan.ops.begin(), plan.ops.end(), [&](const Op& a, const Op& b) {
    return order.position(a.launch) < order.position(b.launch);
  });
  return plan;
}

}  // namespace dreamddp
