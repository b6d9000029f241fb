// Random profiles and plans for property tests.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "dreamddp/plan.h"

namespace dreamddp::testing {

using Random = std::mt19937_64;

inline std::int64_t uniform(Random& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

/// Any order of backwards, any last reads, some layers without parameters or of unknown size.
inline Profile random_profile(Random& random, std::int64_t num_layers) {
  Profile profile;
  for (std::int64_t l = 0; l < num_layers; ++l) {
    Layer layer{"h." + std::to_string(l), 1, 2, uniform(random, 1, 1000), 3.0, {}};
    const std::int64_t size_kind = uniform(random, 0, 5);
    if (size_kind == 0) {
      layer.num_bytes = 0;
    } else if (size_kind == 1) {
      layer.num_bytes = std::nullopt;
    }
    const std::int64_t other = uniform(random, 0, num_layers - 1);
    const std::int64_t read_kind = uniform(random, 0, 5);
    if (read_kind == 0) {
      layer.last_read = {LastReadKind::forward, 0};
    } else if (read_kind == 1 && other != l) {
      layer.last_read = {LastReadKind::other_backward, static_cast<std::size_t>(other)};
    }
    profile.layers.push_back(layer);
  }
  if (uniform(random, 0, 1) == 1) {
    profile.backward_order = backward_sequence(profile);
    std::shuffle(profile.backward_order.begin(), profile.backward_order.end(), random);
  }
  return profile;
}

inline Plan empty_plan(const Profile& profile, std::int64_t period) {
  Plan plan{"random", period, {}, {}};
  for (const Layer& layer : profile.layers) {
    plan.layers.push_back(layer.name);
  }
  return plan;
}

/// An op of parameters, valid for itself: in place, held or carried over at most a period of steps.
inline Op random_op(Random& random, const EventOrder& order, std::int64_t period, const Segment& segment) {
  const std::int64_t i = uniform(random, 0, period - 1);
  const std::size_t l = segment.layer;
  Op op{Quantity::parameters, {segment}, {}, {}};
  switch (uniform(random, 0, 3)) {
    case 0:  // backward window
      op.launch = order.last_read(l, i);
      op.deadline = {i, EventKind::before_step, 0};
      break;
    case 1:  // forward window
      op.launch = {i, EventKind::after_step, 0};
      op.deadline = {i + 1, EventKind::before_forward, l};
      break;
    case 2:  // held
      op.launch = {i, EventKind::after_step, 0};
      op.deadline = {i + 1, EventKind::before_step, 0};
      break;
    default: {  // carried
      const std::int64_t delay = uniform(random, 1, period);
      op.launch = {i, EventKind::after_backward, l};
      op.deadline = {i + delay, EventKind::before_step, 0};
      if (uniform(random, 0, 1) == 1) {
        op.launch = {i, EventKind::after_step, 0};
        op.deadline = {i + 1 + delay, EventKind::before_forward, l};
      }
    }
  }
  return op;
}

inline void sort_by_launch(Plan& plan, const EventOrder& order) {
  std::stable_sort(plan.ops.begin(), plan.ops.end(), [&](const Op& a, const Op& b) {
    return order.position(a.launch) < order.position(b.launch);
  });
}

/// A valid plan: every layer cut at random places, every piece in a random window.
inline Plan random_valid_plan(Random& random, const Profile& profile, std::int64_t period) {
  const EventOrder order(profile);
  Plan plan = empty_plan(profile, period);
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    std::vector<double> cuts = {0, 1};
    for (std::int64_t i = uniform(random, 0, 3); i > 0; --i) {
      cuts.push_back(std::uniform_real_distribution<double>(0.01, 0.99)(random));
    }
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Op op = random_op(random, order, period, {l, cuts[i], cuts[i + 1]});
      const auto same = std::find_if(plan.ops.begin(), plan.ops.end(), [&](const Op& other) {
        return other.launch == op.launch && other.deadline == op.deadline;
      });
      if (same != plan.ops.end() && op.deadline.kind == EventKind::before_step) {
        same->segments.push_back(op.segments[0]);
      } else {
        plan.ops.push_back(op);
      }
    }
  }
  sort_by_launch(plan, order);
  return plan;
}

}  // namespace dreamddp::testing
