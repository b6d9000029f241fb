#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/expect_rejected.h"
#include "dreamddp/plan.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

Profile three_layers() {
  return {{{"a", 1, 1, 10, 1.0, {}}, {"b", 1, 1, 10, 1.0, {}}, {"c", 1, 1, 10, 1.0, {}}}, 1, {}};
}

Event after_forward(std::int64_t iteration, std::size_t layer) {
  return {iteration, EventKind::after_forward, layer};
}
Event after_backward(std::int64_t iteration, std::size_t layer) {
  return {iteration, EventKind::after_backward, layer};
}
Event after_step(std::int64_t iteration) { return {iteration, EventKind::after_step, 0}; }
Event before_forward(std::int64_t iteration, std::size_t layer) {
  return {iteration, EventKind::before_forward, layer};
}
Event before_step(std::int64_t iteration) { return {iteration, EventKind::before_step, 0}; }

Op averaging(std::vector<Segment> segments, const Event& launch, const Event& deadline) {
  return {Quantity::parameters, std::move(segments), launch, deadline};
}

Op gradients(std::vector<Segment> segments, const Event& launch, const Event& deadline) {
  return {Quantity::gradients, std::move(segments), launch, deadline};
}

Plan plan_of(std::int64_t period, std::vector<Op> ops) {
  return {"test", period, {"a", "b", "c"}, std::move(ops)};
}

/// All layers in the backward window of iteration 0.
Plan valid_plan() {
  return plan_of(2, {averaging({{2}, {1}}, after_backward(0, 1), before_step(0)),
                     averaging({{0}}, after_backward(0, 0), before_step(0))});
}

void expect_invalid(const Plan& plan, std::initializer_list<std::string> parts,
                    const Profile& profile = three_layers()) {
  expect_rejected([&] { validate(plan, profile); }, parts);
}

TEST(PlanValidation, AcceptsMoreIterationsThanLayersAndOneLayer) {
  const Profile profile{{{"a", 1, 1, 10, 1.0, {}}}, 0, {}};
  Plan plan{"test", 100, {"a"}, {averaging({{0}}, after_step(99), before_forward(100, 0))}};
  EXPECT_NO_THROW(validate(plan, profile));
}

TEST(PlanValidation, RejectsAnInvalidProfile) {
  Profile profile = three_layers();
  profile.backward_order = {7, 8, 9};
  expect_invalid(valid_plan(), {"backward_order"}, profile);
}

TEST(PlanValidation, RejectsLayersOtherThanTheProfiles) {
  Plan plan = valid_plan();
  plan.layers[1] = "x";
  expect_invalid(plan, {"layers[1]: got 'x'; expected 'b'"});
  plan = valid_plan();
  plan.layers.push_back("d");
  expect_invalid(plan, {"layers: got 4 layers, with 'd'; expected the 3 layers"});
  plan = plan_of(1, {averaging({{0}, {1}}, after_backward(0, 0), before_step(0))});
  plan.layers.pop_back();
  expect_invalid(plan, {"layers: got 2 layers, without 'c'; expected the 3 layers"});
}

TEST(PlanValidation, RejectsPeriodsOutOfRange) {
  for (const std::int64_t period :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1'000'001}, INT64_MAX, INT64_MIN}) {
    Plan plan = valid_plan();
    plan.period = period;
    expect_invalid(plan, {"period: got " + std::to_string(period)});
  }
}

TEST(PlanValidation, RejectsFractionsThatAreNoSlice) {
  const double nan = std::nan("");
  for (const auto& [begin, end] : {std::pair{0.5, 0.5},
                                   {0.6, 0.5},
                                   {-0.1, 1.0},
                                   {0.0, 1.1},
                                   {nan, 1.0},
                                   {0.0, nan},
                                   {0.0, std::numeric_limits<double>::infinity()}}) {
    Plan plan = valid_plan();
    plan.ops[1].segments[0] = {0, begin, end};
    expect_invalid(plan, {"ops[1] (a", "segments: got begin ", "0 <= begin < end <= 1"});
  }
}

TEST(PlanValidation, RejectsOpsWithoutSegmentsOrOfUnknownLayers) {
  Plan plan = valid_plan();
  plan.ops[1].segments.clear();
  expect_invalid(plan, {"ops[1] (): segments: got none"});
  plan.ops[1].segments = {{3}};
  expect_invalid(plan, {"ops[1] (layer 3): segments: got layer 3; expected a layer from 0 to 2"});
  plan = valid_plan();
  plan.ops[1].launch.layer = 3;
  expect_invalid(plan, {"ops[1] (a): launch: got after backward 'layer 3'", "0 to 2"});
  plan = valid_plan();
  plan.ops[1].deadline = before_forward(1, 3);
  expect_invalid(plan, {"ops[1] (a): deadline: got before forward 'layer 3'", "0 to 2"});
}

