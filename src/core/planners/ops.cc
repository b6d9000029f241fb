// What the algorithms share: rounded times, the bare plan, the layers that need averaging, and gradient ops.
#include <algorithm>
#include <cmath>

#include "core/planners/algorithms.h"

namespace dreamddp {
namespace {

// 0.1 ms and 0.0001 s differ in the last bits when they have been read; in 30 bits they are equal.
double round_to_30_bits(double seconds) {
  int exponent = 0;
  const double fraction = std::frexp(seconds, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 30)), exponent - 30);
}

}  // namespace

Profile with_rounded_times(Profile profile) {
  profile.step_seconds = round_to_30_bits(profile.step_seconds);
  for (Layer& layer : profile.layers) {
    layer.forward_seconds = round_to_30_bits(layer.forward_seconds);
    layer.backward_seconds = round_to_30_bits(layer.backward_seconds);
    if (layer.transfer_seconds) layer.transfer_seconds = round_to_30_bits(*layer.transfer_seconds);
  }
  return profile;
}

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
