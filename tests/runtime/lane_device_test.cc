// The order of a lane's and a training's work on a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "device_lane.h"
#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::DeviceLane;
using testing::Gate;
using testing::Model;
using testing::Reduces;

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
      for (int& value : expected[op]) value += testing::added_by_peers;
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

}  // namespace
}  // namespace dreamddp
