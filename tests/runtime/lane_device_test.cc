// The lane on a device that does its work later and in any order that its streams and events allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "dreamddp/error.h"
#include "fake_device.h"
#include "runtime/lane.h"
#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::FakeDevice;
using testing::Gate;

constexpr int added_by_peers = 1000;
constexpr std::size_t num_slots = 2;

/// Parameters of each op, one chunk for each element. The device's thread alone reads and writes them.
struct Model {
  std::vector<std::vector<int>> parameters;
  std::set<std::size_t> kept_back = {};

  std::mutex mutex = {};
  std::set<std::string> mistakes = {};

  void expect(bool holds, const std::string& mistake) {
    const std::lock_guard lock(mutex);
    if (!holds) mistakes.insert(mistake);
  }
};

enum class Reduces { on_host, on_device };

/// Adds a number to each element, on a link that takes its time.
class DeviceTransport final : public LaneTransport {
 public:
  DeviceTransport(FakeDevice& device, Model& model, Reduces where)
      : device_(device), model_(model), where_(where) {
    for (const std::vector<int>& parameter : model.parameters) num_chunks_.push_back(parameter.size());
  }
  ~DeviceTransport() override {
    device_.drain();  // of its slots
    if (at_end) at_end();
  }

  std::size_t num_chunks(std::size_t op) override { return num_chunks_[op]; }
  bool is_kept_back(std::size_t op) override { return model_.kept_back.contains(op); }
  void take_snapshot(std::int64_t sequence, std::size_t op) override {
    if (is_kept_back(op)) device_.give([this, sequence, op] { kept_[sequence] = model_.parameters[op]; });
  }
  bool reduces_on_device() override { return where_ == Reduces::on_device; }
  void pack(const Chunk& chunk, std::size_t slot_index) override {
    if (chunk.sequence == cannot_pack) throw std::runtime_error("no such parameter");
    Slot& slot = slots_[slot_index];
    device_.give([this, &slot, chunk] {
      model_.expect(!slot.is_used, "a slot is packed again before it has been unpacked");
      slot.is_used = true;
      const auto& values = is_kept_back(chunk.op) ? kept_[chunk.sequence] : model_.parameters[chunk.op];
      const bool is_there = chunk.index < values.size();
      model_.expect(is_there, "an op is packed before its launch");
      slot.on_device = is_there ? values[chunk.index] : 0;
      if (where_ == Reduces::on_host) slot.on_host = slot.on_device;
    });
    {
      const std::lock_guard lock(mutex_);
      slot.is_reduced = false;
    }
  }
  void reduce(const Chunk& /*chunk*/, std::size_t slot_index) override {
    Slot& slot = slots_[slot_index];
    const EventPointer packed = device_.record();
    const auto scope = device_.enter("link");
    if (where_ == Reduces::on_device) {
      device_.wait(*packed);
      device_.give([&slot] { slot.on_device += added_by_peers; });
      slot.link_is_done = device_.record();
      return;
    }
    device_.give([this, &slot] {
      slot.on_host += added_by_peers;
      std::function<void()> notify;
      {
        const std::lock_guard lock(mutex_);
        slot.is_reduced = true;
        notify = std::exchange(slot.notify, nullptr);
      }
      if (notify) notify();
    });
  }
  void when_reduced(std::size_t slot_index, const std::function<void()>& notify) override {
    Slot& slot = slots_[slot_index];
    {
      const std::lock_guard lock(mutex_);
      if (where_ == Reduces::on_host && !slot.is_reduced) {
        slot.notify = notify;
        return;
      }
    }
    notify();
  }
  std::function<bool()> watch(const Chunk& chunk, std::size_t slot_index) override {
    return [this, chunk, link_is_done = slots_[slot_index].link_is_done] {
      if (!device_.is_over(*link_is_done)) return false;
      if (chunk.sequence == fails_at) throw std::runtime_error("peer 1 is gone");
      return true;
    };
  }
  void wait(const Chunk& /*chunk*/, std::size_t slot_index) override {
    if (where_ == Reduces::on_device) device_.wait(*slots_[slot_index].link_is_done);
  }
  void unpack(const Chunk& chunk, std::size_t slot_index) override {
    Slot& slot = slots_[slot_index];
    device_.give([this, &slot, chunk] {
      if (where_ == Reduces::on_host) slot.on_device = slot.on_host;
      slot.is_used = false;
      if (is_kept_back(chunk.op)) {
        kept_[chunk.sequence].resize(num_chunks(chunk.op));
        kept_[chunk.sequence][chunk.index] = slot.on_device;
      } else {
        model_.parameters[chunk.op][chunk.index] = slot.on_device;
      }
    });
  }
  void write(std::int64_t sequence, std::size_t op) override {
    device_.give([this, sequence, op] { model_.parameters[op] = kept_[sequence]; });
  }
  void abort() override {
    ++num_aborts;
    if (on_abort) on_abort();
    device_.go_on();
  }

