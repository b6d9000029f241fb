// Failures, timeouts and the end of a lane on a device.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "device_lane.h"
#include "dreamddp/error.h"
#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::DeviceLane;
using testing::DeviceTransport;
using testing::FakeDevice;
using testing::Gate;
using testing::Model;
using testing::Reduces;

/// What `action` throws; "nothing" where it throws nothing.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const SyncError& error) {
    return error.what();
  }
  return "nothing";
}

// Compute in front of a launch is not the link's lateness, however long it takes.
TEST(LaneOnDevice, LatenessCountsFromThePackedChunk) {
  Model model{.parameters = {{1}}};
  LaneOptions options;
  options.timeout = std::chrono::milliseconds(1);
  std::atomic<int> num_late = 0;
  options.is_late = [&](const Lateness&) -> std::optional<std::string> {
    ++num_late;
    return std::nullopt;
  };
  DeviceLane run(model, Reduces::on_device, 0, /*is_held=*/true, options);
  run.lane->launch(0, 0);
  run.lane->wait(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(num_late, 0);
  run.device->go_on();
}

TEST(LaneOnDevice, ReductionThatFailsLaterFailsTheLane) {
  Model model{.parameters = {{1}, {2}}};
  DeviceLane run(model, Reduces::on_device, 0, /*is_held=*/true);
  run.transport->fails_at = 0;
  run.lane->launch(0, 0);
  run.lane->wait(0);
  run.device->go_on();
  while (!run.lane->has_failed()) std::this_thread::yield();
  EXPECT_EQ(error_of([&] { run.lane->launch(1, 1); }), "peer 1 is gone");
}

TEST(LaneOnDevice, ReductionThatNeverEndsIsAborted) {
  Model model{.parameters = {{1}, {2}}};
  LaneOptions options;
  options.timeout = std::chrono::milliseconds(10);
  DeviceLane run(model, Reduces::on_device, 0, false, options);
  run.device->hold("link");
  run.lane->launch(0, 0);
  run.lane->wait(0);
  run.device->give([&] { model.parameters[0] = {}; });  // behind the wait: only the abort lets it come
  while (!run.lane->has_failed()) std::this_thread::yield();
  run.device->drain();
  EXPECT_EQ(run.transport->num_aborts, 1);
  EXPECT_EQ(error_of([&] { run.lane->launch(1, 1); }), "a reduction has not ended within its timeout");
}

// wait() returns once the work is left to the device; what comes of it shows later.
TEST(LaneOnDevice, LastReductionThatFailsIsTold) {
  Model model{.parameters = {{1}, {2}}};
  DeviceLane run(model, Reduces::on_device, 0, /*is_held=*/true);
  run.transport->fails_at = 1;
  for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
    run.lane->launch(sequence, static_cast<std::size_t>(sequence));
    run.lane->wait(sequence);
  }
  run.device->go_on();
  EXPECT_EQ(error_of([&] { run.lane->wait_until_done(); }), "peer 1 is gone");
  while (run.transport->num_aborts == 0) std::this_thread::yield();
}

TEST(LaneOnDevice, LastReductionThatNeverEndsIsTold) {
  Model model{.parameters = {{1}}};
  LaneOptions options;
  options.timeout = std::chrono::milliseconds(10);
  DeviceLane run(model, Reduces::on_device, 0, false, options);
  run.device->hold("link");
  run.lane->launch(0, 0);
  run.lane->wait(0);
  EXPECT_EQ(error_of([&] { run.lane->wait_until_done(); }), "a reduction has not ended within its timeout");
}

TEST(LaneOnDevice, WaitUntilDoneBlocksForTheDevice) {
  for (const Reduces where : {Reduces::on_host, Reduces::on_device}) {
    Model model{.parameters = {{1, 2}, {}, {3}}, .kept_back = {2}};
    DeviceLane run(model, where, 4);
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
      run.lane->launch(sequence, static_cast<std::size_t>(sequence));
    }
    int num_checks = 0;
    if (where == Reduces::on_device) {
      run.device->hold("link");
      run.lane->launch(3, 0);
    }
    run.lane->wait_until_done([&] {
      ++num_checks;
      run.device->go_on();
    });
    EXPECT_EQ(num_checks > 0, where == Reduces::on_device);
    EXPECT_TRUE(run.lane->is_finished(1));
    EXPECT_FALSE(run.lane->is_finished(2));  // not released
    run.device->drain();
    EXPECT_EQ(model.parameters[0][0], where == Reduces::on_device ? 2001 : 1001);
    EXPECT_EQ(run.transport->num_aborts, 0);
  }
}

/// How often a lane aborts reductions that it has left to the device when it ends.
int aborts_at_the_end(bool has_work_left, const std::function<void(Lane&)>& end) {
  Model model{.parameters = {{1, 2, 3, 4}}};
  LaneOptions options;
  options.grace = std::chrono::milliseconds(10);
  Gate has_ended;
  auto device = std::make_shared<FakeDevice>(0);
  std::atomic<int> num_aborts = 0;
  auto made = std::make_unique<DeviceTransport>(*device, model, Reduces::on_device);
  made->on_abort = [&] { ++num_aborts; };
  made->at_end = [&] { has_ended.open(); };
  options.num_slots = testing::num_slots;
  options.device = device;
  {
    Lane lane(std::move(made), std::move(options));
    if (has_work_left) device->hold("link");
    lane.launch(0, 0);
    lane.wait(0);
    if (!has_work_left) lane.wait_until_done();
    end(lane);
  }
  has_ended.pass();
  device->go_on();
  device->drain();
  return num_aborts;
}

TEST(LaneOnDevice, WhatIsLeftToTheDeviceIsAbortedAtTheEnd) {
  const auto abort_lane = [](Lane& lane) { lane.abort("stop"); };
  const auto destroy_lane = [](Lane& /*lane*/) {};
  EXPECT_EQ(aborts_at_the_end(true, abort_lane), 1);
  EXPECT_EQ(aborts_at_the_end(true, destroy_lane), 1);
  EXPECT_EQ(aborts_at_the_end(false, abort_lane), 0);
  EXPECT_EQ(aborts_at_the_end(false, destroy_lane), 0);
}

// Those packed and not reduced yet are reduced all the same: the other ranks do.
TEST(LaneOnDevice, ChunkThatCannotBePackedDoesNotHarmThoseInFront) {
  Model model{.parameters = {{1}, {2}}};
  DeviceLane run(model, Reduces::on_host, 0, /*is_held=*/true);
  run.transport->cannot_pack = 1;
  run.lane->launch(0, 0);
  run.lane->launch(1, 1);
  run.device->go_on();
  EXPECT_THROW(run.lane->wait(1), SyncError);
  run.lane->wait(0);
  run.device->drain();
  EXPECT_EQ(model.parameters, (std::vector<std::vector<int>>{{1001}, {2}}));
}

}  // namespace
}  // namespace dreamddp
