#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>

#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::Call;
using testing::Gate;
using testing::Script;
using testing::scripted_lane;

/// Lets the lane begin only when all ops have been launched.
std::function<void(const Call&)> first_begin_passes(Gate& gate) {
  return [&gate](const Call& call) {
    if (call.kind == "begin" && call.sequence == 0) gate.pass();
  };
}

std::vector<std::string> to_strings(const std::vector<Call>& calls) {
  std::vector<std::string> texts;
  for (const Call& call : calls) texts.push_back(to_string(call));
  return texts;
}

TEST(LaneOrder, TwoSlotsAcrossTwoOps) {
  Script script{.num_chunks = {2, 1}};
  Gate launched;
  script.before = first_begin_passes(launched);
  Lane lane = scripted_lane(script, 2);
  lane.launch(0, 0);
  lane.launch(1, 1);
  launched.open();
  lane.wait(1);
  const std::vector<std::string> expected = {
      "begin 0.0", "pack 0.0",   "pack 0.1", "wait 0.0", "unpack 0.0", "begin 1.0", "pack 1.0",
      "wait 0.1",  "unpack 0.1", "end 0.0",  "wait 1.0", "unpack 1.0", "end 1.0"};
  EXPECT_EQ(to_strings(script.calls), expected);
}

TEST(LaneOrder, OneSlotCarriesOutOneChunkAtATime) {
  Script script{.num_chunks = {2}};
  Lane lane = scripted_lane(script, 1);
  lane.launch(0, 0);
  lane.wait(0);
  const std::vector<std::string> expected = {"begin 0.0", "pack 0.0", "wait 0.0",   "unpack 0.0",
                                             "pack 0.1",  "wait 0.1", "unpack 0.1", "end 0.0"};
  EXPECT_EQ(to_strings(script.calls), expected);
}

TEST(LaneOrder, OpWithoutChunksEndsBehindThoseInFrontOfIt) {
  Script script{.num_chunks = {1, 0, 1}};
  Gate launched;
  script.before = first_begin_passes(launched);
  Lane lane = scripted_lane(script, 2);
  lane.launch(0, 0);
  lane.launch(1, 1);
  lane.launch(2, 2);
  launched.open();
  lane.wait(2);
  const std::vector<std::string> expected = {"begin 0.0", "pack 0.0", "begin 1.0",  "begin 2.0",
                                             "pack 2.0",  "wait 0.0", "unpack 0.0", "end 0.0",
                                             "end 1.0",   "wait 2.0", "unpack 2.0", "end 2.0"};
  EXPECT_EQ(to_strings(script.calls), expected);
}

TEST(LaneOrder, OpWithoutChunksAloneEnds) {
  Script script{.num_chunks = {0}};
  Lane lane = scripted_lane(script);
  lane.launch(7, 0);
  lane.wait(7);
  EXPECT_TRUE(lane.is_finished(7));
}

TEST(LaneOrder, OpsAreTakenFromThePlanByIndex) {
  Script script{.num_chunks = {1, 3}};
  Lane lane = scripted_lane(script);
  for (std::int64_t sequence = 0; sequence < 4; ++sequence) lane.launch(sequence, sequence % 2);
  lane.wait(3);
  EXPECT_EQ(script.calls_of("unpack").size(), 1 + 3 + 1 + 3);
}

// Every wait needs the pack of the chunk num_slots - 1 places further on: a lane that does not overlap them
// never comes to an end.
TEST(LaneOrder, ChunksOverlapAcrossOps) {
  for (std::size_t num_slots = 2; num_slots <= 8; ++num_slots) {
    Script script{.num_chunks = {3, 1, 2, 5}};
    const std::size_t num_chunks = 11;
    std::vector<Gate> packed(num_chunks);
    std::size_t num_packed = 0;
    std::size_t num_waited = 0;
    Gate launched;
    script.before = [&](const Call& call) {
      if (call.kind == "begin" && call.sequence == 0) launched.pass();
      if (call.kind == "pack") packed[num_packed++].open();
      if (call.kind == "wait") packed[std::min(num_waited++ + num_slots - 1, num_chunks - 1)].pass();
    };
    Lane lane = scripted_lane(script, num_slots);
    for (std::int64_t sequence = 0; sequence < 4; ++sequence) lane.launch(sequence, sequence);
    launched.open();
    lane.wait(3);
    EXPECT_EQ(num_packed, num_chunks);
    EXPECT_EQ(num_waited, num_chunks);
  }
}

