#include <gtest/gtest.h>

#include <limits>

#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp::testing {
namespace {

std::vector<Op> ops_of(const Profile& profile, const Link& link) {
  return make_plan("asc-wfbp", profile, link, {}).ops;
}

Op in_backward(std::vector<Segment> segments, std::size_t launch) {
  return gradients(std::move(segments), after_backward(0, launch), before_step(0));
}

// Gradients of 1 s each are ready 4, 2 and 0 s before the step.

TEST(AscWfbp, KeepsGradientsApartWhereTheLatencyIsShort) {
  // 2 ends at -2, 1 at 0, 0 at 2, and no earlier end is possible.
  EXPECT_EQ(ops_of(uniform_profile(3), measured_link(1)),
            (std::vector{in_backward({{2}}, 2), in_backward({{1}}, 1), in_backward({{0}}, 0)}));
}

TEST(AscWfbp, MergesGradientsWhereTheLatencyIsLong) {
  // 3 s of latency: {2} ends at 0, {1, 0} at 5; all apart end at 8, all merged at 6, {2, 1} and {0} at 7.
  EXPECT_EQ(ops_of(uniform_profile(3), measured_link(3)),
            (std::vector{in_backward({{2}}, 2), in_backward({{1}, {0}}, 0)}));
}

TEST(AscWfbp, MergesLessWithSeveralInFlight) {
  // 2 starts at -4, 1 at -2, 0 at 0 when the first has ended: the last one ends at 4.
  const Profile profile = uniform_profile(3);
  const Link link = measured_link(3, 2);
  EXPECT_EQ(ops_of(profile, link),
            (std::vector{in_backward({{2}}, 2), in_backward({{1}}, 1), in_backward({{0}}, 0)}));
  EXPECT_EQ(simulate(make_plan("asc-wfbp", profile, link, {}), profile, link).exposed_seconds, 4);
}

TEST(AscWfbp, SendsOneOpWhereAllIsHiddenAnyway) {
  Profile profile = uniform_profile(3);
  profile.layers[0].num_bytes = 0;
  profile.layers[2].num_bytes = 0;
  EXPECT_EQ(ops_of(profile, measured_link(0.5)), (std::vector{in_backward({{1}}, 1)}));
}

/// The least exposed time of all ways to merge neighbours.
double least_exposed_seconds(const Profile& profile, const Link& link) {
  const std::vector<Op> apart = make_plan("wfbp", profile, link, {}).ops;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t cuts = 0; cuts < (1U << (apart.size() - 1)); ++cuts) {
    std::vector<Op> ops;
    for (std::size_t i = 0; i < apart.size(); ++i) {
      if (i == 0 || ((cuts >> (i - 1)) & 1) != 0) {
        ops.push_back(apart[i]);
      } else {
        ops.back().segments.push_back(apart[i].segments.front());
        ops.back().launch = apart[i].launch;
      }
    }
    least = std::min(least, simulate(valid_plan(profile, 1, ops), profile, link).exposed_seconds);
  }
  return least;
}

TEST(AscWfbp, IsTheBestWayToMergeWithOneInFlightAndCloseToItWithMore) {
  Random random(8);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = random_profile(random, {.max_layers = 8});
    if (make_plan("wfbp", profile, {}, {}).ops.empty()) continue;
    Link link = measured_link(static_cast<double>(random_integer(random, 0, 24)) / 8);
    const auto seconds = [&](const char* planner) {
      return simulate(make_plan(planner, profile, link, {}), profile, link).exposed_seconds;
    };
    EXPECT_NEAR(seconds("asc-wfbp"), least_exposed_seconds(profile, link), 1e-6);
    link.in_flight = static_cast<int>(random_integer(random, 2, 4));
    EXPECT_LE(seconds("asc-wfbp"), std::min(seconds("wfbp"), seconds("ssgd")) + 1e-6);
    EXPECT_LE(seconds("asc-wfbp"), least_exposed_seconds(profile, link) * 1.25 + 1e-6);
  }
}

}  // namespace
}  // namespace dreamddp::testing
