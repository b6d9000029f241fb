// The lower bound of design section 5, worked out by hand.
#include "dreamddp/bound.h"

#include <gtest/gtest.h>

#include "core/small_plans.h"

namespace dreamddp::testing {
namespace {

// C = 3 * (1 + 2) + 1 = 10, without the step 9. D = 0, 1, 2; G = 0, 2, 4.

TEST(Bound, IsComputeWhereTransfersHide) {
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {0, 3, 3}, 1), 10);
  EXPECT_EQ(bound_seconds(profile, {0, 0, 0}, 1), 10);
}

TEST(Bound, NothingFliesInPlaceDuringTheStep) {
  EXPECT_EQ(bound_seconds(uniform_profile(3), {0, 3, 3}, 1, OpMode::held), 10);
  EXPECT_EQ(bound_seconds(uniform_profile(3), {0, 6, 6}, 1, OpMode::held), 10 + (12 - 9));
  EXPECT_EQ(bound_seconds(uniform_profile(3), {0, 6, 6}, 2, OpMode::held), 10);
}

TEST(Bound, PrefixesHaveLittleCover) {
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {4, 0, 0}, 1), 10 + 4);          // D_0 + G_0 = 0
  EXPECT_EQ(bound_seconds(profile, {4, 4, 0}, 1), 10 + (8 - 3));    // D_1 + G_1 = 3
  EXPECT_EQ(bound_seconds(profile, {1, 1, 12}, 1), 10 + (14 - 6));  // D_2 + G_2 = 6
  EXPECT_EQ(bound_seconds(profile, {4, 4, 0}, 4), 10 + 1);          // 1 - 0 > 2 - 3
}

TEST(Bound, HeldAndCarriedPlansHaveMoreCover) {
  const Profile profile = uniform_profile(3);
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, 1, OpMode::held), 10 + 3);
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, 1, OpMode::carried), 12);
  EXPECT_EQ(bound_seconds(profile, {4, 4, 4}, 2, OpMode::carried), 10);
}

TEST(Bound, LayersWithAnEarlyLastReadCountInTheTotalOnly) {
  Profile profile = uniform_profile(3);
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  EXPECT_EQ(bound_seconds(profile, {8, 0, 0}, 1), 10);
  EXPECT_EQ(bound_seconds(profile, {12, 0, 0}, 1), 10 + (12 - 9));
  EXPECT_EQ(bound_seconds(profile, {4, 4, 0}, 1), 10 + (4 - 3));
  profile.layers[0].last_read = {LastReadKind::other_backward, 2};
  EXPECT_EQ(bound_seconds(profile, {8, 0, 0}, 1), 10);
}

TEST(Bound, BackwardInAnyOrder) {
  Profile profile = uniform_profile(3);
  profile.backward_order = {0, 2, 1};  // G = 4, 0, 2
  EXPECT_EQ(bound_seconds(profile, {6, 0, 0}, 1), 10 + (6 - 4));
  EXPECT_EQ(bound_seconds(profile, {0, 6, 0}, 1), 10 + (6 - 1));
  EXPECT_EQ(bound_seconds(profile, {3, 6, 0}, 1), 10 + (9 - 1 - 4));  // the largest G of the prefix
}

TEST(Bound, LayersWithoutParametersNeedNoTransfer) {
  Profile profile = uniform_profile(3);
  profile.layers[0].num_bytes = 0;
  EXPECT_EQ(bound_seconds(profile, {40, 0, 0}, 1), 10);
  profile.layers[0].num_bytes.reset();  // unknown
  EXPECT_EQ(bound_seconds(profile, {40, 0, 0}, 1), 10 + 40);
}

}  // namespace
}  // namespace dreamddp::testing