  std::int64_t fails_at = -1;
  std::int64_t cannot_pack = -1;
  std::atomic<int> num_aborts = 0;
  std::function<void()> on_abort = nullptr;
  std::function<void()> at_end = nullptr;  ///< when it is destroyed

 private:
  std::vector<std::size_t> num_chunks_;  // the device writes the parameters while the lane asks
  struct Slot {
    bool is_used = false;
    int on_device = 0;
    int on_host = 0;
    EventPointer link_is_done = nullptr;
    bool is_reduced = false;
    std::function<void()> notify = nullptr;
  };
  FakeDevice& device_;
  Model& model_;
  const Reduces where_;
  std::array<Slot, num_slots> slots_;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<int>> kept_;  // snapshots, then means; of the device's thread
};

struct DeviceLane {
  std::shared_ptr<FakeDevice> device;
  DeviceTransport* transport;
  std::unique_ptr<Lane> lane;

  DeviceLane(Model& model, Reduces where, unsigned seed, bool is_held = false, LaneOptions options = {})
      : device(std::make_shared<FakeDevice>(seed, is_held)) {
    auto made = std::make_unique<DeviceTransport>(*device, model, where);
    transport = made.get();
    options.num_slots = num_slots;
    options.device = device;
    lane = std::make_unique<Lane>(std::move(made), std::move(options));
  }
  ~DeviceLane() {
    device->drain();
    lane.reset();
    device->drain();
  }
};

using Case = std::tuple<Reduces, unsigned>;

class LaneOnDevice : public ::testing::TestWithParam<Case> {
 protected:
  Reduces where() const { return std::get<0>(GetParam()); }
  unsigned seed() const { return std::get<1>(GetParam()); }
};

// Steps write all parameters; between launch and wait those of a kept op are read. Every read has the value
// that the order of the training says.
TEST_P(LaneOnDevice, TrainingAndLaneKeepTheOrder) {
  Model model{.parameters = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9}, {}, {10, 11}}, .kept_back = {1, 2}};
  const std::size_t num_ops = model.parameters.size();
  std::vector<std::vector<int>> expected = model.parameters;
  DeviceLane run(model, where(), seed());
  std::minstd_rand random(seed());
  std::vector<std::size_t> order(num_ops);
  for (std::size_t op = 0; op < num_ops; ++op) order[op] = op;
  const auto read = [&](std::size_t op) {
    run.device->give([&model, op, wanted = expected[op]] {
      model.expect(model.parameters[op] == wanted, "op " + std::to_string(op) + " is read with other values");
    });
  };
  std::int64_t sequence = 0;
  for (int iteration = 0; iteration < 8; ++iteration) {
    for (std::size_t op = 0; op < num_ops; ++op) {
      run.device->give([&model, op] {
        for (int& value : model.parameters[op]) value += 7;
      });
      for (int& value : expected[op]) value += 7;
    }
    std::ranges::shuffle(order, random);
    std::vector<std::pair<std::int64_t, std::size_t>> launched;
    for (const std::size_t op : order) {
      run.lane->launch(sequence, op);
      launched.emplace_back(sequence++, op);
    }
    for (const std::size_t op : model.kept_back) read(op);
    std::ranges::shuffle(launched, random);
    for (const auto& [number, op] : launched) {
      if (model.kept_back.contains(op)) {
        read(op);
        run.lane->release(number);
        read(op);
      }
      run.lane->wait(number);
      for (int& value : expected[op]) value += added_by_peers;
      read(op);
    }
  }
  run.device->drain();
  EXPECT_EQ(model.mistakes, std::set<std::string>{});
  EXPECT_EQ(model.parameters, expected);
  EXPECT_EQ(run.device->num_synchronised, 0);
}

