// The planners of sequential partitions: dreamddp, sequential and brute-force.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "core/expect_rejected.h"
#include "core/planners/published_search.h"
#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;
using testing::measured_link;

/// Layers 0 .. 3 of 1 s forward, 2 s backward and 3 s on the link, without a step: the last reads are at 12,
/// 10, 8 and 6 s, the step is at 12 s.
Profile four_layers() {
  Profile profile = testing::uniform_profile(4);
  for (Layer& layer : profile.layers) layer.transfer_seconds = 3;
  profile.step_seconds = 0;
  return profile;
}

Op in_backward(std::size_t layer, std::int64_t iteration) {
  return testing::parameters({{.layer = layer}}, testing::after_backward(iteration, layer),
                             testing::before_step(iteration));
}

struct Planned {
  Plan plan;
  double seconds;
  std::optional<SearchStatistics> search;
};

Planned planned(const char* planner, const Profile& profile, const Link& link, PlanOptions options) {
  Planned result;
  options.search_statistics = &result.search;
  result.plan = make_plan(planner, profile, link, options);
  result.seconds = simulate(result.plan, profile, link).iteration_seconds;
  return result;
}

TEST(PublishedSearch, TakesTheBetterBranchAndFillsBubbles) {
  // 3: 6..9. 2: 9..12 still hides. 1 would end at 15, so the search branches: {3 2 1} {0} exposes 3 + 3 s,
  // {3 2} {1 0} exposes 0 + 4 s. Beside 1 and 0, 6..9 is free for 3; with 2 they would end at 18, not 16.
  const Planned result = planned("dreamddp", four_layers(), {}, {.period = 2});
  EXPECT_EQ(result.plan.ops, (std::vector{in_backward(3, 0), in_backward(2, 0), in_backward(3, 1),
                                          in_backward(1, 1), in_backward(0, 1)}));
  EXPECT_DOUBLE_EQ(result.seconds, 12 + 4 / 2.0);
  // Next layers 3, 2, 1, 0 in the first set and 0 in the second; then 1 in the second.
  EXPECT_EQ(result.search->nodes, 6);
  EXPECT_EQ(result.search->complete_solutions, 2);
  EXPECT_TRUE(result.search->complete);
  EXPECT_GE(result.search->seconds, 0);
}

TEST(PublishedSearch, ReturnsTheBestFoundWithinItsLimits) {
  for (const SearchOptions& limited : {SearchOptions{.max_nodes = 1}, SearchOptions{.max_seconds = 0.0}}) {
    const Planned result = planned("dreamddp", four_layers(), {}, {.period = 2, .search = limited});
    EXPECT_DOUBLE_EQ(result.seconds, 12 + 6 / 2.0);
    EXPECT_EQ(result.search->nodes, 5);
    EXPECT_EQ(result.search->complete_solutions, 1);
    EXPECT_FALSE(result.search->complete);
  }
}

TEST(PublishedSearch, LooksForNoMoreWhereTheFirstSolutionIsTheOnlyOne) {
  const Planned result = planned("dreamddp", four_layers(), {}, {.period = 1, .search = {.max_nodes = 1}});
  EXPECT_EQ(result.search->complete_solutions, 1);
  EXPECT_TRUE(result.search->complete);
}

TEST(PublishedSearch, CountsAllPartitionsWithoutPrunings) {
  // Of L layers into H sets that may be empty: L + H - 1 over H - 1.
  const SearchOptions exhaustive{
      .prunings = {.at_least_one = false, .optimal_hiding = false, .delayed_overflow = false}};
  const auto solutions = [&](std::int64_t period) {
    return planned("dreamddp", four_layers(), {}, {.period = period, .search = exhaustive})
        .search->complete_solutions;
  };
  EXPECT_EQ(solutions(1), 1);
  EXPECT_EQ(solutions(2), 5);
  EXPECT_EQ(solutions(3), 15);
  EXPECT_EQ(solutions(4), 35);
}

TEST(Planners, EndWithWhatTheInterruptThrows) {
  struct Interrupt {};
  for (const char* planner : {"dreamddp", "sequential"}) {
    PlanOptions options{.period = 2};
    options.search.check_interrupt = [] { throw Interrupt(); };
    if (planner == std::string_view("sequential")) {
      EXPECT_THROW(make_plan(planner, four_layers(), {}, options), Interrupt);
    } else {
      // Looked at once in about a thousand nodes: C(20, 9) partitions are many more.
      std::vector<Layer> layers(12, four_layers().layers[0]);
      for (std::size_t i = 0; i < layers.size(); ++i) layers[i].name = std::to_string(i);
      options.period = 10;
      options.search.prunings = {.at_least_one = false, .optimal_hiding = false, .delayed_overflow = false};
      EXPECT_THROW(make_plan(planner, {.layers = layers}, {}, options), Interrupt);
    }
  }
}

