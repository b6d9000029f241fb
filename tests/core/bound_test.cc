// The lower bound of design section 5, worked out by hand.
#include "dreamddp/bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/expect_rejected.h"
#include "core/small_plans.h"

namespace dreamddp::testing {
namespace {

// C = 3 * (1 + 2) + 1 = 10, without the step 9. D = 0, 1, 2; G = 0, 2, 4.

TEST(Bound, IsComputeWhereTransfersHide) {
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {0, 3, 3}, {.period = 1}), 10);
  EXPECT_EQ(bound_seconds(profile, {0, 0, 0}, {.period = 1}), 10);
}

TEST(Bound, NothingFliesInPlaceDuringTheStep) {
  EXPECT_EQ(bound_seconds(uniform_profile(3), {0, 3, 3}, {.period = 1, .mode = OpMode::held}), 10);
  EXPECT_EQ(bound_seconds(uniform_profile(3), {0, 6, 6}, {.period = 1, .mode = OpMode::held}), 10 + (12 - 9));
  EXPECT_EQ(bound_seconds(uniform_profile(3), {0, 6, 6}, {.period = 2, .mode = OpMode::held}), 10);
}

TEST(Bound, PrefixesHaveLittleCover) {
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {4, 0, 0}, {.period = 1}), 10 + 4);          // D_0 + G_0 = 0
  EXPECT_EQ(bound_seconds(profile, {4, 4, 0}, {.period = 1}), 10 + (8 - 3));    // D_1 + G_1 = 3
  EXPECT_EQ(bound_seconds(profile, {1, 1, 12}, {.period = 1}), 10 + (14 - 6));  // D_2 + G_2 = 6
  EXPECT_EQ(bound_seconds(profile, {4, 4, 0}, {.period = 4}), 10 + 1);          // 1 - 0 > 2 - 3
}

TEST(Bound, HeldAndCarriedPlansHaveMoreCover) {
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, {.period = 1, .mode = OpMode::held}), 10 + 3);
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, {.period = 1, .mode = OpMode::carried}), 12);
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, {.period = 2, .mode = OpMode::carried}), 10);
}

TEST(Bound, LayersWithAnEarlyLastReadCountInTheTotalOnly) {
  Profile profile = uniform_profile(3);
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  EXPECT_EQ(bound_seconds(profile, {8, 0, 0}, {.period = 1}), 10);
  EXPECT_EQ(bound_seconds(profile, {12, 0, 0}, {.period = 1}), 10 + (12 - 9));
  EXPECT_EQ(bound_seconds(profile, {4, 4, 0}, {.period = 1}), 10 + (4 - 3));
  profile.layers[0].last_read = {LastReadKind::other_backward, 2};
  EXPECT_EQ(bound_seconds(profile, {8, 0, 0}, {.period = 1}), 10);
}

TEST(Bound, BackwardInAnyOrder) {
  Profile profile = uniform_profile(3);
  profile.backward_order = {0, 2, 1};  // G = 4, 0, 2
  EXPECT_EQ(bound_seconds(profile, {6, 0, 0}, {.period = 1}), 10 + (6 - 4));
  EXPECT_EQ(bound_seconds(profile, {0, 6, 0}, {.period = 1}), 10 + (6 - 1));
  EXPECT_EQ(bound_seconds(profile, {3, 6, 0}, {.period = 1}),
            10 + (9 - 1 - 4));  // the largest G of the prefix
}

TEST(Bound, CountsALatencyOnceInEveryIteration) {
  // f = 1, b = 2, s = 1: nine seconds of cover between two steps, 11 s of transfers.
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {0, 0, 22}, {.period = 2, .mode = OpMode::held, .latency_seconds = 1}),
            10 + 3);
  // Ten seconds of latency fit into no iteration: they are paid in one of the two, with all transfers.
  EXPECT_EQ(bound_seconds(profile, {0, 0, 8}, {.period = 2, .mode = OpMode::held, .latency_seconds = 10}),
            10 + (8 + 10 - 9) / 2.0);
  EXPECT_EQ(bound_seconds(profile, {0, 0, 0}, {.period = 2, .mode = OpMode::held, .latency_seconds = 10}),
            10);
}