TEST(LaneOrder, OpFinishesOnlyWithItsLastUnpack) {
  Script script{.num_chunks = {2}};
  Gate reached;
  Gate go_on;
  script.before = [&](const Call& call) {
    if (call == Call{"unpack", 0, 1}) {
      reached.open();
      go_on.pass();
    }
  };
  Lane lane = scripted_lane(script);
  EXPECT_FALSE(lane.is_finished(0));
  lane.launch(0, 0);
  reached.pass();
  EXPECT_FALSE(lane.is_finished(0));
  go_on.open();
  lane.wait(0);
  EXPECT_TRUE(lane.is_finished(0));
}

TEST(LaneOrder, BadInputIsRejected) {
  Script script{.num_chunks = {1}};
  EXPECT_THROW(scripted_lane(script, 0), std::invalid_argument);
  Lane lane = scripted_lane(script);
  EXPECT_THROW(lane.wait(0), std::invalid_argument);
  lane.launch(3, 0);
  EXPECT_THROW(lane.launch(3, 0), std::invalid_argument);
  EXPECT_THROW(lane.launch(2, 0), std::invalid_argument);
  EXPECT_THROW(lane.wait(4), std::invalid_argument);
  lane.wait(3);
}

// Whatever the ops: each chunk is packed, waited for and unpacked once, each of the three in launch order;
// no slot is packed before what it held has been unpacked; no more chunks are under way than slots.
TEST(LaneOrder, HoldsForRandomOps) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Script script;
    const std::size_t num_ops = 1 + random() % 20;
    for (std::size_t op = 0; op < num_ops; ++op) script.num_chunks.push_back(random() % 6);
    const std::size_t num_slots = 1 + random() % 8;

    std::map<std::size_t, Call> held_by_slot;
    bool slots_are_sound = true;
    script.with_slot = [&](const Call& call, std::size_t slot) {
      if (call.kind == "pack") {
        slots_are_sound = slots_are_sound && slot < num_slots && held_by_slot.emplace(slot, call).second;
        return;
      }
      const auto held = held_by_slot.find(slot);
      slots_are_sound = slots_are_sound && held != held_by_slot.end() &&
                        held->second == Call{"pack", call.sequence, call.chunk};
      if (call.kind == "unpack") held_by_slot.erase(slot);
    };
    std::vector<std::int64_t> launched;
    {
      Lane lane = scripted_lane(script, num_slots);
      for (std::size_t i = 0; i < 3 * num_ops; ++i) {
        launched.push_back(static_cast<std::int64_t>(i));
        lane.launch(launched.back(), i % num_ops);
        if (random() % 4 == 0) {
          const std::int64_t waited_for = launched[random() % launched.size()];
          lane.wait(waited_for);
          EXPECT_TRUE(lane.is_finished(waited_for));
        }
      }
      lane.wait(launched.back());
    }
    EXPECT_TRUE(slots_are_sound) << "seed " << seed;
    for (const char* kind : {"pack", "wait", "unpack"}) {
      std::vector<Call> expected;
      for (const std::int64_t sequence : launched) {
        for (std::size_t chunk = 0; chunk < script.num_chunks[sequence % num_ops]; ++chunk) {
          expected.push_back({kind, sequence, chunk});
        }
      }
      EXPECT_EQ(to_strings(script.calls_of(kind)), to_strings(expected)) << "seed " << seed;
    }
    for (const char* kind : {"begin", "end"}) {
      std::vector<Call> expected;
      for (const std::int64_t sequence : launched) expected.push_back({kind, sequence, 0});
      EXPECT_EQ(to_strings(script.calls_of(kind)), to_strings(expected)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace dreamddp
