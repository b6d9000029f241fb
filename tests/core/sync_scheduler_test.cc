// Sequences of events and actions that were worked out by hand: each rule of the scheduler once.
#include <gtest/gtest.h>

#include <string>

#include "core/scheduler_loop.h"

namespace dreamddp::testing {
namespace {

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

}  // namespace
}  // namespace dreamddp::testing
