// The ops of the planners that the balanced one is compared with, worked out by hand.
#include <gtest/gtest.h>

#include "core/random_plans.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

constexpr Event before_step{0, EventKind::before_step, 0};

Event after_backward(std::size_t layer, std::int64_t iteration = 0) {
  return {iteration, EventKind::after_backward, layer};
}

Op gradients(std::vector<Segment> segments, Event launch) {
  return {Quantity::gradients, std::move(segments), launch, before_step};
}

Op in_backward(std::size_t layer, Event launch) {
  return {Quantity::parameters, {{.layer = layer}}, launch, {launch.iteration, EventKind::before_step, 0}};
}

/// Layers of 1 s forward, 2 s backward and 4 s on the link, of the given sizes.
Profile profile_of(const std::vector<std::optional<std::int64_t>>& sizes) {
  Profile profile;
  for (std::size_t l = 0; l < sizes.size(); ++l) {
    profile.layers.push_back({"h." + std::to_string(l), 1, 2, sizes[l], 4.0, {}});
  }
  return profile;
}

std::vector<Op> ops_of(const char* planner, const Profile& profile, std::int64_t period = 5) {
  const Plan plan = make_plan(planner, profile, {}, {.period = period});
  validate(plan, profile);
  return plan.ops;
}

constexpr std::int64_t mib = 1 << 20;

TEST(Ssgd, SendsAllGradientsInOneOpAfterTheBackward) {
  const Plan plan = make_plan("ssgd", profile_of({8, 8, 8}), {}, {.period = 20});
  EXPECT_EQ(plan.period, 1);
  EXPECT_EQ(plan.ops, (std::vector{gradients({{2}, {1}, {0}}, after_backward(0))}));
}

TEST(Ssgd, WaitsForTheEndOfTheBackwardAlsoWhereThatHasNoParameters) {
  EXPECT_EQ(ops_of("ssgd", profile_of({0, 8, 8})), (std::vector{gradients({{2}, {1}}, after_backward(0))}));
}

TEST(Wfbp, SendsEachGradientInTheOrderOfTheBackward) {
  const std::vector expected{gradients({{3}}, after_backward(3)), gradients({{1}}, after_backward(1)),
                             gradients({{0}}, after_backward(0))};
  EXPECT_EQ(ops_of("wfbp", profile_of({8, 8, 0, 8})), expected);
  EXPECT_EQ(make_plan("wfbp", profile_of({8}), {}, {.period = 9}).period, 1);
}

TEST(Wfbp, FollowsABackwardThatIsNotTheReverseOfTheForward) {
  Profile profile = profile_of({8, 8, 8});
  profile.backward_order = {1, 2, 0};
  const std::vector expected{gradients({{1}}, after_backward(1)), gradients({{2}}, after_backward(2)),
                             gradients({{0}}, after_backward(0))};
  EXPECT_EQ(ops_of("wfbp", profile), expected);
}

TEST(Wfbp, SendsATiedGradientWhenBothBackwardsHaveEnded) {
  // An embedding tied to the output head: its gradient is complete after its own backward.
  Profile profile = profile_of({8, 8, 0});
  profile.layers[0].last_read = {LastReadKind::other_backward, 2};
  EXPECT_EQ(ops_of("wfbp", profile),
            (std::vector{gradients({{1}}, after_backward(1)), gradients({{0}}, after_backward(0))}));
  // The other way round it is complete after that of the other layer.
  Profile reversed = profile_of({0, 8, 8});
  reversed.layers[2].last_read = {LastReadKind::other_backward, 0};
  EXPECT_EQ(ops_of("wfbp", reversed),
            (std::vector{gradients({{1}}, after_backward(1)), gradients({{2}}, after_backward(0))}));
}

TEST(Ddp, ClosesABucketWithTheGradientThatReachesTheCap) {
  // From the output side: 0.5 + 0.5 MiB reach the first cap of 1 MiB; then 24 + 3 MiB pass 25 MiB; 25 MiB
  // alone reach it; the rest is the last bucket.
  const Profile profile = profile_of({mib, 24 * mib, 25 * mib, 3 * mib, 24 * mib, mib / 2, mib / 2});
  const std::vector expected{gradients({{6}, {5}}, after_backward(5)),
                             gradients({{4}, {3}}, after_backward(3)), gradients({{2}}, after_backward(2)),
                             gradients({{1}, {0}}, after_backward(0))};
  EXPECT_EQ(ops_of("ddp", profile), expected);
}

TEST(Ddp, KeepsALargeFirstGradientAndLeavesOutEmptyLayers) {
  const Profile profile = profile_of({8, 0, 8, 400 * mib});
  EXPECT_EQ(ops_of("ddp", profile),
            (std::vector{gradients({{3}}, after_backward(3)), gradients({{2}, {0}}, after_backward(0))}));
}

