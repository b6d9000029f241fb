#include "dreamddp/planner.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "core/expect_rejected.h"
#include "core/random_plans.h"
#include "dreamddp/bound.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

/// Layers of 1 s forward, 2 s backward and 3 s on the link, and a step of 1 s.
Profile three_layers() {
  Profile profile;
  for (const char* name : {"a", "b", "c"}) profile.layers.push_back({name, 1, 2, 100, 3.0, {}});
  profile.step_seconds = 1;
  return profile;
}

TEST(Planners, HaveNamesOfTheirOwnAndSummaries) {
  std::set<std::string_view> names;
  for (const Planner& planner : planners()) {
    EXPECT_TRUE(names.insert(planner.name).second) << planner.name;
    EXPECT_FALSE(planner.summary.empty()) << planner.name;
  }
  for (const char* name : {"ssgd", "wfbp", "ddp", "asc-wfbp", "local-sgd", "equal-count", "dreamddp",
                           "sequential", "brute-force", "balanced"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(Planners, NameTheirPlans) {
  for (const Planner& planner : planners()) {
    const Plan plan = make_plan(planner.name, three_layers(), {}, {});
    EXPECT_EQ(plan.planner, planner.name);
    EXPECT_EQ(plan.layers, (std::vector<std::string>{"a", "b", "c"}));
  }
}

TEST(MakePlan, RejectsAnUnknownNameWithTheKnownOnes) {
  expect_rejected([] { make_plan("balance", three_layers(), {}, {}); },
                  {"planner", "'balance'", "ssgd", "wfbp", "ddp", "local-sgd", "equal-count", "balanced"});
}

TEST(MakePlan, RejectsOptionsOutOfRange) {
  for (const Planner& planner : planners()) {
    const auto make = [&](const PlanOptions& options) {
      make_plan(planner.name, three_layers(), {}, options);
    };
    for (const std::int64_t period : {std::int64_t{0}, std::int64_t{-3}, std::int64_t{1'000'001}}) {
      expect_rejected([&] { make({.period = period}); }, {"period", std::to_string(period), "1 to 1000000"});
    }
    expect_rejected([&] { make({.staging_bytes = -1}); }, {"staging_bytes", "-1", "at least 0"});
    expect_rejected([&] { make({.max_delay = -2}); }, {"max_delay", "-2", "at least 0"});
    for (const double slack : {-0.01, 0.6, std::numeric_limits<double>::quiet_NaN()})
      expect_rejected([&] { make({.slack = slack}); }, {"slack", "0 to 0.5"});
    expect_rejected([&] { make({.search = {.max_nodes = 0}}); }, {"max_nodes", "0", "at least 1"});
    expect_rejected([&] { make({.search = {.max_seconds = -1.0}}); }, {"max_seconds", "-1", "at least 0"});
  }
}

TEST(MakePlan, RejectsABadProfileAndABadLink) {
  Profile profile = three_layers();
  profile.layers[1].backward_seconds = -1;
  Link link;
  link.workers = 0;
  for (const Planner& planner : planners()) {
    expect_rejected([&] { make_plan(planner.name, profile, {}, {}); }, {"'b'", "backward"});
    expect_rejected([&] { make_plan(planner.name, three_layers(), link, {}); }, {"workers"});
  }
}

TEST(MakePlan, NamesTheLayerWhoseTransferTimeIsUnknown) {
  Profile profile = three_layers();
  profile.layers[2].transfer_seconds.reset();
  expect_rejected([&] { make_plan("balanced", profile, {}, {}); }, {"'c'"});
}

/// The layer's share of the ops with this deadline.
double share_due(const Plan& plan, std::size_t layer, EventKind deadline) {
  double share = 0;
  for (const Op& op : plan.ops) {
    for (const Segment& segment : op.segments) {
      if (segment.layer == layer && op.deadline.kind == deadline) share += segment.end - segment.begin;
    }
  }
  return share;
}

TEST(MakePlan, LeavesSlackFreeInEveryWindow) {
  // C = 10 and c has D = 2 and G = 4 for its 6 s: without slack one iteration fills both windows.
  Profile profile = three_layers();
  profile.layers[0].num_bytes = profile.layers[1].num_bytes = 0;
  profile.layers[2].transfer_seconds = 6;
  EXPECT_NEAR(share_due(make_plan("balanced", profile, {}, {.period = 1}), 2, EventKind::before_step),
              4.0 / 6, 1e-6);
  // With a tenth of C less in each, two iterations have room for all of it within 1 + 3 s.
  const Plan plan = make_plan("balanced", profile, {}, {.period = 2, .slack = 0.1});
  for (std::int64_t iteration = 0; iteration < 2; ++iteration) {
    double seconds = 0;
    for (const Op& op : plan.ops) {
      if (op.deadline == Event{iteration, EventKind::before_step, 0})
        for (const Segment& segment : op.segments) seconds += 6 * (segment.end - segment.begin);
    }
    EXPECT_LE(seconds, 3 + 1e-6);
  }
  EXPECT_NEAR(simulate(plan, profile, {}).iteration_seconds, 10, 1e-6);
}

TEST(MakePlan, WithSlackIsValidForEveryProfile) {
  testing::Random random(23);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = testing::random_profile(random, {});
    for (const Planner& planner : planners()) {
      const Plan plan =
          make_plan(planner.name, profile, {}, {.period = 3, .slack = 0.3, .fill_bubbles = i % 2 == 0});
      EXPECT_NO_THROW(validate(plan, profile)) << planner.name;
    }
  }
}

TEST(ChoosePeriod, TakesTheSmallestThatIsComputeBound) {
  // C = 10. With nothing before a's first read and after its last one, its 3 s are exposed in one of H
  // iterations: the bound is 10 + 3/H from H = 2 on, and within 2% of 10 from H = 15 on.
  EXPECT_EQ(choose_period(three_layers(), {}), 15);
  EXPECT_EQ(choose_period(three_layers(), {}, {.margin = 0.1}), 3);
  EXPECT_EQ(choose_period(three_layers(), {}, {.margin = 0.3}), 1);
}

TEST(ChoosePeriod, IsTheFirstOfAllPeriodsThatTheBoundAllows) {
  for (const double transfer : {0.5, 3.0, 17.0, 40.0}) {
    Profile profile = three_layers();
    for (Layer& layer : profile.layers) layer.transfer_seconds = transfer;
    const std::vector<double> transfers(3, transfer);
    for (const double margin : {0.0, 0.02, 0.5}) {
      std::int64_t first = 1;
      while (first < 60 && bound_seconds(profile, transfers, {.period = first}) > (1 + margin) * 10) ++first;
      EXPECT_EQ(choose_period(profile, {}, {.margin = margin, .max_period = 60}), first);
    }
  }
}

TEST(ChoosePeriod, IsTheFirstOneAlsoWhereOpsHaveALatency) {
  testing::Random random(5);
  int num_between = 0;
  for (int i = 0; i < 1000; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Profile profile = testing::random_profile(random, {.max_layers = 12});
    Link link;
    link.latency_seconds = static_cast<double>(testing::random_integer(random, 1, 24)) / 16;
    link.in_flight = testing::random_chance(random, 0.8) ? 1 : 2;
    const double margin = static_cast<double>(testing::random_integer(random, 0, 8)) / 40;
    const std::vector<double> transfers = layer_transfer_seconds(profile, link);
    const auto is_compute_bound = [&](std::int64_t period) {
      const BoundOptions options{
          .period = period, .latency_seconds = link.latency_seconds, .in_flight = link.in_flight};
      return bound_seconds(profile, transfers, options) <= (1 + margin) * compute_seconds(profile);
    };
    std::int64_t first = 1;
    while (first < 40 && !is_compute_bound(first)) ++first;
    ASSERT_EQ(choose_period(profile, link, {.margin = margin, .max_period = 40}), first);
    num_between += first > 1 && first < 40 ? 1 : 0;
  }
  EXPECT_GT(num_between, 100);
}

TEST(ChoosePeriod, LeavesSlackFreeInEveryIteration) {
  // c has D + G = 6 s for its 6 s, and 1 s less with the slack.
  Profile profile = three_layers();
  profile.layers[0].num_bytes = profile.layers[1].num_bytes = 0;
  profile.layers[2].transfer_seconds = 6;
  EXPECT_EQ(choose_period(profile, {}, {.margin = 0}), 1);
  EXPECT_EQ(choose_period(profile, {}, {.margin = 0, .slack = 0.05}), 2);
}

TEST(ChoosePeriod, EndsAtTheLargestOneAllowed) {
  EXPECT_EQ(choose_period(three_layers(), {}, {.max_period = 7}), 7);
  EXPECT_EQ(choose_period(three_layers(), {}, {.margin = 0, .max_period = 1'000'000}), 1'000'000);
}

TEST(ChoosePeriod, TakesOneForALinkThatCostsNothing) {
  EXPECT_EQ(choose_period(three_layers(), {.bandwidth_bytes_per_second = 1.0, .workers = 1}), 1);
}

TEST(ChoosePeriod, RejectsOptionsOutOfRange) {
  expect_rejected([] { choose_period(three_layers(), {}, {.margin = -0.1}); }, {"margin", "at least 0"});
  expect_rejected(
      [] { choose_period(three_layers(), {}, {.margin = std::numeric_limits<double>::quiet_NaN()}); },
      {"margin"});
  expect_rejected([] { choose_period(three_layers(), {}, {.max_period = 0}); }, {"max_period", "0"});
}

}  // namespace
}  // namespace dreamddp
