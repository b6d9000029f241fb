// Sequences of events and actions that were worked out by hand: each rule of the scheduler once.
//
// Actions are written as "launch 1@3": op 1, launched in iteration 3.
#include "dreamddp/sync_scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "core/small_plans.h"

namespace dreamddp::testing {
namespace {

/// A scheduler whose answers are texts.
class Loop {
 public:
  Loop(const Profile& profile, std::int64_t period, std::vector<Op> ops, std::int64_t first_iteration = 0)
      : scheduler(std::make_shared<const Plan>(valid_plan(profile, period, std::move(ops))), profile,
                  first_iteration) {}

  std::string begin_iteration() { return text(scheduler.iteration_begins()); }
  std::string forward(std::size_t layer) {
    const std::string begin = text(scheduler.forward_begins(layer));
    return join(begin, text(scheduler.forward_ends(layer)));
  }
  std::string backward(std::size_t layer) { return text(scheduler.backward_ends(layer)); }
  std::string finish_backward() { return text(scheduler.backward_finishes()); }
  std::string begin_step() { return text(scheduler.step_begins()); }
  std::string end_step() { return text(scheduler.step_ends()); }
  std::string read(std::size_t layer) { return text(scheduler.read_begins(layer)); }
  std::string finish() { return text(scheduler.finish()); }

  std::string forwards() {
    std::string all;
    for (std::size_t l = 0; l < scheduler.plan().layers.size(); ++l) all = join(all, forward(l));
    return all;
  }
  std::string backwards() {
    std::string all;
    for (std::size_t l = scheduler.plan().layers.size(); l-- > 0;) all = join(all, backward(l));
    return join(all, finish_backward());
  }
  std::string step() {
    const std::string begin = begin_step();
    return join(begin, end_step());
  }
  std::string iteration() {
    std::string all = forwards();
    all = join(all, backwards());
    return join(all, step());
  }

  SyncScheduler scheduler;