TEST(PlanValidation, RejectsLaunchesBeforeAndDeadlinesAfterSomething) {
  for (const Event& event : {before_forward(0, 0), before_step(0)}) {
    Plan plan = valid_plan();
    plan.ops[1].launch = event;
    expect_invalid(plan, {"ops[1] (a): launch: got before ", "after forward, after backward or after step"});
  }
  for (const Event& event : {after_forward(1, 0), after_backward(1, 0), after_step(0)}) {
    Plan plan = valid_plan();
    plan.ops[1].deadline = event;
    expect_invalid(plan, {"ops[1] (a): deadline: got after ", "before forward or before step"});
  }
}

TEST(PlanValidation, RejectsIterationsOutOfRange) {
  for (const std::int64_t iteration : {std::int64_t{-1}, std::int64_t{2}, INT64_MAX, INT64_MIN}) {
    Plan plan = valid_plan();
    plan.ops[1].launch.iteration = iteration;
    expect_invalid(plan, {"ops[1] (a): launch: iteration: got " + std::to_string(iteration), "0 to 1"});
  }
  for (const std::int64_t iteration : {std::int64_t{-1}, std::int64_t{3}, INT64_MAX, INT64_MIN}) {
    Plan plan = valid_plan();
    plan.ops[1].deadline.iteration = iteration;
    expect_invalid(plan, {"ops[1] (a): deadline: iteration: got " + std::to_string(iteration), "0 to 2"});
  }
}

TEST(PlanValidation, LetsAnOpCrossAtMostAPeriodOfSteps) {
  const auto carrying_all = [](const Event& launch, const Event& deadline) {
    return plan_of(2, {averaging({{0}, {1}, {2}}, launch, deadline)});
  };
  EXPECT_NO_THROW(validate(carrying_all(after_step(1), before_step(4)), three_layers()));
  expect_invalid(carrying_all(after_step(1), before_step(5)),
                 {"deadline: iteration: got 5; expected 1 to 4"});
  EXPECT_NO_THROW(validate(carrying_all(after_backward(1, 0), before_forward(3, 0)), three_layers()));
  expect_invalid(carrying_all(after_backward(1, 0), before_forward(4, 0)), {"expected 1 to 3"});
}

TEST(PlanValidation, RejectsADeadlineThatDoesNotFollowItsLaunch) {
  expect_invalid(
      plan_of(1, {averaging({{0}, {1}, {2}}, after_step(0), before_step(0))}),
      {"ops[0] (a, b, c): deadline: got before step of iteration 0", "after the launch, after step"});
  expect_invalid(plan_of(1, {averaging({{0}}, after_backward(0, 0), before_forward(0, 0))}),
                 {"ops[0] (a): deadline: got before forward 'a' of iteration 0"});
}

TEST(PlanValidation, RejectsOpsOutOfLaunchOrder) {
  Plan plan = valid_plan();
  std::swap(plan.ops[0], plan.ops[1]);
  expect_invalid(plan, {"ops[1] (c, b): launch: got after backward 'b' of iteration 0", "ops[0] (a)",
                        "in the order of their launches"});
  plan = valid_plan();
  plan.ops[0].launch.iteration = plan.ops[0].deadline.iteration = 1;
  expect_invalid(plan, {"ops[1] (a): launch"});
}

TEST(PlanValidation, FollowsTheProfilesBackwardOrder) {
  Profile profile = three_layers();
  profile.backward_order = {0, 2, 1};
  expect_invalid(valid_plan(), {"ops[1] (a): launch"}, profile);
}

TEST(PlanValidation, RejectsADeadlineAfterALayerIsRead) {
  // Forward window: a is read before b.
  expect_invalid(plan_of(1, {averaging({{2}, {1}, {0}}, after_step(0), before_forward(1, 1))}),
                 {"ops[0] (c, b, a): deadline: got before forward 'b' of iteration 1",
                  "before forward 'a' of iteration 1 at the latest", "carry 'a' in an op of its own"});
  // Between two reads of a held and of a carried layer.
  expect_invalid(plan_of(1, {averaging({{0}, {1}, {2}}, after_step(0), before_forward(1, 2))}),
                 {"'a' is read"});
  expect_invalid(plan_of(2, {averaging({{0}, {1}, {2}}, after_step(0), before_forward(2, 2))}),
                 {"'a' is read"});
}

