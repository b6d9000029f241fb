// Plans of trainings that step each layer inside the backward: what they may hold, what the scheduler does
// with them, how long they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/expect_rejected.h"
#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/bound.h"
#include "dreamddp/bubbles.h"
#include "dreamddp/planner.h"
#include "dreamddp/simulator.h"
#include "dreamddp/sync_scheduler.h"

namespace dreamddp::testing {
namespace {

Plan fused(const Profile& profile, std::int64_t period, std::vector<Op> ops) {
  Plan plan{"test", period, {}, std::move(ops), Update::fused};
  for (const Layer& layer : profile.layers) plan.layers.push_back(layer.name);
  return plan;
}

/// Period 1: each layer from its own backward to its next forward.
Plan widest_windows(const Profile& profile) {
  std::vector<Op> ops;
  for (std::size_t l = profile.layers.size(); l-- > 0;)
    ops.push_back(parameters({{l}}, after_backward(0, l), before_forward(1, l)));
  return fused(profile, 1, std::move(ops));
}

/// Layer 0 is tied to layer 2: both read it, and its gradient needs both backwards.
Profile tied_profile() {
  Profile profile = uniform_profile(3);
  profile.layers[0].last_read = {LastReadKind::other_backward, 2};
  profile.layers[2].num_bytes = 0;
  return profile;
}

TEST(FusedUpdate, ComesWhenTheGradientIsComplete) {
  Profile profile = tied_profile();
  profile.layers[1].last_read = {LastReadKind::forward, 0};
  const EventOrder order(profile, Update::fused);
  EXPECT_EQ(order.last_read(0, 3), after_backward(3, 0));
  EXPECT_EQ(order.last_read(1, 3), after_backward(3, 1));
  EXPECT_EQ(order.last_read(2, 3), after_backward(3, 2));
  profile.backward_order = {0, 1, 2};  // the gradient of layer 0 is complete behind the backward of layer 2
  EXPECT_EQ(EventOrder(profile, Update::fused).last_read(0, 3), after_backward(3, 2));
}

// Validation

TEST(FusedPlan, MayCrossTheStepBehindTheBackward) {
  const Profile profile = uniform_profile(2);
  EXPECT_NO_THROW(validate(widest_windows(profile), profile));
  EXPECT_EQ(booked_bytes(widest_windows(profile), profile), 0);
  // Until the step, from the step on, and within the forward.
  EXPECT_NO_THROW(
      validate(fused(profile, 2,
                     {parameters({{1, 0, 0.5}}, after_forward(0, 0), before_forward(0, 1)),
                      parameters({{1, 0.5, 1}, {0, 0, 0.5}}, after_backward(0, 0), before_step(0)),
                      parameters({{0, 0.5, 1}}, after_step(1), before_forward(2, 0))}),
               profile));
}

TEST(FusedPlan, AveragesNoGradients) {
  const Profile profile = uniform_profile(1);
  expect_rejected(
      [&] { validate(fused(profile, 1, {gradients({{0}}, after_backward(0, 0), before_step(0))}), profile); },
      {"ops[0] (0): quantity: got gradients", "the updates of the plan are fused", "leave out \"update\""});
}

TEST(FusedPlan, LaunchesNothingInFrontOfItsUpdate) {
  const Profile profile = uniform_profile(2);
  const auto reject_op = [&](const Op& op, const std::string& part) {
    expect_rejected([&] { validate(fused(profile, 3, {op}), profile); }, {"ops[0] (0): launch", part});
  };
  // Layer 0 is stepped after its own backward, behind that of layer 1.
  reject_op(
      parameters({{0}}, after_backward(1, 1), before_step(1)),
      "got after backward '1' of iteration 1; expected after backward '0' of iteration 1 or later, as the "
      "deadline is before step of iteration 1");
  reject_op(parameters({{0}}, after_backward(1, 1), before_forward(2, 0)),
            "expected after backward '0' of iteration 1");
  // Held over the reads of an iteration, carried over an update.
  reject_op(parameters({{0}}, after_step(0), before_step(1)), "expected after backward '0' of iteration 1");
  reject_op(parameters({{0}}, after_step(0), before_forward(2, 0)),
            "expected after backward '0' of iteration 1");
}

TEST(FusedPlan, HasNoEarlyWindows) {
  Profile profile = uniform_profile(2);
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  const Op early = parameters({{0}}, after_forward(0, 0), before_step(0));
  const Op other = parameters({{1}}, after_backward(0, 1), before_step(0));
  EXPECT_NO_THROW(validate(valid_plan(profile, 1, {early, other}), profile));
  expect_rejected(
      [&] {
        validate(fused(profile, 1, {early, other}), profile);
      },
      {"ops[0] (0): launch", "expected after backward '0' of iteration 0"});
  Profile tied = tied_profile();
  const Op behind_head = parameters({{0}}, after_backward(0, 2), before_step(0));
  expect_rejected([&] { validate(fused(tied, 1, {behind_head}), tied); },
                  {"ops[0] (0): launch", "expected after backward '0' of iteration 0"});
}

TEST(FusedPlan, IsReadFromItsFile) {
  const Plan plan = widest_windows(uniform_profile(2));
  const std::string json = to_json(plan);
  EXPECT_NE(json.find("\"update\": \"fused\""), std::string::npos);
  EXPECT_EQ(parse_plan(json), plan);
  Plan without = plan;
  without.update = Update::step;
  EXPECT_NE(plan, without);
  EXPECT_EQ(to_json(without).find("update"), std::string::npos);
  EXPECT_EQ(parse_plan(to_json(without)), without);
  std::string other = json;
  other.replace(other.find("\"fused\""), 7, "\"later\"");
  expect_rejected([&] { parse_plan(other); }, {"update: got \"later\"", "\"step\" or \"fused\""});
}

// The scheduler

std::string text(const SyncScheduler::Actions& actions) {
  std::string all;
  for (const Action& action : actions) {
    all += all.empty() ? "" : ", ";
    all += action.kind == ActionKind::launch ? "launch " : "wait ";
    all += std::to_string(action.run.op) + "@" + std::to_string(action.run.iteration);
  }
  return all;
}

SyncScheduler scheduler_of(const Plan& plan, const Profile& profile) {
  validate(plan, profile);
  return {std::make_shared<const Plan>(plan), profile};
}

TEST(FusedScheduler, CrossesTheStepThatEndsAnIteration) {
  const Profile profile = uniform_profile(2);
  SyncScheduler scheduler = scheduler_of(widest_windows(profile), profile);
  EXPECT_EQ(text(scheduler.forward_begins(0)), "");
  EXPECT_EQ(text(scheduler.forward_begins(1)), "");
  EXPECT_EQ(text(scheduler.backward_ends(1)), "launch 0@0");
  EXPECT_EQ(text(scheduler.backward_ends(0)), "launch 1@0");
  EXPECT_EQ(text(scheduler.backward_finishes()), "");
  EXPECT_EQ(text(scheduler.step_begins()), "");
  EXPECT_EQ(text(scheduler.step_ends()), "");
  EXPECT_EQ(text(scheduler.forward_begins(0)), "wait 1@0");
  EXPECT_EQ(text(scheduler.forward_begins(1)), "wait 0@0");
}

TEST(FusedScheduler, MakesALoneStepWait) {
  const Profile profile = uniform_profile(2);
  SyncScheduler scheduler = scheduler_of(widest_windows(profile), profile);
  scheduler.backward_ends(1);
  scheduler.backward_ends(0);
  scheduler.backward_finishes();
  scheduler.step_begins();
  scheduler.step_ends();
  EXPECT_EQ(text(scheduler.step_begins()), "wait 0@0, wait 1@0");
}

TEST(FusedScheduler, LaunchesWhatNeverCameBehindTheBackward) {
  const Profile profile = uniform_profile(2);
  SyncScheduler scheduler = scheduler_of(widest_windows(profile), profile);
  EXPECT_EQ(text(scheduler.backward_ends(0)), "");  // in plan order
  EXPECT_EQ(text(scheduler.backward_finishes()), "launch 0@0, launch 1@0");
  scheduler.step_begins();
  scheduler.step_ends();
  EXPECT_EQ(text(scheduler.forward_begins(0)), "wait 1@0");
  // Layer 1 does not come in this iteration: its update, and else the step, are the deadline.
  SyncScheduler other = scheduler;
  EXPECT_EQ(text(other.read_begins(1)), "wait 0@0");
  EXPECT_EQ(text(scheduler.backward_finishes()), "wait 0@0, launch 0@1, launch 1@1");
}

TEST(FusedScheduler, TiedLayersAreAveragedBehindTheirUpdate) {
  const Profile profile = tied_profile();
  SyncScheduler scheduler =
      scheduler_of(fused(profile, 1,
                         {parameters({{1}}, after_backward(0, 1), before_forward(1, 1)),
                          parameters({{0}}, after_backward(0, 0), before_forward(1, 0))}),
                   profile);
  EXPECT_EQ(text(scheduler.backward_ends(2)), "");  // the last read, but not yet the update
  EXPECT_EQ(text(scheduler.backward_ends(1)), "launch 0@0");
  EXPECT_EQ(text(scheduler.backward_ends(0)), "launch 1@0");
}

// The time model. F0 0..1, F1 1..2, B1 2..4, B0 4..6, step 6..7.

Profile two_layers(double transfer0, double transfer1) {
  Profile profile = uniform_profile(2);
  profile.layers[0].transfer_seconds = transfer0;
  profile.layers[1].transfer_seconds = transfer1;
  return profile;
}

TEST(FusedTime, TransfersHideBehindTheStepAndTheNextForward) {
  const Profile profile = two_layers(1, 3);
  // Layer 1 takes the link 4..7, layer 0 7..8; forward 0 would begin at 7.
  const Simulation simulation = simulate(widest_windows(profile), profile, measured_link(0));
  EXPECT_EQ(simulation.compute_seconds, 7);
  EXPECT_EQ(simulation.exposed_seconds, 1);
  EXPECT_EQ(simulation.bound_seconds, 7);
  EXPECT_EQ(simulation.gap, 8.0 / 7 - 1);
  // The last third of layer 1 goes behind layer 0: 4..6, 6..7, 7..8, and forward 1 begins at 8.
  const Plan better = fused(profile, 1,
                            {parameters({{1, 0, 2.0 / 3}}, after_backward(0, 1), before_forward(1, 1)),
                             parameters({{0}}, after_backward(0, 0), before_forward(1, 0)),
                             parameters({{1, 2.0 / 3, 1}}, after_backward(0, 0), before_forward(1, 1))});
  EXPECT_NEAR(simulate(better, profile, measured_link(0)).iteration_seconds, 7, 1e-12);
}

TEST(FusedTime, DelaysCarryOverToTheNextIteration) {
  // Layer 1 takes the link 4..11, layer 0 11..11.5. Forward 0 waits from 7 to 11.5.
  Profile profile = two_layers(0.5, 7);
  EXPECT_EQ(simulate(widest_windows(profile), profile, measured_link(0)).iteration_seconds, 11.5);
  // Every second iteration only, layer 0 in the other: layer 1 4..11, so forward 1 waits from 8 to 11.
  const Plan plan = fused(profile, 2,
                          {parameters({{1}}, after_backward(0, 1), before_forward(1, 1)),
                           parameters({{0}}, after_backward(1, 0), before_forward(2, 0))});
  const Simulation simulation = simulate(plan, profile, measured_link(0));
  EXPECT_EQ(simulation.iteration_seconds, 7 + 3.0 / 2);
  EXPECT_EQ(simulation.bound_seconds, 7);
}

TEST(FusedTime, BoundHasOneWindowWithTheStepInside) {
  const Profile profile = uniform_profile(2);  // D = 0, 1; G = 0, 2; s = 1
  const auto bound = [&](std::vector<double> transfers, std::int64_t period, double latency) {
    return bound_seconds(
        profile, transfers,
        {.period = period, .latency_seconds = latency, .in_flight = 1, .update = Update::fused});
  };
  EXPECT_EQ(bound({1, 3}, 1, 0), 7);
  EXPECT_EQ(bound({3, 0}, 1, 0), 7 + (3 - 1));
  EXPECT_EQ(bound({1, 5}, 1, 0), 7 + (6 - 4));
  EXPECT_EQ(bound({2, 10}, 2, 0), 7 + (6 - 4));
  EXPECT_EQ(bound({1, 3}, 1, 0.5), 7.5);
  EXPECT_EQ(bound({0.25, 0}, 2, 2), 7 + (0.25 + 2 - 1) / 2);  // the latency does not fit: once in a period
  EXPECT_EQ(bound({0, 0}, 1, 2), 7);
}

TEST(FusedTime, BoundTakesEarlyAndTiedLayersFromTheirUpdates) {
  Profile profile = two_layers(1, 1);
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  const BoundOptions options{.period = 1, .update = Update::fused};
  EXPECT_EQ(bound_seconds(profile, {3, 0}, options), 7 + (3 - 1));
  profile.layers[0].last_read = {LastReadKind::other_backward, 1};
  EXPECT_EQ(bound_seconds(profile, {3, 0}, options), 7 + (3 - 1));
}

// Planners

struct Case {
  Profile profile;
  Link link;
  PlanOptions options;
};

Case random_case(Random& random, const RandomProfileOptions& profiles) {
  Case result;
  result.profile = random_profile(random, profiles);
  result.link.latency_seconds = static_cast<double>(random_integer(random, 0, 6)) / 16;
  result.link.in_flight = static_cast<int>(random_integer(random, 1, 3));
  result.options.period = random_integer(random, 1, 9);
  result.options.update = Update::fused;
  return result;
}

TEST(FusedPlanners, GiveValidPlansNoFasterThanTheBound) {
  Random random(11);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    Case c = random_case(random, {.max_layers = 10});
    c.options.fill_bubbles = i % 3 == 0;
    for (const Planner& planner : planners()) {
      if (!planner.can_fuse) continue;
      SCOPED_TRACE(planner.name);
      const Plan plan = make_plan(planner.name, c.profile, c.link, c.options);
      EXPECT_EQ(plan.update, Update::fused);
      EXPECT_EQ(plan.planner, planner.name);
      const Simulation simulation = simulate(plan, c.profile, c.link);  // validates
      EXPECT_GE(simulation.gap, -1e-9);
    }
  }
}

TEST(FusedPlanners, AreNoSlowerThanWithTheStepBehindTheBackward) {
  Random random(12);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    Case c = random_case(random, {.max_layers = 10, .special_reads = false});
    for (const char* planner : {"local-sgd", "equal-count", "dreamddp"}) {
      SCOPED_TRACE(planner);
      const auto seconds = [&](Update update) {
        c.options.update = update;
        return simulate(make_plan(planner, c.profile, c.link, c.options), c.profile, c.link)
            .iteration_seconds;
      };
      EXPECT_LE(seconds(Update::fused), seconds(Update::step) + 1e-9);
    }
  }
}

