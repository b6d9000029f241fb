#include "dreamddp/bubbles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/expect_rejected.h"
#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

/// Last reads at 12, 10, 8 and 6 s, the step at 12 s; 3, 2, 3 and 3 s on the link.
Profile four_layers() {
  Profile profile = testing::uniform_profile(4);
  for (Layer& layer : profile.layers) layer.transfer_seconds = 3;
  profile.layers[1].transfer_seconds = 2;
  profile.step_seconds = 0;
  return profile;
}

Op in_backward(std::size_t layer, std::int64_t iteration) {
  return testing::parameters({{.layer = layer}}, testing::after_backward(iteration, layer),
                             testing::before_step(iteration));
}

/// The ops of Local SGD with period 2, with these layers averaged in the backwards of both iterations.
std::vector<Op> local_sgd_and(const std::vector<std::size_t>& layers) {
  std::vector<Op> ops;
  for (const std::int64_t iteration : {0, 1})
    for (const std::size_t layer : layers) ops.push_back(in_backward(layer, iteration));
  ops.push_back(
      testing::parameters({{0}, {1}, {2}, {3}}, testing::after_step(1), testing::before_forward(2, 0)));
  return ops;
}

TEST(FillBubbles, TakesTheOutputSideFirst) {
  // 3: 6..9 and 2: 9..12. Then 1 and 0 would end after the step.
  const Profile profile = four_layers();
  const Plan plan = make_plan("local-sgd", profile, {}, {.period = 2});
  EXPECT_EQ(fill_bubbles(plan, profile, {}).ops, local_sgd_and({3, 2}));
}

TEST(FillBubbles, TakesWhatDriftsMostFirst) {
  // 1: 10..12. Before it there is time for 3, not for 3 and 2.
  const Profile profile = four_layers();
  const Plan plan = make_plan("local-sgd", profile, {}, {.period = 2});
  EXPECT_EQ(fill_bubbles(plan, profile, {}, {0, 1, 0, 0}).ops, local_sgd_and({3, 1}));
  // 0 never fits. 2: 8..11, so 1 would end at 13; 3 before it leaves 2 to end at 12.
  EXPECT_EQ(fill_bubbles(plan, profile, {}, {9, 1, 2, 0}).ops, local_sgd_and({3, 2}));
}

TEST(FillBubbles, IsAnOptionOfEveryPlanner) {
  const Profile profile = four_layers();
  const Plan plan =
      make_plan("local-sgd", profile, {}, {.period = 2, .fill_bubbles = true, .drift = {0, 1, 0, 0}});
  EXPECT_EQ(plan.ops, local_sgd_and({3, 1}));
  EXPECT_EQ(plan.planner, "local-sgd");
}

TEST(FillBubbles, LeavesGradientsAlone) {
  const Profile profile = four_layers();
  const Plan plan = make_plan("wfbp", profile, {}, {});
  EXPECT_EQ(fill_bubbles(plan, profile, {}), plan);
}

TEST(FillBubbles, RejectsABadDrift) {
  const Profile profile = four_layers();
  const Plan plan = make_plan("local-sgd", profile, {}, {});
  expect_rejected([&] { fill_bubbles(plan, profile, {}, {1, 2}); }, {"drift", "2 entries", "4"});
  expect_rejected([&] { fill_bubbles(plan, profile, {}, {1, -1, 2, 3}); }, {"'1'", "drift", "-1"});
  expect_rejected(
      [&] {
        fill_bubbles(plan, profile, {}, {1, 1, 2, std::numeric_limits<double>::quiet_NaN()});
      },
      {"'3'", "drift"});
  expect_rejected([&] { make_plan("balanced", profile, {}, {.fill_bubbles = true, .drift = {1}}); },
                  {"drift", "1 entries"});
}

TEST(FillBubbles, AddsToAnyPlanWhatTakesNoTime) {
  testing::Random random(41);
  std::size_t num_added = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = testing::random_profile(random);
    const Plan plan = testing::RandomPlanMaker(random, profile, {}).make();
    const Link link = testing::measured_link(static_cast<double>(testing::random_integer(random, 0, 3)) / 8,
                                             static_cast<int>(testing::random_integer(random, 1, 3)));
    const Plan filled = fill_bubbles(plan, profile, link);
    EXPECT_LE(simulate(filled, profile, link).iteration_seconds,
              simulate(plan, profile, link).iteration_seconds * (1 + 1e-8));
    // Leaving out what was added, in any order of equal launches, the plan is the one given.
    for (const Op& op : plan.ops) EXPECT_NE(std::ranges::find(filled.ops, op), filled.ops.end());
    num_added += filled.ops.size() - plan.ops.size();
  }
  EXPECT_GT(num_added, 200);
}

TEST(FillBubbles, LeavesNoWholeLayerOutThatFits) {
  testing::Random random(42);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = testing::random_profile(random);
    const Plan plan = make_plan("local-sgd", profile, {}, {.period = 3});
    const Plan filled = fill_bubbles(plan, profile, {});
    EXPECT_EQ(fill_bubbles(filled, profile, {}), filled);
  }
}

}  // namespace
}  // namespace dreamddp