 private:
  static std::string join(const std::string& one, const std::string& other) {
    return one.empty() || other.empty() ? one + other : one + ", " + other;
  }
  static std::string text(const SyncScheduler::Actions& actions) {
    std::string all;
    for (const Action& action : actions) {
      const char* verb = action.kind == ActionKind::launch    ? "launch "
                         : action.kind == ActionKind::release ? "release "
                                                              : "wait ";
      all = join(all, verb + std::to_string(action.run.op) + "@" + std::to_string(action.run.iteration));
    }
    return all;
  }
};

/// Layer 0 is an embedding: last read in its forward.
Profile embedding_profile(std::size_t num_layers) {
  Profile profile = uniform_profile(num_layers);
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  return profile;
}

/// Layer 0 is an embedding tied to the last layer, which has no parameters of its own.
Profile tied_profile(std::size_t num_layers) {
  Profile profile = uniform_profile(num_layers);
  profile.layers[0].last_read = {LastReadKind::other_backward, num_layers - 1};
  profile.layers.back().num_bytes = 0;
  return profile;
}

const Op both_before_step = parameters({{0}, {1}}, after_backward(0, 0), before_step(0));

TEST(Scheduler, BackwardWindowIsFromTheLastReadToTheStep) {
  Loop loop(uniform_profile(2), 1,
            {parameters({{1}}, after_backward(0, 1), before_step(0)),
             parameters({{0}}, after_backward(0, 0), before_step(0))});
  for (int i = 0; i < 3; ++i) {
    const std::string at = "@" + std::to_string(i);
    EXPECT_EQ(loop.forwards(), "");
    EXPECT_EQ(loop.backward(1), "launch 0" + at);
    EXPECT_EQ(loop.backward(0), "launch 1" + at);
    EXPECT_EQ(loop.finish_backward(), "");
    EXPECT_EQ(loop.begin_step(), "wait 0" + at + ", wait 1" + at);
    EXPECT_EQ(loop.end_step(), "");
  }
}

TEST(Scheduler, ForwardWindowIsFromTheStepToTheFirstRead) {
  Loop loop(uniform_profile(3), 1,
            {parameters({{2}}, after_step(0), before_forward(1, 2)),
             parameters({{0}, {1}}, after_step(0), before_forward(1, 0))});
  EXPECT_EQ(loop.iteration(), "launch 0@0, launch 1@0");
  EXPECT_EQ(loop.forward(0), "wait 1@0");  // merged: the earlier deadline of the two
  EXPECT_EQ(loop.forward(1), "");
  EXPECT_EQ(loop.forward(2), "wait 0@0");
}

TEST(Scheduler, OpsTakeTheirPlacesInThePeriod) {
  Loop loop(uniform_profile(2), 3,
            {parameters({{1}}, after_backward(0, 1), before_step(0)),
             parameters({{0}}, after_step(1), before_forward(2, 0))});
  EXPECT_EQ(loop.iteration(), "launch 0@0, wait 0@0");
  EXPECT_EQ(loop.iteration(), "launch 1@1");
  EXPECT_EQ(loop.iteration(), "wait 1@1");
  EXPECT_EQ(loop.iteration(), "launch 0@3, wait 0@3");
  EXPECT_EQ(loop.scheduler.iteration(), 4);
  EXPECT_EQ(loop.scheduler.next_op(), 1);
}

TEST(Scheduler, SequenceCountsLaunches) {
  Loop loop(uniform_profile(2), 1, {both_before_step});
  for (int i = 0; i < 3; ++i) {
    loop.forwards();
    loop.backwards();
    EXPECT_EQ(loop.scheduler.in_flight(), (std::vector<OpRun>{{i, 0, i}}));
    loop.step();
    EXPECT_TRUE(loop.scheduler.in_flight().empty());
  }
}

TEST(Scheduler, LayersInAnotherOrderWaitForTheirPlace) {
  Loop loop(uniform_profile(2), 1,
            {parameters({{1}}, after_backward(0, 1), before_step(0)),
             parameters({{0}}, after_backward(0, 0), before_step(0))});
  loop.forwards();
  EXPECT_EQ(loop.backward(0), "");
  EXPECT_EQ(loop.backward(1), "launch 0@0, launch 1@0");
}

TEST(Scheduler, InPlaceOpsWaitForTheReadsOfAllTheyCarry) {
  Loop loop(uniform_profile(3), 1, {parameters({{0}, {1}, {2}}, after_backward(0, 0), before_step(0))});
  loop.forwards();
  EXPECT_EQ(loop.backward(0), "");
  EXPECT_EQ(loop.backward(2), "");
  EXPECT_EQ(loop.backward(1), "launch 0@0");
  EXPECT_EQ(loop.backward(1), "");  // a second call changes nothing
}

TEST(Scheduler, MissingGradientIsMadeUpForAtTheEndOfTheBackward) {
  Loop loop(uniform_profile(3), 1,
            {parameters({{2}}, after_backward(0, 2), before_step(0)),
             parameters({{1}}, after_backward(0, 1), before_step(0)),
             parameters({{0}}, after_backward(0, 0), before_step(0))});
  loop.forwards();
  EXPECT_EQ(loop.backward(2), "launch 0@0");
  EXPECT_EQ(loop.backward(0), "");  // 1 never comes
  EXPECT_EQ(loop.finish_backward(), "launch 1@0, launch 2@0");
  EXPECT_EQ(loop.finish_backward(), "");
}

TEST(Scheduler, GradientsWaitForTheirOwnBackwards) {
  Loop loop(embedding_profile(2), 1, {gradients({{0}, {1}}, after_backward(0, 0), before_step(0))});
  EXPECT_EQ(loop.forwards(), "");
  EXPECT_EQ(loop.backward(0), "");
  EXPECT_EQ(loop.read(0), "");
  EXPECT_EQ(loop.backward(1), "launch 0@0");
  EXPECT_EQ(loop.read(1), "");  // a read of parameters does not wait for gradients
  EXPECT_EQ(loop.begin_step(), "wait 0@0");
}

TEST(Scheduler, GradientOfATiedTensorNeedsBothBackwards) {
  Loop loop(tied_profile(3), 1, {gradients({{0}, {1}}, after_backward(0, 0), before_step(0))});
  loop.forwards();
  loop.backward(1);
  EXPECT_EQ(loop.backward(0), "");
  EXPECT_EQ(loop.backward(2), "launch 0@0");
}

TEST(Scheduler, EarlyWindowOpensWithTheForward) {
  Loop loop(embedding_profile(2), 1,
            {parameters({{0}}, after_forward(0, 0), before_step(0)),
             parameters({{1}}, after_backward(0, 1), before_step(0))});
  EXPECT_EQ(loop.forward(0), "launch 0@0");
  EXPECT_EQ(loop.forward(1), "");
  EXPECT_EQ(loop.backwards(), "launch 1@0");
  EXPECT_EQ(loop.begin_step(), "wait 0@0, wait 1@0");
}

TEST(Scheduler, TiedTensorIsReadForTheLastTimeByTheOtherLayer) {
  Loop loop(tied_profile(3), 1,
            {parameters({{0}}, after_backward(0, 2), before_step(0)),
             parameters({{1}}, after_backward(0, 1), before_step(0))});
  EXPECT_EQ(loop.forwards(), "");
  EXPECT_EQ(loop.backward(2), "launch 0@0");
  EXPECT_EQ(loop.backward(1), "launch 1@0");
  EXPECT_EQ(loop.backward(0), "");
  EXPECT_EQ(loop.begin_step(), "wait 0@0, wait 1@0");
}

TEST(Scheduler, WindowInFrontOfTheReadsOpensWhileNoneHasBegun) {
  const std::vector<Op> ops{parameters({{1}, {2}}, after_forward(0, 0), before_forward(0, 1)),
                            parameters({{0}}, after_backward(0, 0), before_step(0))};
  Loop in_order(uniform_profile(3), 1, ops);
  EXPECT_EQ(in_order.forward(0), "launch 0@0");
  EXPECT_EQ(in_order.forward(1), "wait 0@0");

  Loop too_late(uniform_profile(3), 1, ops);
  too_late.forward(2);
  EXPECT_EQ(too_late.forward(0), "");
  EXPECT_EQ(too_late.forward(1), "");
  EXPECT_EQ(too_late.backward(2), "");
  EXPECT_EQ(too_late.backward(1), "launch 0@0");
  EXPECT_EQ(too_late.begin_step(), "wait 0@0");
}

TEST(Scheduler, SkippedStepIsMadeUpForAtTheNextForward) {
  Loop loop(uniform_profile(2), 2,
            {parameters({{1}}, after_backward(0, 1), before_step(0)),
             parameters({{0}}, after_step(0), before_forward(1, 0))});
  loop.forwards();
  EXPECT_EQ(loop.backwards(), "launch 0@0");
  EXPECT_EQ(loop.scheduler.iteration(), 0);
  EXPECT_EQ(loop.forward(1), "wait 0@0, launch 1@0");  // a forward that begins elsewhere than usual
  EXPECT_EQ(loop.scheduler.iteration(), 1);
  EXPECT_EQ(loop.forward(0), "wait 1@0");
}

TEST(Scheduler, IterationMayBeginBeforeAnyLayerDoes) {
  Loop loop(uniform_profile(2), 2,
            {parameters({{1}}, after_backward(0, 1), before_step(0)),
             parameters({{0}}, after_step(0), before_forward(1, 0))});
  EXPECT_EQ(loop.begin_iteration(), "");
  loop.forwards();
  EXPECT_EQ(loop.backwards(), "launch 0@0");
  EXPECT_EQ(loop.begin_iteration(), "wait 0@0, launch 1@0");
  EXPECT_EQ(loop.scheduler.iteration(), 1);
  EXPECT_EQ(loop.begin_iteration(), "");
  EXPECT_EQ(loop.scheduler.iteration(), 1);
  EXPECT_EQ(loop.forward(0), "wait 1@0");
}

TEST(Scheduler, BackwardWithoutForwardBelongsToTheSameIteration) {
  Loop loop(uniform_profile(2), 1, {both_before_step});
  loop.forwards();
  EXPECT_EQ(loop.backwards(), "launch 0@0");
  EXPECT_EQ(loop.backwards(), "");
  EXPECT_EQ(loop.step(), "wait 0@0");
  EXPECT_EQ(loop.scheduler.iteration(), 1);
}

TEST(Scheduler, MicroBatchesOnlyWait) {
  Loop loop(embedding_profile(2), 1,
            {parameters({{0}}, after_forward(0, 0), before_step(0)),
             parameters({{1}}, after_step(0), before_forward(1, 1))});
  EXPECT_EQ(loop.iteration(), "launch 0@0, wait 0@0, launch 1@0");
  loop.scheduler.set_accumulating(true);
  EXPECT_EQ(loop.forwards(), "wait 1@0");
  EXPECT_EQ(loop.backwards(), "");
  EXPECT_EQ(loop.step(), "");
  EXPECT_EQ(loop.forwards(), "");
  EXPECT_EQ(loop.backwards(), "");
  EXPECT_EQ(loop.scheduler.iteration(), 1);
  loop.scheduler.set_accumulating(false);
  EXPECT_EQ(loop.iteration(), "launch 0@1, wait 0@1, launch 1@1");
}

TEST(Scheduler, MicroBatchAfterASkippedStepBeginsAnIteration) {
  Loop loop(uniform_profile(1), 1, {parameters({{0}}, after_step(0), before_forward(1, 0))});
  loop.forwards();
  EXPECT_EQ(loop.backwards(), "");
  loop.scheduler.set_accumulating(true);
  EXPECT_EQ(loop.forwards(), "launch 0@0, wait 0@0");
  EXPECT_EQ(loop.scheduler.iteration(), 1);
}

TEST(Scheduler, StepWithoutBackwardWaitsAndAdvancesNothing) {
  Loop loop(embedding_profile(3), 2,
            {parameters({{0}}, after_forward(0, 0), before_step(0)),
             parameters({{1}}, after_step(0), before_step(1)),                 // held
             parameters({{2}}, after_backward(1, 2), before_forward(2, 2))});  // carried
  EXPECT_EQ(loop.forwards(), "launch 0@0");
  EXPECT_EQ(loop.step(), "wait 0@0");
  EXPECT_EQ(loop.scheduler.iteration(), 0);
  EXPECT_EQ(loop.backwards(), "");
  EXPECT_EQ(loop.step(), "launch 1@0");
  EXPECT_EQ(loop.step(), "release 1@0, wait 1@0");  // a held result belongs in front of the next step
  EXPECT_EQ(loop.iteration(), "launch 2@1");
  EXPECT_EQ(loop.step(), "");  // a carried one may cross it
  EXPECT_EQ(loop.scheduler.iteration(), 2);
}

TEST(Scheduler, DeadlineLayerThatNeverComesMeansTheStep) {
  Loop loop(uniform_profile(2), 1, {parameters({{0}, {1}}, after_step(0), before_forward(1, 0))});
  EXPECT_EQ(loop.iteration(), "launch 0@0");
  EXPECT_EQ(loop.finish_backward(), "");  // an iteration that reads neither layer
  EXPECT_EQ(loop.step(), "wait 0@0, launch 0@1");
  EXPECT_EQ(loop.forward(1), "wait 0@1");  // and one that reads the other layer only
}

TEST(Scheduler, DeadlineMayLieInFrontOfALayerThatIsNotCarried) {
  Loop loop(uniform_profile(2), 2,
            {parameters({{1}}, after_step(0), before_forward(1, 0)),
             parameters({{0}}, after_step(1), before_forward(2, 0))});
  EXPECT_EQ(loop.iteration(), "launch 0@0");
  EXPECT_EQ(loop.forward(0), "wait 0@0");
}

TEST(Scheduler, OpWaitsForALeftoverOnItsCoordinates) {
  Loop loop(uniform_profile(3), 1,
            {parameters({{0}}, after_backward(0, 0), before_step(0)),
             parameters({{0, 0, 0.5}}, after_step(0), before_forward(1, 0)),
             parameters({{0, 0.5, 1}, {1}, {2}}, after_step(0), before_forward(1, 0))});
  loop.iteration();
  loop.forward(2);  // a branch that does not read layer 0
  EXPECT_EQ(loop.finish_backward(), "wait 1@0, launch 0@1");
  EXPECT_EQ(loop.begin_step(), "wait 0@1");
}

TEST(Scheduler, HeldResultIsReleasedAfterTheLastRead) {
  Loop loop(embedding_profile(3), 1,
            {parameters({{0}, {1}}, after_step(0), before_step(1)),
             parameters({{2}}, after_step(0), before_step(1))});
  EXPECT_EQ(loop.iteration(), "launch 0@0, launch 1@0");
  EXPECT_EQ(loop.forwards(), "");  // reads do not wait: the result is held back
  EXPECT_EQ(loop.read(0), "");
  EXPECT_EQ(loop.backward(2), "release 1@0");
  EXPECT_EQ(loop.backward(1), "release 0@0");
  EXPECT_EQ(loop.read(1), "wait 0@0");  // from now on it may be written
  EXPECT_EQ(loop.backward(0), "");
  EXPECT_EQ(loop.finish_backward(), "");
  EXPECT_EQ(loop.begin_step(), "wait 1@0");
}

TEST(Scheduler, HeldResultOfAMissingLayerIsReleasedAtTheEndOfTheBackward) {
  Loop loop(uniform_profile(2), 1, {parameters({{0}, {1}}, after_step(0), before_step(1))});
  EXPECT_EQ(loop.iteration(), "launch 0@0");
  loop.forward(1);
  EXPECT_EQ(loop.backward(1), "");
  EXPECT_EQ(loop.finish_backward(), "release 0@0");
}

TEST(Scheduler, HeldOpThatIsLaunchedAfterItsReadsIsReleasedAtOnce) {
  Loop loop(uniform_profile(2), 1,
            {parameters({{0}}, after_forward(0, 0), before_step(0)),
             parameters({{1}}, after_backward(0, 1), before_step(0))});
  loop.forward(1);
  EXPECT_EQ(loop.backward(1), "");
  EXPECT_EQ(loop.backward(0), "");
  EXPECT_EQ(loop.finish_backward(), "launch 0@0, release 0@0, launch 1@0");
}

TEST(Scheduler, HeldOverASkippedStep) {
  Loop loop(uniform_profile(2), 1, {parameters({{0}, {1}}, after_step(0), before_step(1))});
  loop.forwards();
  loop.backwards();
  EXPECT_EQ(loop.forwards(), "launch 0@0");
  EXPECT_EQ(loop.backwards(), "release 0@0");
  EXPECT_EQ(loop.forwards(), "wait 0@0, launch 0@1");
}

TEST(Scheduler, CarriedResultIsAppliedAtItsDeadline) {
  Loop loop(uniform_profile(2), 2,
            {parameters({{0}}, after_backward(0, 1), before_forward(1, 0)),
             parameters({{1}}, after_step(0), before_step(2))});
  EXPECT_EQ(loop.iteration(), "launch 0@0, launch 1@0");
  EXPECT_EQ(loop.read(0), "");
  EXPECT_EQ(loop.forward(0), "release 0@0, wait 0@0");
  EXPECT_EQ(loop.forward(1), "");
  EXPECT_EQ(loop.backwards(), "");
  EXPECT_EQ(loop.step(), "");
  EXPECT_EQ(loop.forwards(), "");
  EXPECT_EQ(loop.backwards(), "launch 0@2");
  EXPECT_EQ(loop.begin_step(), "release 1@0, wait 1@0");
}

TEST(Scheduler, CarriedOverASkippedStepCountsIterations) {
  Loop loop(uniform_profile(1), 2, {parameters({{0}}, after_step(0), before_step(2))});
  EXPECT_EQ(loop.iteration(), "launch 0@0");
  loop.forwards();
  EXPECT_EQ(loop.backwards(), "");
  EXPECT_EQ(loop.forwards(), "");  // the step of iteration 1 is skipped
  EXPECT_EQ(loop.backwards(), "");
  EXPECT_EQ(loop.forwards(), "release 0@0, wait 0@0, launch 0@2");  // and that of iteration 2, the deadline
}

TEST(Scheduler, SeveralRunsOfACarriedOpAreInFlight) {
  Loop loop(uniform_profile(2), 1, {parameters({{0}, {1}}, after_step(0), before_step(2))});
  EXPECT_EQ(loop.iteration(), "launch 0@0");
  EXPECT_EQ(loop.iteration(), "launch 0@1");
  EXPECT_EQ(loop.iteration(), "release 0@0, wait 0@0, launch 0@2");
  EXPECT_EQ(loop.iteration(), "release 0@1, wait 0@1, launch 0@3");
  EXPECT_EQ(loop.finish(), "release 0@2, wait 0@2, release 0@3, wait 0@3");
}

TEST(Scheduler, CarriedResultIsAppliedBeforeAnyOfItsLayersIsReadInItsIteration) {
  Loop loop(uniform_profile(3), 2, {parameters({{0}, {1}, {2}}, after_step(0), before_forward(2, 0))});
  EXPECT_EQ(loop.iteration(), "launch 0@0");
  EXPECT_EQ(loop.iteration(), "");
  EXPECT_EQ(loop.forward(1), "release 0@0, wait 0@0");
  EXPECT_EQ(loop.forward(0), "");
}

TEST(Scheduler, AnyReadWaitsForResultsThatMayBeWritten) {
  Loop loop(uniform_profile(3), 1,
            {parameters({{2}}, after_backward(0, 2), before_step(0)),
             parameters({{1}}, after_backward(0, 1), before_step(0)),
             parameters({{0}}, after_step(0), before_forward(1, 0))});
  loop.forwards();
  EXPECT_EQ(loop.backwards(), "launch 0@0, launch 1@0");
  EXPECT_EQ(loop.read(1), "wait 1@0");
  EXPECT_EQ(loop.read(0), "");
  EXPECT_EQ(loop.step(), "wait 0@0, launch 2@0");
  EXPECT_EQ(loop.read(0), "wait 2@0");
  EXPECT_EQ(loop.forwards(), "");
}

// Recomputing a checkpoint reads an embedding again, in the middle of the backward.
TEST(Scheduler, ReadThatBeginsAgainIsNotOver) {
  Loop loop(embedding_profile(2), 1, {parameters({{0}, {1}}, after_backward(0, 1), before_step(0))});
  loop.forwards();
  loop.scheduler.forward_begins(0);
  EXPECT_EQ(loop.backward(1), "");
  EXPECT_EQ(loop.scheduler.forward_ends(0).size(), 1);

  Loop held(embedding_profile(2), 1, {parameters({{0}, {1}}, after_step(0), before_step(1))});
  held.iteration();
  held.forwards();
  held.scheduler.forward_begins(0);
  EXPECT_EQ(held.backward(1), "");
  EXPECT_EQ(held.scheduler.forward_ends(0).size(), 1);
}

TEST(Scheduler, FinishSettlesEverythingAndKeepsThePlace) {
  Loop loop(uniform_profile(4), 2,
            {parameters({{3}}, after_backward(0, 3), before_forward(1, 3)),  // carried
             parameters({{2}}, after_step(0), before_step(1)),               // held
             parameters({{1}}, after_step(0), before_forward(1, 1)),
             parameters({{0}}, after_step(1), before_forward(2, 0))});
  EXPECT_EQ(loop.iteration(), "launch 0@0, launch 1@0, launch 2@0");
  EXPECT_EQ(loop.finish(), "release 0@0, wait 0@0, release 1@0, wait 1@0, wait 2@0");
  EXPECT_TRUE(loop.scheduler.in_flight().empty());
  EXPECT_EQ(loop.scheduler.next_op(), 3);
  EXPECT_EQ(loop.iteration(), "launch 3@1");
  EXPECT_EQ(loop.finish(), "wait 3@1");
  EXPECT_EQ(loop.finish(), "");
}

TEST(Scheduler, StartsAtAnyPlace) {
  const std::vector<Op> ops{parameters({{1}}, after_backward(1, 1), before_step(1)),
                            parameters({{0}}, after_step(2), before_forward(3, 0))};
  Loop middle(uniform_profile(2), 4, ops, 6);  // place 2
  EXPECT_EQ(middle.scheduler.next_op(), 1);
  EXPECT_EQ(middle.iteration(), "launch 1@6");
  EXPECT_EQ(middle.iteration(), "wait 1@6");
  EXPECT_EQ(middle.iteration(), "");
  EXPECT_EQ(middle.iteration(), "launch 0@9, wait 0@9");

  Loop end(uniform_profile(2), 4, ops, 7);  // behind the last op; the one in flight here is absent
  EXPECT_EQ(end.scheduler.next_op(), 0);
  EXPECT_EQ(end.iteration(), "");
  EXPECT_EQ(end.iteration(), "");
  EXPECT_EQ(end.iteration(), "launch 0@9, wait 0@9");
}

TEST(Scheduler, FirstIterationBelowZeroIsRejected) {
  EXPECT_THROW(Loop(uniform_profile(2), 1, {both_before_step}, -1), std::invalid_argument);
}

// Op 0 is held over the reads of the next iteration, op 1 carried over two steps.
TEST(Scheduler, ResumesWithOpsInFlight) {
  const Profile profile = uniform_profile(2);
  const std::vector<Op> ops = {parameters({{0}}, after_step(0), before_step(1)),
                               parameters({{1}}, after_step(0), before_step(2))};
  Loop whole(profile, 2, ops);
  whole.iteration();
  ASSERT_EQ(whole.scheduler.in_flight(), (std::vector<OpRun>{{0, 0, 0}, {1, 1, 0}}));
  Loop resumed(profile, 2, ops, 1);
  resumed.scheduler.resume({{-2, 0, 0}, {-1, 1, 0}});
  for (int i = 1; i < 6; ++i) EXPECT_EQ(resumed.iteration(), whole.iteration());
  EXPECT_EQ(resumed.finish(), whole.finish());
}

TEST(Scheduler, RunsThatCannotBeInFlightAreRejected) {
  const Profile profile = uniform_profile(2);
  const std::vector<Op> ops = {parameters({{1}}, after_backward(0, 1), before_step(0)),
                               parameters({{0}}, after_step(0), before_step(1))};
  const OpRun fits{-1, 1, 0};
  EXPECT_NO_THROW(Loop(profile, 2, ops, 1).scheduler.resume({fits}));
  EXPECT_THROW(Loop(profile, 2, ops, 2).scheduler.resume({fits}), std::invalid_argument);
  for (const OpRun& run : {OpRun{-1, 1, 1}, OpRun{-1, 1, 2}, OpRun{0, 1, 0}, OpRun{-1, 0, 0}, OpRun{-1, 2, 0},
                           OpRun{-1, 1, -2}}) {
    EXPECT_THROW(Loop(profile, 2, ops, 1).scheduler.resume({run}), std::invalid_argument);
  }
}

TEST(Scheduler, PlanWithoutOpsOnlyCounts) {
  Profile profile = uniform_profile(2);
  for (Layer& layer : profile.layers) layer.num_bytes = 0;
  Loop loop(profile, 2, {});
  EXPECT_EQ(loop.iteration(), "");
  EXPECT_EQ(loop.scheduler.iteration(), 1);
  EXPECT_EQ(loop.scheduler.next_op(), 0);
  EXPECT_EQ(loop.finish(), "");
}

TEST(Scheduler, CopiesAreIndependent) {
  Loop loop(uniform_profile(2), 1, {both_before_step});
  loop.forwards();
  Loop copy = loop;
  EXPECT_EQ(copy.backwards(), "launch 0@0");
  EXPECT_TRUE(loop.scheduler.in_flight().empty());
  EXPECT_EQ(loop.backwards(), "launch 0@0");
}

}  // namespace
}  // namespace dreamddp::testing
