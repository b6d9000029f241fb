// The planners of sequential partitions: the published search, dynamic programming, trying all.
#include <gtest/gtest.h>

#include "core/expect_rejected.h"
#include "core/planners/published_search.h"
#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp::testing {
namespace {

/// Four layers with 6, 4, 2 and 0 s between their last reads and the step, the output side first.
Profile four_layers(double transfer_seconds) {
  Profile profile = uniform_profile(4);
  for (Layer& layer : profile.layers) layer.transfer_seconds = transfer_seconds;
  return profile;
}

double exposed_seconds_of(const char* planner, const Profile& profile, const Link& link,
                          std::int64_t period) {
  const Plan plan = make_plan(planner, profile, link, {.period = period});
  return simulate(plan, profile, link).exposed_seconds * static_cast<double>(period);
}

TEST(PublishedSearch, KeepsTheFirstOfEquallyGoodPartitions) {
  // Whatever the first set takes, the last layer's second is exposed.
  const PartitionProblem problem = make_partition_problem(four_layers(1), {}, 2);
  const SearchResult found = search_partition(problem, {});
  EXPECT_EQ(found.partition, (Partition{4, 4}));
  EXPECT_EQ(exposed_seconds(problem, found.partition), 1);
  EXPECT_EQ(found.statistics.nodes, 4);
  EXPECT_EQ(found.statistics.complete_solutions, 2);
  EXPECT_TRUE(found.statistics.is_complete);
}

TEST(PublishedSearch, BranchesWhereTheNextLayerDoesNotHide) {
  // {3, 2} end with the step. Taking 1 as well costs 3 s and leaves 0 with 3 s; {1, 0} cost 4 s.
  const PartitionProblem problem = make_partition_problem(four_layers(3), {}, 2);
  const SearchResult found = search_partition(problem, {});
  EXPECT_EQ(found.partition, (Partition{2, 4}));
  EXPECT_EQ(exposed_seconds(problem, found.partition), 4);
  EXPECT_EQ(found.statistics.nodes, 4);
  EXPECT_EQ(found.statistics.complete_solutions, 2);
}

TEST(PublishedSearch, WithoutPruningsVisitsEveryPartition) {
  const PartitionProblem problem = make_partition_problem(four_layers(3), {}, 3);
  const SearchResult all =
      search_partition(problem, {.at_least_one = false, .optimal_hiding = false, .delayed_overflow = false});
  EXPECT_EQ(all.statistics.complete_solutions, 15);  // 4 layers, 2 cuts, 6 over 2
  const SearchResult nonempty =
      search_partition(problem, {.optimal_hiding = false, .delayed_overflow = false});
  EXPECT_LT(nonempty.statistics.complete_solutions, 15);
  EXPECT_LE(search_partition(problem, {}).statistics.nodes, nonempty.statistics.nodes);
}

TEST(PublishedSearch, StopsAtTheLimitWithTheBestSoFar) {
  const PartitionProblem problem = make_partition_problem(four_layers(3), {}, 2);
  const SearchResult found = search_partition(problem, {.max_nodes = 2});
  EXPECT_FALSE(found.statistics.is_complete);
  EXPECT_EQ(found.statistics.nodes, 2);
  EXPECT_EQ(found.partition, (Partition{4, 4}));
  SearchStatistics statistics;
  make_plan("dreamddp", four_layers(3), {}, {.period = 2, .max_nodes = 2, .search = &statistics});
  EXPECT_FALSE(statistics.is_complete);
}

TEST(DreamDdp, FillsBubblesWhileTheIterationTakesNoLonger) {
  // Iteration 1 averages {1, 0} in 4 exposed seconds. Layer 3 fits in front of them, 3 and 2 do not.
  const Profile profile = four_layers(3);
  const Plan plan = make_plan("dreamddp", profile, {}, {.period = 2});
  const std::vector expected{parameters({{3}}, after_backward(0, 3), before_step(0)),
                             parameters({{2}}, after_backward(0, 2), before_step(0)),
                             parameters({{3}}, after_backward(1, 3), before_step(1)),
                             parameters({{1}}, after_backward(1, 1), before_step(1)),
                             parameters({{0}}, after_backward(1, 0), before_step(1))};
  EXPECT_EQ(plan.ops, expected);
  EXPECT_EQ(simulate(plan, profile, {}).iteration_seconds, 13 + 4 / 2.0);
}

TEST(Sequential, UsesFewerSetsWhereLatenciesOverlap) {
  // Two in flight: all four ops in one iteration overlap their 10 s, in two iterations each pays 10 s.
  const Profile profile = four_layers(0.125);
  EXPECT_EQ(exposed_seconds_of("sequential", profile, measured_link(10, 8), 2), 10.125);
}

TEST(BruteForce, SaysWhatToUseWhereThereAreTooMany) {
  expect_rejected([] { make_plan("brute-force", uniform_profile(60), {}, {.period = 10}); },
                  {"period", "10", "60 layers", "sequential"});
}

TEST(Sequential, SaysWhatToUseWhereItsTableWouldBeTooLarge) {
  expect_rejected([] { make_plan("sequential", uniform_profile(400), {}, {.period = 1'000'000}); },
                  {"period", "1000000", "400 layers", "balanced"});
}

struct RandomCase {
  Profile profile;
  Link link;
  std::int64_t period = 1;
};

RandomCase random_case(Random& random) {
  RandomCase c{random_profile(random, {.max_layers = 10}), {}, random_integer(random, 1, 5)};
  if (random_chance(random, 0.6))
    c.link.latency_seconds = static_cast<double>(random_integer(random, 0, 24)) / 8;
  c.link.in_flight = static_cast<int>(random_integer(random, 1, 3));
  return c;
}

TEST(Partitions, SequentialIsAsGoodAsTryingAllAndTheSearchNeverBetter) {
  Random random(5);
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const RandomCase c = random_case(random);
    const double sequential = exposed_seconds_of("sequential", c.profile, c.link, c.period);
    EXPECT_NEAR(sequential, exposed_seconds_of("brute-force", c.profile, c.link, c.period), 1e-6);
    EXPECT_GE(exposed_seconds_of("dreamddp", c.profile, c.link, c.period), sequential - 1e-6);
  }
}

// Where layers are read out of turn, equal-count cuts them in another order.
TEST(Partitions, SequentialIsNeverSlowerThanEqualCount) {
  Random random(7);
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    RandomCase c = random_case(random);
    c.profile =
        random_profile(random, {.max_layers = 30, .special_reads = false, .any_backward_order = false});
    EXPECT_LE(exposed_seconds_of("sequential", c.profile, c.link, c.period),
              exposed_seconds_of("equal-count", c.profile, c.link, c.period) + 1e-6);
  }
}

TEST(Partitions, TakeTheTimeThatTheSearchCompares) {
  Random random(6);
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const RandomCase c = random_case(random);
    const PartitionProblem problem = make_partition_problem(c.profile, c.link, c.period);
    const SearchResult found = search_partition(problem, {});
    const double searched = exposed_seconds(problem, found.partition);
    EXPECT_NEAR(exposed_seconds_of("dreamddp", c.profile, c.link, c.period), searched, 1e-6);
    const Plan plan = partition_plan("test", c.profile, problem, found.partition);
    validate(plan, c.profile);
    EXPECT_NEAR(simulate(plan, c.profile, c.link).exposed_seconds * static_cast<double>(c.period), searched,
                1e-6);
  }
}

}  // namespace
}  // namespace dreamddp::testing
