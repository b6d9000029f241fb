// The balanced planner with memory for held averages and steps for carried ones.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp::testing {
namespace {

constexpr std::int64_t ring = default_staging_bytes;

/// f = 1, b = 2, s = 1: C = 10. The first layer has no cover at all: its 12 s are exposed once in a period.
Profile tight_first_layer() {
  Profile profile = uniform_profile(3);
  profile.layers[0].transfer_seconds = 12;
  profile.layers[1].num_bytes = 0;
  profile.layers[2].num_bytes = 0;
  return profile;
}

TEST(BalancedWithMemory, HoldsTheTightestLayerInEqualShares) {
  const Profile profile = tight_first_layer();
  EXPECT_EQ(simulate(make_plan("balanced", profile, {}, {.period = 2}), profile, {}).iteration_seconds, 16);
  const Plan plan = make_plan("balanced", profile, {}, {.period = 2, .staging_bytes = ring + 500});
  EXPECT_EQ(plan.ops, (std::vector{parameters({{0, 0, 0.5}}, after_step(0), before_step(1)),
                                   parameters({{0, 0.5, 1}}, after_step(1), before_step(2))}));
  const Simulation simulation = simulate(plan, profile, {}, {.staging_bytes = ring});
  EXPECT_EQ(simulation.iteration_seconds, 10);
  EXPECT_EQ(simulation.staging_bytes, ring + 500);
}

TEST(BalancedWithMemory, HoldsNothingThatDoesNotFit) {
  const Profile profile = tight_first_layer();
  const Plan plan = make_plan("balanced", profile, {}, {.period = 2, .staging_bytes = ring + 499});
  EXPECT_EQ(booked_bytes(plan, profile), 0);
}

TEST(BalancedWithMemory, HoldsNothingOfUnknownSize) {
  Profile profile = tight_first_layer();
  profile.layers[0].num_bytes.reset();
  const EventOrder order(profile);
  for (const Op& op :
       make_plan("balanced", profile, {}, {.period = 2, .staging_bytes = ring << 10, .max_delay = 1}).ops)
    EXPECT_EQ(op_mode(op, order), OpMode::in_place);
}

TEST(BalancedWithMemory, CarriesWhereALatencyIsLongerThanAnIteration) {
  // 14 s of latency and 3 s of transfers, in 9 s between two steps: held averages are late by 8 s, once in
  // three iterations. Carried ones, a second in every iteration, have 19 s.
  Profile profile = uniform_profile(3);
  const Link link = measured_link(14, 2);
  const PlanOptions held{.period = 3, .staging_bytes = ring << 4};
  const Plan plan_of_held = make_plan("balanced", profile, link, held);
  EXPECT_EQ(simulate(plan_of_held, profile, link).iteration_seconds, 10 + 8 / 3.0);
  PlanOptions carried = held;
  carried.max_delay = 1;
  const Plan plan = make_plan("balanced", profile, link, carried);
  EXPECT_EQ(simulate(plan, profile, link).iteration_seconds, 10);
  for (const Op& op : plan.ops) EXPECT_EQ(num_steps_crossed(op), 1);
}

TEST(BalancedWithMemory, NeedsNoneWhereAveragesInPlaceHide) {
  Profile profile = uniform_profile(6);
  for (Layer& layer : profile.layers) layer.transfer_seconds = 0.25;
  profile.layers[0].last_read.kind = LastReadKind::forward;
  const Plan plan =
      make_plan("balanced", profile, {}, {.period = 2, .staging_bytes = ring << 4, .max_delay = 3});
  EXPECT_EQ(booked_bytes(plan, profile), 0);
}

TEST(BalancedWithMemory, StaysWithinMemoryAndDelayAndIsNeverSlowerThanAnyOther) {
  Random random(21);
  for (int i = 0; i < 600; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = random_profile(random, {.max_layers = 9});
    const Link link = measured_link(static_cast<double>(random_integer(random, 0, 40)) / 8,
                                    static_cast<int>(random_integer(random, 1, 3)));
    PlanOptions options{.period = random_integer(random, 1, 5)};
    options.staging_bytes = ring + random_integer(random, 0, 120);
    options.max_delay = random_integer(random, 0, 2);
    const Plan plan = make_plan("balanced", profile, link, options);
    validate(plan, profile);
    const Simulation simulation = simulate(plan, profile, link, {.staging_bytes = ring});
    EXPECT_LE(simulation.staging_bytes, options.staging_bytes);
    EXPECT_GE(simulation.gap, -1e-9);
    for (const Op& op : plan.ops) EXPECT_LE(num_steps_crossed(op), options.max_delay);
    for (const char* other : {"local-sgd", "equal-count", "dreamddp", "sequential"}) {
      const Plan rival = make_plan(other, profile, link, options);
      EXPECT_LE(simulation.iteration_seconds, simulate(rival, profile, link).iteration_seconds * (1 + 1e-6))
          << other;
    }
  }
}

TEST(BalancedWithMemory, DelaysBeyondEveryPeriodEndAtOnce) {
  for (const double seconds : {5e-324, 1e-9}) {
    Profile profile;
    for (const char* name : {"a", "b"}) {
      profile.layers.push_back({.name = name,
                                .forward_seconds = seconds,
                                .backward_seconds = seconds,
                                .num_bytes = 8,
                                .transfer_seconds = seconds});
    }
    const Plan plan = make_plan("balanced", profile, measured_link(0.05, 4),
                                {.period = 2000, .staging_bytes = ring << 7, .max_delay = INT64_MAX});
    validate(plan, profile);
    for (const Op& op : plan.ops) EXPECT_LT(num_steps_crossed(op), 2000);
  }
}

}  // namespace
}  // namespace dreamddp::testing