TEST(PublishedSearch, CountsLatencyAndOpsInFlight) {
  // With 1 s of latency, one at a time: 3: 6..10, 2: 10..14. So {3} hides and {3 2} does not.
  const Planned one = planned("dreamddp", four_layers(), measured_link(1), {.period = 4});
  // {3} {2} {1} {0}: 2 ends at 12, 1 at 14, 0 at 16.
  EXPECT_DOUBLE_EQ(one.seconds, 12 + (2 + 4) / 4.0);
  // Two at a time: 3: 6..10, 2 from 9 to 13.
  const Planned two = planned("dreamddp", four_layers(), measured_link(1, 2), {.period = 3});
  // {3 2} {1} {0} and {3} {2} {1 0}: 1 + 2 + 4 and 0 + 0 + 5, 1 from 10 on and 0 from 13 to 17.
  EXPECT_DOUBLE_EQ(two.seconds, 12 + 5 / 3.0);
}

TEST(Sequential, FindsThePartitionByHand) {
  const Planned result = planned("sequential", four_layers(), {}, {.period = 2});
  EXPECT_EQ(result.plan.ops,
            (std::vector{in_backward(3, 0), in_backward(2, 0), in_backward(1, 1), in_backward(0, 1)}));
  EXPECT_DOUBLE_EQ(result.seconds, 14);
  EXPECT_FALSE(result.search.has_value());
}

TEST(Sequential, LeavesIterationsEmptyWhereThatSavesLatency) {
  // Layers that are ready at the step, with 10 s of latency that two ops in flight share: 1 + 1 + 10 s
  // together, 1 + 10 s each on their own.
  Profile profile = testing::uniform_profile(2);
  for (Layer& layer : profile.layers) layer.backward_seconds = 0;
  for (const char* planner : {"sequential", "brute-force"}) {
    const Planned result = planned(planner, profile, measured_link(10, 2), {.period = 2});
    EXPECT_DOUBLE_EQ(result.seconds, 3 + 12 / 2.0) << planner;
  }
}

TEST(Sequential, AddsSetsWhereTheyHelpBeyondTheFirstTable) {
  // Layers 99 .. 1 are ready 1 s before the step, layer 0 at the step; each takes 1 s. So every set hides 1
  // s, unless it is layer 0 alone.
  Profile profile = testing::uniform_profile(100);
  for (Layer& layer : profile.layers) layer.backward_seconds = 0;
  profile.layers[0].backward_seconds = 1;
  const Planned few = planned("sequential", profile, {}, {.period = 50});
  const Planned many = planned("sequential", profile, {}, {.period = 100});
  EXPECT_NEAR(few.seconds * 50, 50 * 102 + 100 - 50, 1e-6);
  EXPECT_NEAR(many.seconds * 100, 100 * 102 + 100 - 99, 1e-6);
}

TEST(Sequential, MakesSetsEvenWhereThatTakesNoTime) {
  Profile profile = testing::uniform_profile(6);
  for (Layer& layer : profile.layers) layer.transfer_seconds = 0.125;
  const Planned result = planned("sequential", profile, {}, {.period = 3});
  EXPECT_EQ(result.plan.ops, (std::vector{in_backward(5, 0), in_backward(4, 0), in_backward(3, 1),
                                          in_backward(2, 1), in_backward(1, 2), in_backward(0, 2)}));
  EXPECT_DOUBLE_EQ(result.seconds, 19 + 0.125 / 3);  // nothing hides layer 0
}

TEST(BruteForce, RefusesMoreLayersThanItCanTry) {
  EXPECT_EQ(planned("brute-force", testing::uniform_profile(20), {}, {.period = 3}).search->complete, true);
  expect_rejected([] { make_plan("brute-force", testing::uniform_profile(21), {}, {}); },
                  {"brute-force", "21", "at most 20", "'sequential'"});
}

TEST(BruteForce, CountsPartitions) {
  // Cuts between four layers: none or one of three.
  const Planned result = planned("brute-force", four_layers(), {}, {.period = 2});
  EXPECT_EQ(result.search->complete_solutions, 4);
  EXPECT_TRUE(result.search->complete);
  EXPECT_DOUBLE_EQ(result.seconds, 14);
}

struct Case {
  Profile profile;
  Link link;
  PlanOptions options;
};

