// Short ways to write down profiles, plans and events in tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp::testing {

inline Event after_forward(std::int64_t iteration, std::size_t layer) {
  return {iteration, EventKind::after_forward, layer};
}
inline Event after_backward(std::int64_t iteration, std::size_t layer) {
  return {iteration, EventKind::after_backward, layer};
}
inline Event after_step(std::int64_t iteration) { return {iteration, EventKind::after_step, 0}; }
inline Event before_forward(std::int64_t iteration, std::size_t layer) {
  return {iteration, EventKind::before_forward, layer};
}
inline Event before_step(std::int64_t iteration) { return {iteration, EventKind::before_step, 0}; }

inline Op parameters(std::vector<Segment> segments, const Event& launch, const Event& deadline) {
  return {Quantity::parameters, std::move(segments), launch, deadline};
}
inline Op gradients(std::vector<Segment> segments, const Event& launch, const Event& deadline) {
  return {Quantity::gradients, std::move(segments), launch, deadline};
}

/// Layers "0", "1", .. with forward 1 s, backward 2 s, transfer 1 s and 1000 bytes each; step 1 s.
inline Profile uniform_profile(std::size_t num_layers) {
  Profile profile;
  for (std::size_t l = 0; l < num_layers; ++l) {
    profile.layers.push_back({.name = std::to_string(l),
                              .forward_seconds = 1,
                              .backward_seconds = 2,
                              .num_bytes = 1000,
                              .transfer_seconds = 1,
                              .last_read = {}});
  }
  profile.step_seconds = 1;
  return profile;
}

/// A link that takes the profile's transfer times.
inline Link measured_link(double latency_seconds, int in_flight = 1) {
  Link link;
  link.latency_seconds = latency_seconds;
  link.in_flight = in_flight;
  return link;
}

/// @throws std::invalid_argument where the plan is not valid
inline Plan valid_plan(const Profile& profile, std::int64_t period, std::vector<Op> ops) {
  Plan plan{"test", period, {}, std::move(ops)};
  for (const Layer& layer : profile.layers) plan.layers.push_back(layer.name);
  validate(plan, profile);
  return plan;
}

}  // namespace dreamddp::testing
