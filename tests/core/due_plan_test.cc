// Plans of one iteration for the layers that a policy has averaged.
#include "dreamddp/due_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "core/expect_rejected.h"
#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;
using testing::measured_link;
using testing::uniform_profile;

TEST(DuePlan, AveragesTheDueLayersInTheirWindows) {
  // Backwards of layers 3 .. 0 end at 6, 8, 10 and 12 s, the step begins at 12 s.
  const Plan plan = plan_due_layers(uniform_profile(4), measured_link(0), {true, false, false, true});
  EXPECT_EQ(plan.planner, "policy");
  EXPECT_EQ(plan.period, 1);
  EXPECT_EQ(treatments(plan),
            (std::vector{Treatment::alone, Treatment::skipped, Treatment::skipped, Treatment::alone}));
  const Simulation simulation =
      simulate(plan, with_due_layers(uniform_profile(4), {true, false, false, true}), measured_link(0));
  EXPECT_DOUBLE_EQ(simulation.link_seconds, 2);
  // Layer 0 is read first at 0 s and last at 12 s: only the second of the step and no backward hides it.
  EXPECT_DOUBLE_EQ(simulation.iteration_seconds, 14);
}

TEST(DuePlan, MergesNeighboursThatALatencyWouldSeparate) {
  // Together layers 3 and 2 are there at 8 + 2 + 8 = 18 s; one after the other at 6 + 9 + 9 = 24 s.
  Profile profile = uniform_profile(4);
  const Plan plan = plan_due_layers(profile, measured_link(8), {false, false, true, true});
  EXPECT_EQ(treatments(plan),
            (std::vector{Treatment::skipped, Treatment::skipped, Treatment::merged, Treatment::merged}));
}

TEST(DuePlan, HasNoOpsWhereNothingIsDue) {
  EXPECT_TRUE(plan_due_layers(uniform_profile(2), measured_link(1), {false, false}).ops.empty());
}

TEST(DuePlan, RejectsDecisionsForOtherLayers) {
  expect_rejected([] { plan_due_layers(uniform_profile(2), measured_link(0), {true}); },
                  {"is_due", "got 1", "2 layers"});
}

TEST(DuePlan, CoversEveryDueLayerOnceAndNoOther) {
  testing::Random random(7);
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = testing::random_profile(random, {.max_layers = 12});
    const Link link = measured_link(static_cast<double>(testing::random_integer(random, 0, 6)) / 16,
                                    static_cast<int>(testing::random_integer(random, 1, 3)));
    std::vector<bool> is_due;
    for (std::size_t l = 0; l < profile.layers.size(); ++l)
      is_due.push_back(testing::random_chance(random, 0.4));
    const Plan plan = plan_due_layers(profile, link, is_due);
    validate(plan, with_due_layers(profile, is_due));
    EXPECT_EQ(plan, plan_due_layers(profile, link, is_due));
    const EventOrder order(profile);
    std::map<std::size_t, double> covered;
    for (const Op& op : plan.ops) {
      EXPECT_EQ(op_mode(op, order), OpMode::in_place);
      for (const Segment& segment : op.segments) covered[segment.layer] += segment.end - segment.begin;
    }
    for (std::size_t l = 0; l < profile.layers.size(); ++l) {
      const bool is_averaged = is_due[l] && profile.layers[l].num_bytes != 0;
      EXPECT_NEAR(covered[l], is_averaged ? 1 : 0, 1e-12);
      EXPECT_EQ(treatments(plan)[l] != Treatment::skipped, is_averaged);
    }
  }
}

}  // namespace
}  // namespace dreamddp
