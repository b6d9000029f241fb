#include "dreamddp/planner.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "core/expect_rejected.h"
#include "dreamddp/bound.h"

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