TEST(PlanValidation, AcceptsADeadlineAtTheFirstReadOfTheOp) {
  EXPECT_NO_THROW(validate(plan_of(1, {averaging({{2}, {1}, {0}}, after_step(0), before_forward(1, 0))}),
                           three_layers()));
  EXPECT_NO_THROW(validate(plan_of(1, {averaging({{0}, {1}}, after_step(0), before_forward(1, 0)),
                                       averaging({{2}}, after_step(0), before_forward(1, 2))}),
                           three_layers()));
}

TEST(PlanValidation, AcceptsGradientsFromTheLastBackwardOn) {
  EXPECT_NO_THROW(validate(plan_of(1, {gradients({{2}}, after_backward(0, 2), before_step(0)),
                                       gradients({{1}}, after_backward(0, 1), before_step(0)),
                                       gradients({{0}}, after_backward(0, 0), before_step(0))}),
                           three_layers()));
  EXPECT_NO_THROW(validate(plan_of(1, {gradients({{0}, {1}, {2}}, after_backward(0, 0), before_step(0))}),
                           three_layers()));
}

TEST(PlanValidation, RejectsGradientsOutsideOfLastBackwardToStep) {
  expect_invalid(
      plan_of(1, {gradients({{2}, {0}}, after_backward(0, 2), before_step(0))}),
      {"ops[0] (c, a): launch: got after backward 'c'", "after backward 'a' of iteration 0 or later"});
  expect_invalid(plan_of(1, {gradients({{0}, {1}, {2}}, after_forward(0, 2), before_step(0))}),
                 {"ops[0] (a, b, c): launch: got after forward 'c'"});
  expect_invalid(plan_of(1, {gradients({{0}, {1}, {2}}, after_backward(0, 0), before_step(1))}),
                 {"deadline: got before step of iteration 1; expected before step of iteration 0"});
  expect_invalid(plan_of(1, {gradients({{0}, {1}, {2}}, after_step(0), before_forward(1, 0))}),
                 {"deadline: got before forward 'a' of iteration 1; expected before step of iteration 0"});
}

TEST(PlanValidation, AGradientIsCompleteAtTheLastOfItsBackwards) {
  // The last read of a tied embedding comes early in the backward, its own gradient at the end.
  Profile profile = three_layers();
  profile.layers[0].last_read = {LastReadKind::other_backward, 2};
  profile.layers[2].num_bytes = 0;
  expect_invalid(plan_of(1, {gradients({{0}}, after_backward(0, 2), before_step(0)),
                             gradients({{1}}, after_backward(0, 1), before_step(0))}),
                 {"ops[0] (a): launch", "after backward 'a'"}, profile);
  EXPECT_NO_THROW(validate(plan_of(1, {averaging({{0}}, after_backward(0, 2), before_step(0)),
                                       averaging({{1}}, after_backward(0, 1), before_step(0))}),
                           profile));
  profile.layers[0].last_read = {};
  profile.layers[2].num_bytes = 10;
  profile.layers[2].last_read = {LastReadKind::other_backward, 1};
  expect_invalid(plan_of(1, {gradients({{2}}, after_backward(0, 2), before_step(0)),
                             gradients({{0}, {1}}, after_backward(0, 0), before_step(0))}),
                 {"ops[0] (c): launch", "after backward 'b'"}, profile);
}

TEST(PlanValidation, TakesTenThousandLayers) {
  Profile profile;
  for (int l = 0; l < 10000; ++l) {
    profile.layers.push_back({"h." + std::to_string(l), 1, 1, 4, 1.0, {}});
  }
  Plan plan{"test", 4, {}, {}};
  for (const Layer& layer : profile.layers) {
    plan.layers.push_back(layer.name);
  }
  for (int part = 0; part < 4; ++part) {
    for (std::size_t l = 10000; l-- > 0;) {
      plan.ops.push_back(
          averaging({{l, part / 4.0, (part + 1) / 4.0}}, after_backward(part, l), before_step(part)));
    }
  }
  EXPECT_NO_THROW(validate(plan, profile));
  plan.ops.pop_back();
  expect_invalid(plan, {"no average of h.0[0.75:1];"}, profile);
}

}  // namespace
}  // namespace dreamddp