TEST(FusedPlanners, BalancedReachesTheBoundWithoutLatency) {
  Random random(13);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    Case c = random_case(random, {.max_layers = 14, .any_backward_order = false});
    for (Layer& layer : c.profile.layers)
      if (layer.last_read.kind == LastReadKind::other_backward) layer.last_read.kind = LastReadKind::forward;
    c.link.latency_seconds = 0;
    const Plan plan = make_plan("balanced", c.profile, c.link, c.options);
    EXPECT_LE(simulate(plan, c.profile, c.link).gap, 1e-4);
  }
}

TEST(FusedPlanners, OthersAreRefused) {
  const Profile profile = uniform_profile(2);
  PlanOptions options{.update = Update::fused};
  for (const char* planner : {"ssgd", "wfbp", "asc-wfbp", "sequential", "brute-force"}) {
    expect_rejected([&] { make_plan(planner, profile, measured_link(0), options); },
                    {"planner with fused updates: got '" + std::string(planner) + "'",
                     "one of local-sgd, equal-count, dreamddp, balanced", "step behind the backward"});
  }
  options.max_delay = 1;
  expect_rejected([&] { make_plan("balanced", profile, measured_link(0), options); },
                  {"max_delay with fused updates: got 1", "expected 0"});
}

TEST(FusedPlanners, FilledBubblesKeepTheTime) {
  const Profile profile = two_layers(0.5, 2);
  const PlanOptions options{.period = 4, .update = Update::fused};
  const Plan plan = make_plan("equal-count", profile, measured_link(0), options);
  const Plan filled = fill_bubbles(plan, profile, measured_link(0));
  // Layer 1 takes the link 4..6, layer 0 6..6.5: in every iteration both fit.
  EXPECT_EQ(filled.ops.size(), 8u);
  EXPECT_EQ(simulate(filled, profile, measured_link(0)).iteration_seconds, 7);
}

TEST(FusedPlanners, ThePeriodCountsTheStepAsCover) {
  const Profile profile = two_layers(4, 0);  // the step covers 1 s, and nothing else does
  EXPECT_EQ(choose_period(profile, measured_link(0), {.margin = 0, .update = Update::fused}), 4);
  EXPECT_EQ(choose_period(profile, measured_link(0), {.margin = 0, .max_period = 50}), 50);
}

}  // namespace
}  // namespace dreamddp::testing
