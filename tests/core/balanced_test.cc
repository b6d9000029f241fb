// The balanced planner: small plans worked out by hand, public profiles, and odd input.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/test_data.h"
#include "dreamddp/bound.h"
#include "dreamddp/planner.h"
#include "dreamddp/profile_import.h"
#include "dreamddp/simulator.h"

namespace dreamddp {
namespace {

constexpr LastRead own{};

Plan balanced(const Profile& profile, const Link& link, std::int64_t period) {
  Plan plan = make_plan("balanced", profile, link, {.period = period});
  validate(plan, profile);
  return plan;
}

/// Layers of 1 s forward and 2 s backward with these link times.
Profile profile_of(const std::vector<double>& transfers) {
  Profile profile;
  for (std::size_t l = 0; l < transfers.size(); ++l) {
    profile.layers.push_back({"h." + std::to_string(l), 1, 2, 100, transfers[l], own});
  }
  profile.step_seconds = 1;
  return profile;
}

Link with_latency(double seconds) {
  Link link;
  link.latency_seconds = seconds;
  return link;
}

double seconds_of(const Plan& plan, const Profile& profile, const Link& link = {}) {
  return simulate(plan, profile, link).iteration_seconds;
}

TEST(Balanced, HidesWhatTheWindowsCover) {
  // D = 0, 1; G = 0, 2. h.1 fits whole into its backward window; h.0 has no cover and costs 0.5 s after the
  // step.
  const Profile profile = profile_of({0.5, 2});
  const Plan plan = balanced(profile, {}, 1);
  const std::vector<Op> expected{
      {Quantity::parameters, {{1}}, {0, EventKind::after_backward, 1}, {0, EventKind::before_step, 0}},
      {Quantity::parameters, {{0}}, {0, EventKind::after_step, 0}, {1, EventKind::before_forward, 0}}};
  EXPECT_DOUBLE_EQ(seconds_of(plan, profile), 7.5);
  EXPECT_EQ(plan.ops, expected);
}

TEST(Balanced, SplitsALayerThatNoWindowTakesWhole) {
  // h.2 has D = 2 and G = 4 to hide in, 6 s in all: a third of it in the forward, two in the backward.
  Profile profile = profile_of({0, 0, 6});
  profile.layers[0].num_bytes = 0;
  profile.layers[1].num_bytes = 0;
  const Plan plan = balanced(profile, {}, 1);
  EXPECT_NEAR(seconds_of(plan, profile), 10, 1e-6);
  ASSERT_EQ(plan.ops.size(), 2);
  EXPECT_EQ(plan.ops[0].launch, (Event{0, EventKind::after_backward, 2}));
  EXPECT_EQ(plan.ops[1].deadline, (Event{1, EventKind::before_forward, 2}));
  const auto length = [](const Op& op) { return op.segments[0].end - op.segments[0].begin; };
  EXPECT_NEAR(length(plan.ops[0]), 2.0 / 3, 1e-6);
  EXPECT_NEAR(length(plan.ops[1]), 1.0 / 3, 1e-6);
}

TEST(Balanced, MergesWhatASingleOpHides) {
  // 0.1 s for each of the deepest three, which the 5 layers behind them hide in one op.
  Profile profile = profile_of({0, 0, 0, 0, 0, 0.1, 0.1, 0.1});
  for (std::size_t l = 0; l < 5; ++l) profile.layers[l].num_bytes = 0;
  const Plan plan = balanced(profile, with_latency(0.5), 4);
  ASSERT_EQ(plan.ops.size(), 1);
  EXPECT_EQ(plan.ops[0].segments.size(), 3);
  EXPECT_DOUBLE_EQ(seconds_of(plan, profile, with_latency(0.5)), 8 * 3 + 1);
}

TEST(Balanced, TakesFewerOpsWhereEachCostsALatency) {
  const Profile profile = profile_of(std::vector<double>(40, 5.5));  // 110 of 120 s of an iteration
  const auto num_ops = [&](double latency) { return balanced(profile, with_latency(latency), 2).ops.size(); };
  EXPECT_LT(num_ops(3), num_ops(0.01));
}

TEST(Balanced, AveragesAnEmbeddingDuringTheWholeIteration) {
  // 12 s of wte, whose last read is its forward: everything behind that, 1 + 4 s, hides it in each of 3
  // iterations.
  Profile profile = profile_of({12, 0.25});
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  const Plan plan = balanced(profile, {}, 3);
  EXPECT_NEAR(seconds_of(plan, profile), compute_seconds(profile), 1e-6);
  EXPECT_NEAR(bound_seconds(profile, {12, 0.25}, {.period = 3}), compute_seconds(profile), 1e-6);
}

TEST(Balanced, AveragesATiedTensorOnceAndBehindTheBackwardOfItsHead) {
  Profile profile = profile_of({3.5, 0.25, 0.25, 0});
  profile.layers[3].num_bytes = 0;
  profile.layers[0].last_read = {LastReadKind::other_backward, 3};
  const Plan plan = balanced(profile, {}, 1);
  EXPECT_NEAR(seconds_of(plan, profile), compute_seconds(profile), 1e-6);
  double averaged = 0;
  for (const Op& op : plan.ops) {
    for (const Segment& segment : op.segments)
      averaged += segment.layer == 0 ? segment.end - segment.begin : 0;
  }
  EXPECT_DOUBLE_EQ(averaged, 1);
}

TEST(Balanced, LeavesTheBackwardToATiedTensorThatFitsNowhereElse) {
  // h.0 has no cover but the 2 + 2 + 2 s behind the backward of its head; the forward hides the others.
  Profile profile = profile_of({6, 0.75, 1.75, 0});
  profile.layers[3].num_bytes = 0;
  profile.layers[0].last_read = {LastReadKind::other_backward, 3};
  EXPECT_NEAR(seconds_of(balanced(profile, {}, 1), profile), compute_seconds(profile) + 0.5, 1e-6);
}

Profile public_profile(const std::string& run) {
  const auto text = [&](const char* file) { return testing::read_test_data("profiles/" + run + "/" + file); };
  return import_public_profile(text("backward.json"), text("sync.json"), {.nan_as_zero = true}).profile;
}

struct PublicCase {
  const char* run;
  std::int64_t period;
};

class BalancedOnPublicProfiles : public ::testing::TestWithParam<PublicCase> {};

TEST_P(BalancedOnPublicProfiles, ReachesTheBoundWithoutLatency) {
  const Profile profile = public_profile(GetParam().run);
  const Plan plan = balanced(profile, {}, GetParam().period);
  const Simulation simulation = simulate(plan, profile, {});
  EXPECT_LT(simulation.gap, 0.001);
  EXPECT_LT(simulation.ops_per_iteration, 30);
}

TEST_P(BalancedOnPublicProfiles, StaysNearTheBoundWithLatency) {
  const Profile profile = public_profile(GetParam().run);
  const Link link = with_latency(0.2e-3);
  EXPECT_LT(simulate(balanced(profile, link, GetParam().period), profile, link).gap, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Runs, BalancedOnPublicProfiles,
                         ::testing::Values(PublicCase{"a6000-resnet18", 5}, PublicCase{"a6000-resnet18", 10},
                                           PublicCase{"a6000-resnet18", 20}, PublicCase{"h100-llama", 5},
                                           PublicCase{"h100-llama", 10}, PublicCase{"h100-llama", 20},
                                           PublicCase{"qwen2.5-7b-lora-16w-10gbit", 5},
                                           PublicCase{"qwen2.5-7b-lora-16w-10gbit", 10},
                                           PublicCase{"qwen2.5-7b-lora-16w-10gbit", 20}));

/// A model of the same layers, as a profile file with times in another unit.
std::string profile_file(const std::string& unit, const std::string& exponent) {
  std::string text = R"({"format": "dreamddp-profile/1", "time_unit": ")" + unit + R"(", "step": 1.7)" +
                     exponent + R"(, "layers": [)";
  for (int l = 0; l < 30; ++l) {
    const auto time = [&](int digits) {
      return std::to_string(digits) + "." + std::to_string(l * 7 % 10 + 1) + exponent;
    };
    text += (l > 0 ? ", " : "") + std::string(R"({"name": "h.)") + std::to_string(l) + R"(", "forward": )" +
            time(1) + R"(, "backward": )" + time(2 + l % 3) + R"(, "num_bytes": 4000, "transfer": )" +
            time(9 + l % 5) + "}";
  }
  return text + "]}";
}

TEST(Balanced, IsTheSameWhateverTheUnitOfTheProfile) {
  const Link link = with_latency(2e-4);
  const Plan plan = balanced(parse_profile(profile_file("s", "e-3")), link, 4);
  EXPECT_EQ(plan, balanced(parse_profile(profile_file("ms", "")), link, 4));
  EXPECT_EQ(plan, balanced(parse_profile(profile_file("us", "e3")), link, 4));
}

TEST(BalancedOddInput, OneLayer) {
  for (const std::int64_t period : {1, 2, 7}) {
    const Profile profile = profile_of({5});
    const Plan plan = balanced(profile, with_latency(0.5), period);
    EXPECT_EQ(plan.ops.size(), 1);
    EXPECT_DOUBLE_EQ(seconds_of(plan, profile, with_latency(0.5)), 4 + 5.5 / static_cast<double>(period));
  }
}

TEST(BalancedOddInput, OneWorker) {
  const Profile profile = profile_of({1, 2, 3});
  const Link alone{.bandwidth_bytes_per_second = 1.0, .workers = 1};
  EXPECT_DOUBLE_EQ(seconds_of(balanced(profile, alone, 3), profile, alone), 10);
}

TEST(BalancedOddInput, NoTransferTakesTime) {
  const Profile profile = profile_of({0, 0, 0});
  EXPECT_DOUBLE_EQ(seconds_of(balanced(profile, {}, 2), profile), 10);
}

TEST(BalancedOddInput, NoComputeTakesTime) {
  Profile profile = profile_of({1, 2, 3});
  for (Layer& layer : profile.layers) layer.forward_seconds = layer.backward_seconds = 0;
  profile.step_seconds = 0;
  EXPECT_NEAR(seconds_of(balanced(profile, {}, 2), profile), 3, 1e-6);
}

TEST(BalancedOddInput, NothingTakesTime) {
  Profile profile = profile_of({0, 0});
  for (Layer& layer : profile.layers) layer.forward_seconds = layer.backward_seconds = 0;
  profile.step_seconds = 0;
  EXPECT_EQ(seconds_of(balanced(profile, {}, 3), profile), 0);
}

TEST(BalancedOddInput, MoreIterationsThanLayers) {
  const Profile profile = profile_of({1, 2, 3});
  const Plan plan = balanced(profile, {}, 1000);
  EXPECT_LE(plan.ops.size(), 6);
  EXPECT_NEAR(seconds_of(plan, profile), bound_seconds(profile, {1, 2, 3}, {.period = 1000}), 1e-9);
  balanced(profile, {}, 1'000'000);
}

TEST(BalancedOddInput, EverythingEarly) {
  Profile profile = profile_of({4, 4, 4, 4});
  for (Layer& layer : profile.layers) layer.last_read = {LastReadKind::forward, 0};
  EXPECT_NEAR(seconds_of(balanced(profile, {}, 2), profile), 13, 1e-6);
}

TEST(BalancedOddInput, HugeLayers) {
  Profile profile = profile_of({1, 1, 1});
  profile.layers[0].num_bytes = std::int64_t{4} * 3'000'000'000;
  profile.layers[1].num_bytes = 1'000'000'000'000;
  profile.layers[2].num_bytes = std::numeric_limits<std::int64_t>::max();
  const Link link{.bandwidth_bytes_per_second = 1e9};
  const Simulation simulation = simulate(balanced(profile, link, 4), profile, link);
  EXPECT_LT(simulation.gap, 0.001);
}

TEST(BalancedOddInput, TenThousandLayers) {
  Profile profile;
  for (std::size_t l = 0; l < 10'000; ++l) {
    const auto wave = [&](std::size_t step) { return 1e-4 * static_cast<double>(1 + l * step % 17); };
    profile.layers.push_back({std::to_string(l), wave(3), wave(5), 4096, wave(7), own});
  }
  for (const double latency : {0.0, 1e-3}) {
    const Link link = with_latency(latency);
    EXPECT_LT(simulate(balanced(profile, link, 5), profile, link).gap, 0.01);
  }
}

TEST(BalancedOddInput, LayersWithoutBytesAreNotAveraged) {
  Profile profile = profile_of({1, 7, 1});
  profile.layers[1].num_bytes = 0;
  for (const Op& op : balanced(profile, {}, 2).ops) {
    for (const Segment& segment : op.segments) EXPECT_NE(segment.layer, 1);
  }
}

}  // namespace
}  // namespace dreamddp
