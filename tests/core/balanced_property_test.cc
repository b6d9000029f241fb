// What must hold for the balanced planner on any profile and link.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/random_plans.h"
#include "dreamddp/bound.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

struct Case {
  Profile profile;
  Link link;
  PlanOptions options;
};

Case random_case(testing::Random& random, const testing::RandomProfileOptions& profiles) {
  Case result;
  result.profile = testing::random_profile(random, profiles);
  const double scale = static_cast<double>(testing::random_integer(random, 1, 8)) / 4;
  for (Layer& layer : result.profile.layers) *layer.transfer_seconds *= scale;
  result.link.latency_seconds = static_cast<double>(testing::random_integer(random, 0, 6)) / 16;
  result.link.in_flight = static_cast<int>(testing::random_integer(random, 1, 3));
  result.options.period = testing::random_integer(random, 1, 9);
  return result;
}

class BalancedOnRandomProfiles : public ::testing::TestWithParam<bool> {
 protected:
  template <typename Check>
  void for_each_case(const Check& check) {
    testing::Random random(GetParam() ? 5 : 3);
    const testing::RandomProfileOptions profiles{
        .max_layers = 14, .special_reads = GetParam(), .any_backward_order = GetParam()};
    for (int i = 0; i < 400; ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      check(random_case(random, profiles));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Reads, BalancedOnRandomProfiles, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Special" : "Ordinary"; });

double seconds_of(const char* planner, const Case& c) {
  return simulate(make_plan(planner, c.profile, c.link, c.options), c.profile, c.link).iteration_seconds;
}

TEST_P(BalancedOnRandomProfiles, AveragesEveryCoordinateOnceAPeriodAndInPlace) {
  for_each_case([](const Case& c) {
    const Plan plan = make_plan("balanced", c.profile, c.link, c.options);
    validate(plan, c.profile);
    const EventOrder order(c.profile);
    std::map<std::size_t, std::vector<Segment>> segments;
    for (const Op& op : plan.ops) {
      EXPECT_EQ(op_mode(op, order), OpMode::in_place);
      for (const Segment& segment : op.segments) segments[segment.layer].push_back(segment);
    }
    for (std::size_t l = 0; l < c.profile.layers.size(); ++l) {
      double end = 0;
      std::ranges::sort(segments[l], {}, &Segment::begin);
      for (const Segment& segment : segments[l]) {
        EXPECT_EQ(segment.begin, end);
        end = segment.end;
      }
      EXPECT_EQ(end, c.profile.layers[l].num_bytes == 0 ? 0 : 1);
    }
  });
}

TEST_P(BalancedOnRandomProfiles, IsNeverFasterThanTheBound) {
  for_each_case([](const Case& c) {
    const double bound = bound_seconds(c.profile, layer_transfer_seconds(c.profile, c.link),
                                       {.period = c.options.period,
                                        .latency_seconds = c.link.latency_seconds,
                                        .in_flight = c.link.in_flight});
    EXPECT_GE(seconds_of("balanced", c), bound - 1e-9);
  });
}

TEST_P(BalancedOnRandomProfiles, IsNeverSlowerThanLocalSgdAndEqualCount) {
  for_each_case([](const Case& c) {
    const double seconds = seconds_of("balanced", c);
    EXPECT_LE(seconds, seconds_of("local-sgd", c) * (1 + 1e-6));
    EXPECT_LE(seconds, seconds_of("equal-count", c) * (1 + 1e-6));
  });
}

TEST_P(BalancedOnRandomProfiles, IsTheSameTwice) {
  for_each_case([](const Case& c) {
    EXPECT_EQ(make_plan("balanced", c.profile, c.link, c.options),
              make_plan("balanced", c.profile, c.link, c.options));
  });
}

// The bound leaves out that early and tied layers have nothing to hide behind while others are computed.
TEST(BalancedOnOrdinaryProfiles, ReachesTheBoundWithoutLatency) {
  testing::Random random(17);
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    Case c = random_case(random, {.max_layers = 14, .special_reads = false, .any_backward_order = false});
    c.link.latency_seconds = 0;
    const Plan plan = make_plan("balanced", c.profile, c.link, c.options);
    EXPECT_LE(simulate(plan, c.profile, c.link).gap, 1e-4);
  }
}

}  // namespace
}  // namespace dreamddp