TEST(Ddp, SendsLayersAloneWhereASizeIsUnknown) {
  const Profile profile = profile_of({8, std::nullopt, 0});
  EXPECT_EQ(ops_of("ddp", profile), ops_of("wfbp", profile));
  EXPECT_EQ(ops_of("ddp", profile).size(), 2);
}

TEST(LocalSgd, SendsAllAfterTheLastStepOfThePeriod) {
  const Op expected{
      Quantity::parameters, {{1}, {2}}, {4, EventKind::after_step, 0}, {5, EventKind::before_forward, 1}};
  EXPECT_EQ(ops_of("local-sgd", profile_of({0, 8, 8})), (std::vector{expected}));
  const Op every{
      Quantity::parameters, {{0}}, {0, EventKind::after_step, 0}, {1, EventKind::before_forward, 0}};
  EXPECT_EQ(ops_of("local-sgd", profile_of({8}), 1), (std::vector{every}));
}

TEST(EqualCount, TakesTheOutputSideFirst) {
  const std::vector expected{in_backward(4, after_backward(4, 0)), in_backward(3, after_backward(3, 0)),
                             in_backward(2, after_backward(2, 0)), in_backward(1, after_backward(1, 1)),
                             in_backward(0, after_backward(0, 1))};
  EXPECT_EQ(ops_of("equal-count", profile_of({8, 8, 8, 8, 8}), 2), expected);
}

TEST(EqualCount, CountsLayersWithParametersOnly) {
  const std::vector expected{in_backward(4, after_backward(4, 0)), in_backward(0, after_backward(0, 1))};
  EXPECT_EQ(ops_of("equal-count", profile_of({8, 0, 0, 0, 8}), 2), expected);
}

TEST(EqualCount, LeavesIterationsEmptyWhereThereAreMoreThanLayers) {
  const std::vector expected{in_backward(1, after_backward(1, 0)), in_backward(0, after_backward(0, 2))};
  EXPECT_EQ(ops_of("equal-count", profile_of({8, 8}), 5), expected);
}

TEST(EqualCount, TakesOneLayerAndOneIteration) {
  EXPECT_EQ(ops_of("equal-count", profile_of({8}), 1), (std::vector{in_backward(0, after_backward(0, 0))}));
}

TEST(EqualCount, LaunchesEarlyAndTiedLayersWhenTheyWereLastRead) {
  Profile profile = profile_of({8, 8, 8, 0});
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  profile.layers[1].last_read = {LastReadKind::other_backward, 3};
  const std::vector expected{in_backward(0, {0, EventKind::after_forward, 0}),
                             in_backward(1, after_backward(3, 0)), in_backward(2, after_backward(2, 0))};
  EXPECT_EQ(ops_of("equal-count", profile, 1), expected);
}

TEST(Baselines, TakeTheTimesThatTheLiteratureGives) {
  const Profile profile = profile_of({8, 8, 8});  // 3 s forward, 6 s backward, 12 s on the link
  const auto seconds = [&](const char* planner, std::int64_t period) {
    return simulate(make_plan(planner, profile, {}, {.period = period}), profile, {}).iteration_seconds;
  };
  EXPECT_DOUBLE_EQ(seconds("ssgd", 4), 3 + 6 + 12);
  EXPECT_DOUBLE_EQ(seconds("local-sgd", 4), 3 + 6 + 12.0 / 4);
  EXPECT_DOUBLE_EQ(seconds("wfbp", 4), 3 + 2 + 12);  // the link works from the first backward on
  // Each iteration averages one layer: 4 s behind 4, 2 and 0 s of backward.
  EXPECT_DOUBLE_EQ(seconds("equal-count", 3), 9 + (0 + 2 + 4) / 3.0);
}

TEST(Baselines, AreValidForAnyProfile) {
  testing::Random random(11);
  for (int i = 0; i < 300; ++i) {
    const Profile profile = testing::random_profile(random, {.max_layers = 12});
    const std::int64_t period = testing::random_integer(random, 1, 15);
    for (const char* planner : {"ssgd", "wfbp", "ddp", "asc-wfbp", "local-sgd", "equal-count"}) {
      validate(make_plan(planner, profile, {}, {.period = period}), profile);
    }
  }
}

TEST(Baselines, HaveNothingToDoForAModelWithoutParameters) {
  for (const Planner& planner : planners()) {
    EXPECT_TRUE(ops_of(planner.name.data(), profile_of({0, 0})).empty()) << planner.name;
  }
}

}  // namespace
}  // namespace dreamddp
