// Sequences of events and actions that were worked out by hand: held and carried averages, the end
// of a training and its resumption.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "core/scheduler_loop.h"

namespace dreamddp::testing {
namespace {

const Op both_before_step = parameters({{0}, {1}}, after_backward(0, 0), before_step(0));

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