TEST(Bound, CountsALatencyInEveryWindowThatAPrefixUses) {
  // D_1 = 1 and G_1 = 2: with both windows 3 - 2a are covered, with the wider one alone 2 - a.
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {0, 4, 0}, {.period = 1, .latency_seconds = 0.25}), 10 + (4 - 2.5));
  EXPECT_EQ(bound_seconds(profile, {0, 4, 0}, {.period = 1, .latency_seconds = 1.5}), 10 + (4 - 0.5));
  EXPECT_EQ(bound_seconds(profile, {0, 4, 0}, {.period = 4, .latency_seconds = 3}), 10 + (4 + 1) / 4.0);
}

TEST(Bound, OneOpCannotFillTheWindowsOfTwoPrefixes) {
  // D = 1, 2 and G = 2, 4 for the last two layers, 3 s each, and half a second of latency. Either prefix
  // alone is 1 s over what its two windows cover: 3 - (0.5 + 1.5), 6 - (1.5 + 3.5). Weighted equally, ops of
  // both windows do at most 0.75 + 2.25 for them: 0.5 and 1 in the forward, 1.5 and 3 in the backward. So
  // (3 + 6) / 2 - 3 are exposed.
  const Profile profile = uniform_profile(3);
  const BoundOptions one_in_flight{.period = 1, .latency_seconds = 0.5};
  EXPECT_LE(bound_seconds(profile, {0, 3, 3}, one_in_flight), 10 + 1.5 + 1e-9);
  EXPECT_GT(bound_seconds(profile, {0, 3, 3}, one_in_flight), 10 + 1.5 - 0.01);
  BoundOptions two_in_flight = one_in_flight;
  two_in_flight.in_flight = 2;
  EXPECT_EQ(bound_seconds(profile, {0, 3, 3}, two_in_flight), 10 + 1);
}

TEST(Bound, CarriedTransfersAndLatenciesShareTheOpsInFlight) {
  const Profile profile = uniform_profile(3);
  BoundOptions options{.period = 1, .mode = OpMode::carried, .latency_seconds = 20, .in_flight = 2};
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, options), 16);
  options.in_flight = 4;
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, options), 12);
}

TEST(Bound, RejectsArgumentsOutOfRange) {
  const Profile profile = uniform_profile(3);
  const std::vector<double> transfers{1, 1, 1};
  expect_rejected([&] { bound_seconds(profile, {1, 1}, {}); }, {"transfer_seconds: got 2 entries", "3"});
  expect_rejected([&] { bound_seconds(profile, {1, 1, 1, 1}, {}); }, {"transfer_seconds: got 4 entries"});
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    expect_rejected([&] { bound_seconds(profile, {1, bad, 1}, {}); }, {"layers[1]", "transfer_seconds"});
    expect_rejected([&] { bound_seconds(profile, transfers, {.latency_seconds = bad}); },
                    {"latency_seconds"});
  }
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-2}, longest_period + 1})
    expect_rejected([&] { bound_seconds(profile, transfers, {.period = bad}); },
                    {"period: got " + std::to_string(bad), "1 to 1000000"});
  expect_rejected([&] { bound_seconds(profile, transfers, {.in_flight = 0}); }, {"in_flight: got 0"});
}

TEST(Bound, LayersWithoutParametersNeedNoTransfer) {
  Profile profile = uniform_profile(3);
  profile.layers[0].num_bytes = 0;
  EXPECT_EQ(bound_seconds(profile, {40, 0, 0}, {.period = 1}), 10);
  profile.layers[0].num_bytes.reset();  // unknown
  EXPECT_EQ(bound_seconds(profile, {40, 0, 0}, {.period = 1}), 10 + 40);
}

}  // namespace
}  // namespace dreamddp::testing
