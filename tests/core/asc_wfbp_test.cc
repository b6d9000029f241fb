#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

using testing::after_backward;
using testing::before_step;
using testing::gradients;
using testing::measured_link;

/// Gradients that are ready at 9, 7 and 5 s, 1 s each on the link; the step is at 9 s.
Profile three_layers() {
  Profile profile = testing::uniform_profile(3);
  profile.step_seconds = 0;
  return profile;
}

std::vector<Op> ops_of(const Profile& profile, const Link& link) {
  const Plan plan = make_plan("asc-wfbp", profile, link, {.period = 5});
  EXPECT_EQ(plan.period, 1);
  validate(plan, profile);
  return plan.ops;
}

TEST(AscWfbp, MergesWhereLatencyCountsOneByOne) {
  // 2 s of latency. {2}: 5..8, {1 0}: 9..13. Apart they would end at 14, all in one op at 9 + 3 + 2 as well.
  EXPECT_EQ(ops_of(three_layers(), measured_link(2)),
            (std::vector{gradients({{2}}, after_backward(0, 2), before_step(0)),
                         gradients({{1}, {0}}, after_backward(0, 0), before_step(0))}));
}

TEST(AscWfbp, LetsLatenciesOverlapWhereSeveralAreInFlight) {
  // {2 1}: 7..9 on the link, 0 from 9 to 10, and 2 s of latency: 12, as early as layer 0 alone can end.
  EXPECT_EQ(ops_of(three_layers(), measured_link(2, 2)),
            (std::vector{gradients({{2}, {1}}, after_backward(0, 1), before_step(0)),
                         gradients({{0}}, after_backward(0, 0), before_step(0))}));
}

TEST(AscWfbp, NeedsNoMoreOpsThanHideEverything) {
  // Layer 0 has no parameters: 2 and 1 are ready at 7 s and end at 9 s, together or apart.
  Profile profile = three_layers();
  profile.layers[0].num_bytes = 0;
  EXPECT_EQ(ops_of(profile, {}), (std::vector{gradients({{2}, {1}}, after_backward(0, 1), before_step(0))}));
}

TEST(AscWfbp, IsTheBestOfAllWaysToMerge) {
  testing::Random random(31);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    Profile profile = testing::random_profile(random, {.max_layers = 8});
    const double scale = static_cast<double>(testing::random_integer(random, 1, 8)) / 32;
    for (Layer& layer : profile.layers) *layer.transfer_seconds *= scale;
    const Link link = measured_link(static_cast<double>(testing::random_integer(random, 0, 8)) / 8,
                                    static_cast<int>(testing::random_integer(random, 1, 4)));
    const Plan apart = make_plan("wfbp", profile, link, {});
    const Plan merged = make_plan("asc-wfbp", profile, link, {});
    validate(merged, profile);
    const double seconds = simulate(merged, profile, link).iteration_seconds;
    double best = std::numeric_limits<double>::infinity();
    std::size_t fewest_ops = apart.ops.size();
    const std::size_t num_cuts = apart.ops.empty() ? 0 : apart.ops.size() - 1;
    for (std::size_t cuts = 0; cuts < std::size_t{1} << num_cuts; ++cuts) {
      Plan plan = apart;
      plan.ops.clear();
      for (std::size_t op = 0; op < apart.ops.size(); ++op) {
        if (op == 0 || (cuts >> (op - 1) & 1) != 0) {
          plan.ops.push_back(apart.ops[op]);
        } else {
          plan.ops.back().segments.push_back(apart.ops[op].segments.front());
          plan.ops.back().launch = apart.ops[op].launch;
        }
      }
      best = std::min(best, simulate(plan, profile, link).iteration_seconds);
      if (simulate(plan, profile, link).iteration_seconds <= seconds)
        fewest_ops = std::min(fewest_ops, plan.ops.size());
    }
    EXPECT_NEAR(seconds, best, 1e-6);
    EXPECT_LE(merged.ops.size(), fewest_ops);
  }
}

TEST(AscWfbp, NeverLosesToTheOtherPlannersOfGradients) {
  testing::Random random(32);
  for (int i = 0; i < 200; ++i) {
    const Profile profile = testing::random_profile(random, {.max_layers = 40});
    const Link link = measured_link(static_cast<double>(testing::random_integer(random, 0, 8)) / 8,
                                    static_cast<int>(testing::random_integer(random, 1, 4)));
    const auto seconds = [&](const char* planner) {
      return simulate(make_plan(planner, profile, link, {}), profile, link).iteration_seconds;
    };
    for (const char* planner : {"ssgd", "wfbp", "ddp"})
      EXPECT_LE(seconds("asc-wfbp"), seconds(planner) * (1 + 1e-8)) << planner << " " << i;
  }
}

}  // namespace
}  // namespace dreamddp