class SequentialPlannersOnRandomProfiles : public ::testing::TestWithParam<bool> {
 protected:
  template <typename Check>
  void for_each_case(std::size_t max_layers, const Check& check) {
    testing::Random random(GetParam() ? 21 : 22);
    for (int i = 0; i < 300; ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      Case c;
      c.profile = testing::random_profile(
          random, {.max_layers = max_layers, .special_reads = GetParam(), .any_backward_order = GetParam()});
      const double scale = static_cast<double>(testing::random_integer(random, 1, 8)) / 16;
      for (Layer& layer : c.profile.layers) *layer.transfer_seconds *= scale;
      c.link = measured_link(static_cast<double>(testing::random_integer(random, 0, 6)) / 16,
                             static_cast<int>(testing::random_integer(random, 1, 3)));
      c.options.period = testing::random_integer(random, 1, 9);
      check(c);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Reads, SequentialPlannersOnRandomProfiles, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Special" : "Ordinary"; });

TEST_P(SequentialPlannersOnRandomProfiles, SequentialEqualsBruteForceAndDreamddpIsNeverBetter) {
  int num_worse = 0;
  for_each_case(14, [&](const Case& c) {
    const double sequential = planned("sequential", c.profile, c.link, c.options).seconds;
    EXPECT_NEAR(planned("brute-force", c.profile, c.link, c.options).seconds, sequential, 1e-6);
    const double published = planned("dreamddp", c.profile, c.link, c.options).seconds;
    EXPECT_GE(published, sequential - 1e-6);
    if (published > sequential + 1e-6) ++num_worse;
  });
  EXPECT_GT(num_worse, 0);  // its prunings are not free
}

TEST_P(SequentialPlannersOnRandomProfiles, TheObjectiveIsWhatTheSimulatorReports) {
  for_each_case(14, [](const Case& c) {
    const SequentialProblem problem = make_sequential_problem(c.profile, c.link, c.options.period);
    const SearchResult result = published_search(problem, {});
    const Plan unfilled = make_sequential_plan("test", c.profile, problem, sets_of(problem, result.begins));
    validate(unfilled, c.profile);
    const auto period = static_cast<double>(c.options.period);
    const double exposed = simulate(unfilled, c.profile, c.link).exposed_seconds * period;
    EXPECT_NEAR(result.exposed_seconds, exposed, 1e-6);
    EXPECT_NEAR(exposed_seconds(problem, result.begins), exposed, 1e-6);
    // Filled bubbles add ops and no time.
    const Planned filled = planned("dreamddp", c.profile, c.link, c.options);
    validate(filled.plan, c.profile);
    EXPECT_GE(filled.plan.ops.size(), unfilled.ops.size());
    EXPECT_NEAR(simulate(filled.plan, c.profile, c.link).exposed_seconds * period, exposed, 1e-6);
  });
}

TEST_P(SequentialPlannersOnRandomProfiles, WithoutPruningsTheSearchIsExhaustive) {
  constexpr Prunings none{.at_least_one = false, .optimal_hiding = false, .delayed_overflow = false};
  for_each_case(8, [&](const Case& c) {
    PlanOptions exhaustive = c.options;
    exhaustive.search.prunings = none;
    const Planned result = planned("dreamddp", c.profile, c.link, exhaustive);
    EXPECT_NEAR(result.seconds, planned("brute-force", c.profile, c.link, c.options).seconds, 1e-6);
    const Planned pruned = planned("dreamddp", c.profile, c.link, c.options);
    EXPECT_LE(pruned.search->nodes, result.search->nodes);
  });
}

TEST_P(SequentialPlannersOnRandomProfiles, EachPruningLeavesNodesOut) {
  std::int64_t all = 0;
  std::vector<std::int64_t> without(3);
  for_each_case(8, [&](const Case& c) {
    all += planned("dreamddp", c.profile, c.link, c.options).search->nodes;
    for (std::size_t i = 0; i < without.size(); ++i) {
      PlanOptions options = c.options;
      options.search.prunings = {i != 0, i != 1, i != 2};
      without[i] += planned("dreamddp", c.profile, c.link, options).search->nodes;
    }
  });
  for (const std::int64_t nodes : without) EXPECT_GT(nodes, all);
}

TEST_P(SequentialPlannersOnRandomProfiles, BranchesAtMostOnceASet) {
  for_each_case(14, [](const Case& c) {
    const Planned result = planned("dreamddp", c.profile, c.link, c.options);
    const auto num_layers = static_cast<std::int64_t>(c.profile.layers.size());
    const auto most_branches = std::min(num_layers, c.options.period) - 1;
    EXPECT_LE(result.search->complete_solutions, std::int64_t{1} << most_branches);
  });
}

TEST_P(SequentialPlannersOnRandomProfiles, AreNeverSlowerThanEqualCountWhereLayersAreInOrder) {
  if (GetParam()) return;  // with other last reads, equal-count's sets are not sequential in their order
  for_each_case(30, [](const Case& c) {
    EXPECT_LE(planned("sequential", c.profile, c.link, c.options).seconds,
              planned("equal-count", c.profile, c.link, c.options).seconds + 1e-6);
  });
}

}  // namespace
}  // namespace dreamddp
