#include "dreamddp/bubbles.h"

#include <gtest/gtest.h>

#include "core/expect_rejected.h"
#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp::testing {
namespace {

/// Layers of 3 s on the link, 6, 4, 2 and 0 s before the step; iteration 0 averages 3 and 2, which end with
/// the step, iteration 1 averages 1 and 0 in 4 exposed seconds.
struct FourLayers {
  Profile profile = uniform_profile(4);
  Plan plan;

  FourLayers() {
    for (Layer& layer : profile.layers) layer.transfer_seconds = 3;
    plan = make_plan("equal-count", profile, {}, {.period = 2});
  }
};

bool has(const Plan& plan, const Op& op) { return std::ranges::find(plan.ops, op) != plan.ops.end(); }

TEST(FillBubbles, AddsWholeLayersAndPartsInBothWindows) {
  const FourLayers given;
  const Plan filled = fill_bubbles(given.plan, given.profile, {});
  validate(filled, given.profile);
  EXPECT_EQ(simulate(filled, given.profile, {}).iteration_seconds, 15);
  // Layer 3 ends with the forward in front of it; half of 2 ends before 1 begins; a second of forward in
  // front of layer 1 hides a quarter of it.
  EXPECT_TRUE(has(filled, parameters({{3}}, after_step(0), before_forward(1, 3))));
  EXPECT_TRUE(has(filled, parameters({{2, 0, 0.5}}, after_backward(1, 2), before_step(1))));
  EXPECT_TRUE(has(filled, parameters({{1, 0, 0.25}}, after_step(1), before_forward(2, 1))));
  EXPECT_EQ(filled.ops.size(), 7);
}

TEST(FillBubbles, FollowsTheDriftOrder) {
  const FourLayers given;
  const Plan filled = fill_bubbles(given.plan, given.profile, {}, {2});
  // D_2 = 2 s: two thirds would fit, so half of it does.
  EXPECT_TRUE(has(filled, parameters({{2, 0, 0.5}}, after_step(0), before_forward(1, 2))));
  EXPECT_EQ(filled.ops.size(), 5);
}

TEST(FillBubbles, LeavesAPlanWithoutBubblesAsItIs) {
  Profile profile = uniform_profile(3);
  for (Layer& layer : profile.layers) layer.transfer_seconds = 100;
  const Plan plan = make_plan("equal-count", profile, {}, {.period = 1});
  EXPECT_EQ(fill_bubbles(plan, profile, {}), plan);
}

TEST(FillBubbles, RejectsWhatItCannotFill) {
  const FourLayers given;
  expect_rejected([&] { fill_bubbles(make_plan("wfbp", given.profile, {}, {}), given.profile, {}); },
                  {"fill_bubbles", "gradients", "wfbp"});
  expect_rejected([&] { fill_bubbles(given.plan, given.profile, {}, {4}); }, {"drift_order", "4", "0 to 3"});
  expect_rejected([&] { fill_bubbles(given.plan, given.profile, {}, {1, 1}); }, {"drift_order", "1"});
}

TEST(FillBubbles, NeverTakesTimeAndNeverBreaksAPlan) {
  Random random(12);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = random_profile(random);
    const Link link = measured_link(static_cast<double>(random_integer(random, 0, 4)) / 8);
    for (const char* planner : {"local-sgd", "equal-count", "balanced"}) {
      const Plan plan = make_plan(planner, profile, link, {.period = random_integer(random, 1, 4)});
      const Plan filled = fill_bubbles(plan, profile, link);
      validate(filled, profile);
      EXPECT_GE(filled.ops.size(), plan.ops.size());
      EXPECT_LE(simulate(filled, profile, link).iteration_seconds,
                simulate(plan, profile, link).iteration_seconds * (1 + 1e-8));
    }
  }
}

}  // namespace
}  // namespace dreamddp::testing
