// Times of a training on a device, whose work is done long after the events of the training thread.
#include "runtime/training_recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "fake_device.h"
#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::FakeDevice;
using testing::Gate;

class RecorderOnDevice : public ::testing::Test {
 protected:
  RecorderOnDevice() { recorder.set_plan({"a", "b"}, {}); }

  void compute(int seconds) {
    for (int i = 0; i < seconds; ++i) device->give([] {});
  }
  void wait_for_link(int seconds) {
    recorder.wait_begins();
    device->drain();
    {
      const auto scope = device->enter();
      compute(seconds);
      op_end = device->record();
    }
    device->wait(*op_end);
    recorder.wait_ends();
  }
  void iterate() {
    compute(1);
    recorder.layer_is_read(0);
    compute(2);
    recorder.layer_is_read(1);
    compute(3);
    recorder.forward_ends();
    compute(4);
    recorder.layer_backward_ends(1);
    wait_for_link(20);
    compute(5);
    recorder.layer_backward_ends(0);
    compute(6);
    wait_for_link(30);
    recorder.step_begins();
    compute(7);
    recorder.step_ends(true);
  }

  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>(0);
  TrainingRecorder recorder{3, device};
  EventPointer op_end;
};

TEST_F(RecorderOnDevice, SamplesAreTheDevicesTimesWithoutWaits) {
  recorder.set_sampling(true);
  iterate();  // its begin was not seen
  iterate();
  iterate();
  EXPECT_EQ(device->num_synchronised, 0);
  const TrainingRecorder::Samples taken = recorder.take_samples();
  EXPECT_EQ(device->num_synchronised, 0);
  const std::vector<IterationTimes> samples = recorder.times_of(taken);
  EXPECT_EQ(device->num_synchronised, 1);
  ASSERT_EQ(samples.size(), 2u);
  for (const IterationTimes& times : samples) {
    EXPECT_EQ(times.loop_before_seconds, 1);
    EXPECT_EQ(times.forward_seconds, (std::vector<double>{2, 3}));
    EXPECT_EQ(times.backward_seconds, (std::vector<double>{5, 4}));
    EXPECT_EQ(times.loop_after_seconds, 6);
    EXPECT_EQ(times.step_seconds, 7);
  }
}

TEST_F(RecorderOnDevice, SteadyStateBlocksForNothingAndSumsWaits) {
  for (int i = 0; i < 3; ++i) iterate();
  device->drain();
  iterate();
  EXPECT_EQ(device->num_synchronised, 0);
  EXPECT_EQ(recorder.statistics().iterations, 3);
  EXPECT_EQ(recorder.statistics().exposed_seconds, 3 * 50);
  EXPECT_TRUE(recorder.take_samples().empty());
}

TEST_F(RecorderOnDevice, SpansAreTheDevicesTimes) {
  iterate();
  recorder.record(1, recorder.synchronise());
  EXPECT_EQ(device->num_synchronised, 1);
  iterate();
  std::map<std::string, double> seconds;
  for (const Span& span : recorder.spans()) {
    const std::string kind = span.kind == SpanKind::wait ? "wait " : "";
    seconds[kind + span.name] += span.end_seconds - span.begin_seconds;
  }
  EXPECT_NEAR(seconds["a"], 2 + 5, 1e-6);
  EXPECT_NEAR(seconds["b"], 3 + 4, 1e-6);
  EXPECT_NEAR(seconds["step"], 7, 1e-6);
  EXPECT_NEAR(seconds["wait "], 50, 1e-6);
}

// The lane's thread and the training thread go on while a reader waits for the device.
TEST_F(RecorderOnDevice, NothingIsLockedWhileTheDeviceIsWaitedFor) {
  recorder.set_plan({"a", "b"}, {"op"});
  recorder.record(1, recorder.synchronise());
  device->is_waited_for = false;
  device->hold("training");
  recorder.layer_is_read(0);
  recorder.layer_is_read(1);
  std::vector<Span> spans;
  std::thread reader([&] { spans = recorder.spans(); });
  while (!device->is_waited_for) std::this_thread::yield();
  Gate has_told;
  std::thread lane([&] {
    recorder.op_begins(0);
    recorder.op_ends(0, 0);
    has_told.open();
  });
  EXPECT_NO_THROW(has_told.pass());
  device->go_on();
  lane.join();
  reader.join();
  ASSERT_EQ(spans.size(), 1u);  // those of before
  EXPECT_EQ(spans[0].name, "a");
  EXPECT_EQ(recorder.spans().size(), 2u);
}

}  // namespace
}  // namespace dreamddp
