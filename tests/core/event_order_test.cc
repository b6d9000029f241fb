#include <gtest/gtest.h>

#include <vector>

#include "dreamddp/plan.h"

namespace dreamddp {
namespace {

Profile profile_of(std::size_t num_layers) {
  Profile profile;
  for (std::size_t l = 0; l < num_layers; ++l) {
    profile.layers.push_back({std::to_string(l), 1, 1, 1, 1.0, {}});
  }
  return profile;
}

TEST(EventOrder, RunsForwardBackwardStep) {
  Profile profile = profile_of(3);
  profile.backward_order = {1, 2, 0};
  const EventOrder order(profile);
  std::int64_t expected = 2 * 11;
  for (const std::size_t l : {0, 1, 2}) {
    EXPECT_EQ(order.position({2, EventKind::before_forward, l}), expected++);
    EXPECT_EQ(order.position({2, EventKind::after_forward, l}), expected++);
  }
  for (const std::size_t l : {1, 2, 0}) {
    EXPECT_EQ(order.position({2, EventKind::after_backward, l}), expected++);
  }
  EXPECT_EQ(order.position({2, EventKind::before_step, 0}), expected++);
  EXPECT_EQ(order.position({2, EventKind::after_step, 0}), expected++);
  EXPECT_EQ(order.position({3, EventKind::before_forward, 0}), expected);
  EXPECT_EQ(order.num_layers(), 3u);
}

TEST(EventOrder, LastReadFollowsTheProfile) {
  Profile profile = profile_of(3);
  profile.layers[0].last_read = {LastReadKind::other_backward, 2};
  profile.layers[1].last_read = {LastReadKind::forward, 0};
  const EventOrder order(profile);
  EXPECT_EQ(order.last_read(0, 4), (Event{4, EventKind::after_backward, 2}));
  EXPECT_EQ(order.last_read(1, 4), (Event{4, EventKind::after_forward, 1}));
  EXPECT_EQ(order.last_read(2, 4), (Event{4, EventKind::after_backward, 2}));
}

Op op_between(const Event& launch, const Event& deadline, const std::vector<std::size_t>& layers) {
  Op op{Quantity::parameters, {}, launch, deadline};
  for (const std::size_t l : layers) {
    op.segments.push_back({l, 0, 1});
  }
  return op;
}

TEST(NumStepsCrossed, CountsOptimizerSteps) {
  const auto crossed = [](const Event& launch, const Event& deadline) {
    return num_steps_crossed(op_between(launch, deadline, {0}));
  };
  const auto after_backward = EventKind::after_backward;
  const auto after_step = EventKind::after_step;
  const auto before_step = EventKind::before_step;
  const auto before_forward = EventKind::before_forward;
  EXPECT_EQ(crossed({3, after_backward, 0}, {3, before_step, 0}), 0);
  EXPECT_EQ(crossed({3, after_step, 0}, {4, before_forward, 0}), 0);
  EXPECT_EQ(crossed({3, after_step, 0}, {4, before_step, 0}), 0);
  EXPECT_EQ(crossed({3, after_backward, 0}, {4, before_forward, 0}), 1);
  EXPECT_EQ(crossed({3, after_backward, 0}, {4, before_step, 0}), 1);
  EXPECT_EQ(crossed({3, after_step, 0}, {5, before_step, 0}), 1);
  EXPECT_EQ(crossed({3, after_step, 0}, {6, before_forward, 0}), 2);
}

TEST(OpMode, FollowsFromWhatTheWindowSpans) {
  Profile profile = profile_of(3);
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  const EventOrder order(profile);
  const auto mode = [&](const Event& launch, const Event& deadline, const std::vector<std::size_t>& layers) {
    return op_mode(op_between(launch, deadline, layers), order);
  };
  const Event step{1, EventKind::before_step, 0};
  const Event stepped{0, EventKind::after_step, 0};
  // Backward windows: in place from the last read on, held if launched before it.
  EXPECT_EQ(mode({1, EventKind::after_backward, 1}, step, {1, 2}), OpMode::in_place);
  EXPECT_EQ(mode({1, EventKind::after_backward, 2}, step, {1, 2}), OpMode::held);
  EXPECT_EQ(mode({1, EventKind::after_forward, 0}, step, {0}), OpMode::in_place);
  EXPECT_EQ(mode({1, EventKind::after_forward, 0}, step, {0, 1}), OpMode::held);
  EXPECT_EQ(mode({1, EventKind::after_forward, 2}, step, {1}), OpMode::held);
  // Forward windows, also launched only during the forward.
  EXPECT_EQ(mode(stepped, {1, EventKind::before_forward, 1}, {1, 2}), OpMode::in_place);
  EXPECT_EQ(mode({1, EventKind::after_forward, 0}, {1, EventKind::before_forward, 2}, {2}), OpMode::in_place);
  // The whole iteration.
  EXPECT_EQ(mode(stepped, step, {2}), OpMode::held);
  // A step in the window.
  EXPECT_EQ(mode({1, EventKind::after_backward, 0}, {2, EventKind::before_forward, 0}, {0}), OpMode::carried);
  EXPECT_EQ(mode(stepped, {2, EventKind::before_step, 0}, {2}), OpMode::carried);
}

TEST(OpMode, GradientsAreReducedInPlace) {
  const EventOrder order(profile_of(2));
  Op op = op_between({0, EventKind::after_backward, 1}, {0, EventKind::before_step, 0}, {1});
  op.quantity = Quantity::gradients;
  EXPECT_EQ(op_mode(op, order), OpMode::in_place);
}

TEST(BookedBytes, IsTheMostThatHeldAndCarriedOpsNeedAtOnce) {
  Profile profile = profile_of(3);
  profile.layers[0].num_bytes = 1000;
  profile.layers[1].num_bytes = 300;
  profile.layers[2].num_bytes = std::nullopt;
  const Event step0{0, EventKind::before_step, 0};
  const Event stepped0{0, EventKind::after_step, 0};
  const Event step1{1, EventKind::before_step, 0};
  const Event stepped1{1, EventKind::after_step, 0};
  const auto booked = [&](std::vector<Op> ops, std::int64_t period) {
    return booked_bytes({"", period, {"0", "1", "2"}, std::move(ops)}, profile);
  };
  EXPECT_EQ(booked({op_between({0, EventKind::after_backward, 0}, step0, {0, 1, 2})}, 1), 0);  // in place
  EXPECT_EQ(booked({op_between(stepped0, step1, {0, 1, 2})}, 2), 1300);                        // held
  // One after the other: only one at a time. The second one runs across the end of the period.
  EXPECT_EQ(
      booked({op_between(stepped0, step1, {0}), op_between(stepped1, {2, EventKind::before_step, 0}, {1})},
             2),
      1000);
  // The held one is launched while the other, launched in the period before, is still there.
  EXPECT_EQ(booked({op_between({0, EventKind::after_forward, 0}, step0, {0}),
                    op_between(stepped1, {2, EventKind::before_step, 0}, {1})},
                   2),
            1300);
  EXPECT_EQ(booked({op_between(stepped0, {2, EventKind::before_step, 0}, {1})}, 2), 600);  // snapshot, result
  EXPECT_EQ(booked({op_between(stepped0, {2, EventKind::before_step, 0}, {1})}, 1), 1200);  // twice at once
  Op third = op_between(stepped0, step1, {0});
  third.segments = {{0, 0.0995, 0.2001}};  // bytes 99 to 200, as both ends are rounded down
  EXPECT_EQ(booked({third}, 2), 101);
}

}  // namespace
}  // namespace dreamddp
