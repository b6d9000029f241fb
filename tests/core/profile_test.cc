#include "dreamddp/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/expect_rejected.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

/// Three layers with times that are powers of two, so that every sum tells its parts.
Profile three_layers() {
  return {{{"a", 1, 8, 100, 1.0, {}}, {"b", 2, 16, 100, 1.0, {}}, {"c", 4, 32, 100, 1.0, {}}}, 64, {}};
}

TEST(ProfileSums, ComputeIsEverything) { EXPECT_EQ(compute_seconds(three_layers()), 127); }

TEST(ProfileSums, BackwardsRunInReverseUnlessStated) {
  Profile profile = three_layers();
  EXPECT_EQ(backward_sequence(profile), (std::vector<std::size_t>{2, 1, 0}));
  profile.backward_order = {1, 2, 0};
  EXPECT_EQ(backward_sequence(profile), (std::vector<std::size_t>{1, 2, 0}));
}

TEST(ProfileSums, CoverBeforeFirstReadIsTheForwardInFront) {
  EXPECT_EQ(cover_before_first_read(three_layers()), (std::vector<double>{0, 1, 3}));
}

TEST(ProfileSums, CoverAfterOwnBackwardIsTheBackwardBehind) {
  Profile profile = three_layers();
  EXPECT_EQ(cover_after_last_read(profile), (std::vector<double>{0, 8, 24}));
  profile.backward_order = {1, 2, 0};
  EXPECT_EQ(cover_after_last_read(profile), (std::vector<double>{0, 40, 8}));
}

TEST(ProfileSums, CoverAfterForwardIsAllThatFollowsIt) {
  Profile profile = three_layers();
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  profile.layers[1].last_read = {LastReadKind::forward, 0};
  EXPECT_EQ(cover_after_last_read(profile), (std::vector<double>{2 + 4 + 56, 4 + 56, 24}));
}

TEST(ProfileSums, CoverOfATiedLayerBeginsBehindTheOtherBackward) {
  Profile profile = three_layers();
  profile.layers[0].last_read = {LastReadKind::other_backward, 2};
  EXPECT_EQ(cover_after_last_read(profile), (std::vector<double>{24, 8, 24}));
  profile.layers[0].last_read = {LastReadKind::own_backward, 0};
  profile.layers[2].last_read = {LastReadKind::other_backward, 0};
  EXPECT_EQ(cover_after_last_read(profile), (std::vector<double>{0, 8, 0}));
}

TEST(ProfileValidation, AcceptsZeros) {
  Profile profile = three_layers();
  profile.step_seconds = 0;
  profile.layers[1] = {"b", 0, 0, 0, 0.0, {}};
  EXPECT_NO_THROW(validate(profile));
}

TEST(ProfileValidation, AcceptsExtremeSizes) {
  Profile profile = three_layers();
  profile.layers[0].num_bytes = 12'000'000'000;     // 3e9 elements
  profile.layers[1].num_bytes = 1'000'000'000'000;  // 1e12 bytes
  EXPECT_NO_THROW(validate(profile));
  EXPECT_NO_THROW(validate(Profile{{{"only", 1, 1, 1, 1.0, {}}}, 0, {}, false}));
  Profile deep;
  for (int l = 0; l < 10000; ++l) {
    deep.layers.push_back({"h." + std::to_string(l), 1, 2, 4, 1.0, {}});
  }
  EXPECT_NO_THROW(validate(deep));
  EXPECT_EQ(cover_before_first_read(deep).back(), 9999);
  EXPECT_EQ(cover_after_last_read(deep).back(), 2 * 9999);
}

TEST(ProfileValidation, RejectsTimesThatAreNone) {
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Profile profile = three_layers();
    profile.layers[1].forward_seconds = bad;
    expect_rejected([&] { validate(profile); }, {"layers[1] 'b': forward: got "});
    profile = three_layers();
    profile.layers[1].backward_seconds = bad;
    expect_rejected([&] { validate(profile); }, {"layers[1] 'b': backward: got "});
    profile = three_layers();
    profile.layers[1].transfer_seconds = bad;
    expect_rejected([&] { validate(profile); }, {"layers[1] 'b': transfer: got "});
    profile = three_layers();
    profile.step_seconds = bad;
    expect_rejected([&] { validate(profile); }, {"step: got "});
  }
}

TEST(ProfileValidation, RejectsTimesWhoseSumOverflows) {
  Profile profile = three_layers();
  profile.layers[0].forward_seconds = profile.layers[1].forward_seconds = 1e308;
  expect_rejected([&] { validate(profile); }, {"the sum of all times: got inf"});
}

TEST(ProfileValidation, RejectsNegativeSizes) {
  Profile profile = three_layers();
  profile.layers[2].num_bytes = -1;
  expect_rejected([&] { validate(profile); }, {"layers[2] 'c': num_bytes: got -1"});
}

TEST(ProfileValidation, RejectsNamesThatAreEmptyDoubledOrNoText) {
  Profile profile = three_layers();
  profile.layers[1].name = "";
  expect_rejected([&] { validate(profile); }, {"layers[1]: name: got \"\""});
  profile.layers[1].name = "\xff";
  expect_rejected([&] { validate(profile); }, {"layers[1]: name", "UTF-8"});
  profile.layers[1].name = "a";
  expect_rejected([&] { validate(profile); }, {"layers[1] 'a': name", "layers[0]"});
}

TEST(ProfileValidation, RejectsNoLayers) {
  expect_rejected([] { validate(Profile{}); }, {"layers: got none"});
}

TEST(ProfileValidation, RejectsALastReadOfNoOtherLayer) {
  Profile profile = three_layers();
  profile.layers[1].last_read = {LastReadKind::other_backward, 1};
  expect_rejected([&] { validate(profile); }, {"layers[1] 'b': last_read", "itself"});
  profile.layers[1].last_read = {LastReadKind::other_backward, 3};
  expect_rejected([&] { validate(profile); }, {"layers[1] 'b': last_read", "0 to 2"});
}

TEST(ProfileValidation, RejectsABackwardOrderThatIsNoPermutation) {
  Profile profile = three_layers();
  for (const std::vector<std::size_t>& bad :
       {std::vector<std::size_t>{2, 1}, {2, 1, 0, 0}, {2, 1, 1}, {2, 1, 3}}) {
    profile.backward_order = bad;
    expect_rejected([&] { validate(profile); }, {"backward_order: got "});
  }
}

}  // namespace
}  // namespace dreamddp