INSTANTIATE_TEST_SUITE_P(AnyOrder, LaneOnDevice,
                         ::testing::Combine(::testing::Values(Reduces::on_host, Reduces::on_device),
                                            ::testing::Range(0u, 10u)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == Reduces::on_host ? "OnHost"
                                                                                          : "OnDevice") +
                                  std::to_string(std::get<1>(info.param));
                         });

// Executions of one op: the second is launched before the first is written.
TEST(LaneOnDevice, OverlappingExecutionsAreWrittenInOrder) {
  for (const Reduces where : {Reduces::on_host, Reduces::on_device}) {
    Model model{.parameters = {{1, 2}}, .kept_back = {0}};
    DeviceLane run(model, where, 3);
    run.lane->launch(0, 0);
    run.lane->wait_until_reduced(0);
    run.device->give([&] { model.parameters[0] = {5, 6}; });
    run.lane->launch(1, 0);
    run.lane->release(0);
    run.lane->release(1);
    run.lane->wait(1);
    EXPECT_TRUE(run.lane->is_finished(0));
    run.device->drain();
    EXPECT_EQ(model.parameters[0], (std::vector<int>{1005, 1006}));
  }
}

// Where reductions happen on the device, the training thread waits for nothing but the lane's thread.
TEST(LaneOnDevice, NothingBlocksWhileTheDeviceStandsStill) {
  Model model{.parameters = {{1, 2, 3}, {4, 5}, {6}}, .kept_back = {1}};
  std::atomic<int> num_told = 0;
  LaneOptions options;
  options.op_begins = options.op_ends = [&](std::int64_t, std::size_t) { ++num_told; };
  DeviceLane run(model, Reduces::on_device, 1, /*is_held=*/true, options);
  for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
    run.lane->launch(sequence, static_cast<std::size_t>(sequence));
  }
  run.lane->release(1);
  for (std::int64_t sequence = 0; sequence < 3; ++sequence) run.lane->wait(sequence);
  std::vector<std::vector<int>> seen;
  run.device->give([&] { seen = model.parameters; });
  EXPECT_EQ(num_told, 0);  // the device has done nothing yet
  EXPECT_EQ(model.parameters[0], (std::vector<int>{1, 2, 3}));
  run.device->go_on();
  run.device->drain();
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{{1001, 1002, 1003}, {1004, 1005}, {1006}}));
}

TEST(LaneOnDevice, TellsOfBeginAndEndInOrder) {
  for (const Reduces where : {Reduces::on_host, Reduces::on_device}) {
    Model model{.parameters = {{1, 2, 3}, {4}}};
    std::vector<std::string> told;
    Gate all_told;
    LaneOptions options;
    options.op_begins = [&](std::int64_t sequence, std::size_t) {
      told.push_back("begin " + std::to_string(sequence));
    };
    options.op_ends = [&](std::int64_t sequence, std::size_t) {
      told.push_back("end " + std::to_string(sequence));
      if (sequence == 1) all_told.open();
    };
    DeviceLane run(model, where, 2, false, options);
    run.lane->launch(0, 0);
    run.lane->launch(1, 1);
    all_told.pass();
    ASSERT_EQ(told.size(), 4u);
    EXPECT_EQ(told.front(), "begin 0");
    EXPECT_LT(std::ranges::find(told, "end 0"), std::ranges::find(told, "end 1"));
    EXPECT_LT(std::ranges::find(told, "begin 1"), std::ranges::find(told, "end 1"));
    run.lane->wait(1);
  }
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
  try {
    run.lane->launch(1, 1);
    FAIL() << "launched after a failure";
  } catch (const SyncError& error) {
    EXPECT_STREQ(error.what(), "peer 1 is gone");
  }
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
  try {
    run.lane->launch(1, 1);
    FAIL() << "launched after a failure";
  } catch (const SyncError& error) {
    EXPECT_STREQ(error.what(), "a reduction has not ended within its timeout");
  }
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
  try {
    run.lane->wait_until_done();
    FAIL() << "a failed reduction is not told";
  } catch (const SyncError& error) {
    EXPECT_STREQ(error.what(), "peer 1 is gone");
  }
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
  try {
    run.lane->wait_until_done();
    FAIL() << "a reduction that never ends is not told";
  } catch (const SyncError& error) {
    EXPECT_STREQ(error.what(), "a reduction has not ended within its timeout");
  }
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
  options.num_slots = num_slots;
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
