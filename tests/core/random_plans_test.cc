#include "core/random_plans.h"

#include <gtest/gtest.h>

#include <map>

namespace dreamddp::testing {
namespace {

TEST(RandomPlans, AreValidAndOfEveryKind) {
  Random random(1);
  std::map<OpMode, int> modes;
  std::map<EventKind, int> launches, deadlines;
  int merged = 0, early = 0, ahead_of_reads = 0, longer_than_a_period = 0;
  for (int i = 0; i < 3000; ++i) {
    const Profile profile = random_profile(random);
    const Plan plan = random_plan(random, profile, {.gradients = 0.2});
    ASSERT_NO_THROW(validate(plan, profile)) << to_json(profile) << to_json(plan);
    const EventOrder order(profile);
    for (const Op& op : plan.ops) {
      ++launches[op.launch.kind];
      ++deadlines[op.deadline.kind];
      merged += op.segments.size() > 1;
      if (op.quantity == Quantity::gradients) continue;
      const OpMode mode = op_mode(op, order);
      ++modes[mode];
      early += mode == OpMode::in_place && op.launch.kind == EventKind::after_forward;
      ahead_of_reads += mode == OpMode::in_place && op.launch.kind == EventKind::after_forward &&
                        op.deadline.kind == EventKind::before_forward;
      longer_than_a_period += op.deadline.iteration - op.launch.iteration > plan.period;
    }
  }
  for (const OpMode mode : {OpMode::in_place, OpMode::held, OpMode::carried}) EXPECT_GT(modes[mode], 500);
  for (const EventKind kind : {EventKind::after_forward, EventKind::after_backward, EventKind::after_step})
    EXPECT_GT(launches[kind], 500);
  for (const EventKind kind : {EventKind::before_forward, EventKind::before_step})
    EXPECT_GT(deadlines[kind], 500);
  EXPECT_GT(merged, 500);
  EXPECT_GT(early, 100);
  EXPECT_GT(ahead_of_reads, 20);
  EXPECT_GT(longer_than_a_period, 10);
}

TEST(RandomPlans, FusedOnesAreValidAndOfEveryKind) {
  Random random(3);
  std::map<EventKind, int> launches, deadlines;
  for (int i = 0; i < 2000; ++i) {
    const Profile profile = random_profile(random);
    const Plan plan = random_plan(random, profile, {.update = Update::fused});
    ASSERT_NO_THROW(validate(plan, profile)) << to_json(profile) << to_json(plan);
    for (const Op& op : plan.ops) {
      ++launches[op.launch.kind];
      ++deadlines[op.deadline.kind];
    }
  }
  EXPECT_GT(launches[EventKind::after_forward], 100);
  EXPECT_GT(launches[EventKind::after_backward], 500);
  EXPECT_GT(launches[EventKind::after_step], 500);
  EXPECT_GT(deadlines[EventKind::before_forward], 500);
  EXPECT_GT(deadlines[EventKind::before_step], 500);
}

TEST(RandomPlans, AreOfTheModesAskedFor) {
  Random random(2);
  for (int i = 0; i < 500; ++i) {
    const Profile profile = random_profile(random);
    const EventOrder order(profile);
    const Plan in_place = random_plan(random, profile, {.most_permissive = OpMode::in_place});
    for (const Op& op : in_place.ops) EXPECT_EQ(op_mode(op, order), OpMode::in_place);
    const Plan held = random_plan(random, profile, {.most_permissive = OpMode::held});
    for (const Op& op : held.ops) EXPECT_NE(op_mode(op, order), OpMode::carried);
  }
}

}  // namespace
}  // namespace dreamddp::testing
