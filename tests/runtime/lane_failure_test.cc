#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "dreamddp/error.h"
#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::Call;
using testing::Gate;
using testing::Script;
using testing::scripted_lane;

std::string error_of_wait(Lane& lane, std::int64_t sequence) {
  try {
    lane.wait(sequence);
    return "";
  } catch (const SyncError& error) {
    return error.what();
  }
}

struct FailureCase {
  std::string kind;  // the call that throws
  std::int64_t sequence;
  std::size_t chunk;
  std::size_t num_slots;
};

class LaneFailure : public ::testing::TestWithParam<FailureCase> {};

TEST_P(LaneFailure, ExactlyTheChunksInFrontAreUnpacked) {
  const FailureCase failing = GetParam();
  const std::size_t chunks_per_op = 3;
  Script script{.num_chunks = {chunks_per_op, chunks_per_op, chunks_per_op}};
  Gate launched;
  script.before = [&](const Call& call) {
    if (call.kind == "begin" && call.sequence == 0) launched.pass();
    if (call == Call{failing.kind, failing.sequence, failing.chunk})
      throw std::runtime_error("peer 1 is gone");
  };
  {
    Lane lane = scripted_lane(script, failing.num_slots);
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) lane.launch(sequence, sequence);
    launched.open();
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
      const bool fails = sequence >= failing.sequence;
      EXPECT_EQ(error_of_wait(lane, sequence), fails ? "peer 1 is gone" : "");
      EXPECT_EQ(lane.is_finished(sequence), !fails);
    }
    EXPECT_THROW(lane.launch(3, 0), SyncError);
    EXPECT_EQ(error_of_wait(lane, 3), "peer 1 is gone");
    EXPECT_EQ(error_of_wait(lane, 2), "peer 1 is gone");
  }
  std::vector<Call> expected;
  for (std::int64_t sequence = 0; sequence <= failing.sequence; ++sequence) {
    const std::size_t end = sequence < failing.sequence ? chunks_per_op : failing.chunk;
    for (std::size_t chunk = 0; chunk < end; ++chunk) expected.push_back({"unpack", sequence, chunk});
  }
  EXPECT_EQ(script.calls_of("unpack"), expected);
  // All that was under way has been waited for: the staging buffers are free.
  const std::size_t failed_waits = failing.kind == "wait" ? 1 : 0;
  EXPECT_EQ(script.calls_of("wait").size() + failed_waits, script.calls_of("pack").size());
  // What came behind the failure was packed only as far as the slots reach.
  EXPECT_LE(script.calls_of("pack").size(), expected.size() + failing.num_slots);
}

std::vector<FailureCase> failure_cases() {
  std::vector<FailureCase> cases;
  for (const char* kind : {"pack", "wait", "unpack"}) {
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
      for (std::size_t chunk = 0; chunk < 3; ++chunk) {
        for (const std::size_t num_slots : {1, 2, 5}) cases.push_back({kind, sequence, chunk, num_slots});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(EveryCall, LaneFailure, ::testing::ValuesIn(failure_cases()), [](const auto& info) {
  const FailureCase& failing = info.param;
  return failing.kind + "_" + std::to_string(failing.sequence) + "_" + std::to_string(failing.chunk) +
         "_slots_" + std::to_string(failing.num_slots);
});

TEST(LaneFailure, ErrorsBehindTheFirstAreSwallowed) {
  Script script{.num_chunks = {4}};
  script.before = [](const Call& call) {
    if (call.kind == "wait") throw std::runtime_error("chunk " + std::to_string(call.chunk));
  };
  Lane lane = scripted_lane(script, 4);
  lane.launch(0, 0);
  EXPECT_EQ(error_of_wait(lane, 0), "chunk 0");
}

TEST(LaneFailure, ReductionThatFailsInFrontOfAFailedPackWins) {
  Script script{.num_chunks = {3}};
  script.before = [](const Call& call) {
    if (call == Call{"pack", 0, 2}) throw std::runtime_error("pack 2");
    if (call == Call{"wait", 0, 0}) throw std::runtime_error("wait 0");
  };
  Lane lane = scripted_lane(script, 3);
  lane.launch(0, 0);
  EXPECT_EQ(error_of_wait(lane, 0), "wait 0");
}

// The reduction in front never ends: its timeout tells of the pack that failed behind it.
TEST(LaneFailure, FailedPackIsToldWhenAChunkInFrontIsLate) {
  Script script{.num_chunks = {2}};
  script.before = [](const Call& call) {
    if (call == Call{"pack", 0, 1}) throw std::runtime_error("pack 1");
  };
  std::function<void()> notify;
  script.when_reduced = [&](const std::function<void()>& given) { notify = given; };
  LaneOptions options;
  options.timeout = std::chrono::milliseconds(20);
  std::vector<bool> told;
  options.is_late = [&](const Lateness& late) -> std::optional<std::string> {
    told.push_back(late.has_timed_out);
    if (told.size() == 2) return std::nullopt;  // another timeout for the chunk
    return "late";
  };
  {
    Lane lane = scripted_lane(script, 2, std::chrono::minutes(10), options);
    lane.launch(0, 0);
    EXPECT_EQ(error_of_wait(lane, 0), "pack 1");
    notify();
  }
  EXPECT_EQ(told, (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(script.calls_of("wait").size(), 1u);
  EXPECT_TRUE(script.calls_of("unpack").empty());
}

TEST(LaneFailure, TransportThatCannotNotifyFailsTheLane) {
  Script script{.num_chunks = {1}};
  script.when_reduced = [](const std::function<void()>&) { throw std::runtime_error("no future"); };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.launch(1, 0);
  EXPECT_EQ(error_of_wait(lane, 1), "no future");
  EXPECT_EQ(error_of_wait(lane, 0), "");  // it has been waited for, and is there
}

TEST(LaneFailure, UnknownOpOfThePlan) {
  Script script{.num_chunks = {1}};
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.launch(1, 9);  // num_chunks() throws
  EXPECT_THROW(lane.wait(1), SyncError);
  EXPECT_EQ(error_of_wait(lane, 0), "");
}

TEST(LaneFailure, RecorderThatThrowsFailsTheLane) {
  for (const char* kind : {"begin", "end"}) {
    Script script{.num_chunks = {1}};
    script.before = [kind](const Call& call) {
      if (call.kind == kind) throw std::runtime_error("recorder");
    };
    Lane lane = scripted_lane(script);
    lane.launch(0, 0);
    EXPECT_EQ(error_of_wait(lane, 0), "recorder");
  }
}

TEST(LaneFailure, ThrownValueThatIsNoException) {
  Script script{.num_chunks = {1}};
  script.before = [](const Call& call) {
    if (call.kind == "wait") throw 42;
  };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  EXPECT_EQ(error_of_wait(lane, 0), "unknown error in the lane");
}

TEST(LaneAbort, WaitersReturnWhileTheTransportBlocks) {
  Script script{.num_chunks = {1, 1}};
  Gate blocked;
  Gate go_on;
  script.before = [&](const Call& call) {
    if (call == Call{"wait", 0, 0}) {
      blocked.open();
      go_on.pass();
    }
  };
  {
    Lane lane = scripted_lane(script);
    lane.launch(0, 0);
    lane.launch(1, 1);
    blocked.pass();
    std::thread aborter([&lane] { lane.abort("interrupted by the user"); });
    EXPECT_EQ(error_of_wait(lane, 0), "interrupted by the user");
    EXPECT_EQ(error_of_wait(lane, 1), "interrupted by the user");
    EXPECT_THROW(lane.launch(2, 0), SyncError);
    aborter.join();
    lane.abort("too late");
    EXPECT_EQ(error_of_wait(lane, 0), "interrupted by the user");
    go_on.open();
  }
  EXPECT_TRUE(script.calls_of("unpack").empty());
}

TEST(LaneFailure, WaitUntilDoneTellsOfTheFirst) {
  Script script{.num_chunks = {1, 1}};
  script.before = [](const Call& call) {
    if (call == Call{"wait", 1, 0}) throw std::runtime_error("wait 1");
  };
  Lane lane = scripted_lane(script);
  lane.wait_until_done();
  lane.launch(0, 0);
  lane.wait_until_done();
  EXPECT_TRUE(lane.is_finished(0));
  lane.launch(1, 1);
  EXPECT_THROW(lane.wait_until_done(), SyncError);
  lane.wait_until_done();  // it has been told
  EXPECT_EQ(error_of_wait(lane, 1), "wait 1");
}

TEST(LaneAbort, IdleLane) {
  Script script{.num_chunks = {1}};
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.wait(0);
  lane.abort("stop");
  EXPECT_EQ(error_of_wait(lane, 0), "");
  lane.wait_until_done();
  EXPECT_THROW(lane.launch(1, 0), SyncError);
  EXPECT_EQ(error_of_wait(lane, 1), "stop");
}

TEST(LaneDestructor, WaitsForChunksUnderWayAndDropsTheRest) {
  Script script{.num_chunks = {1, 1, 1, 1}};
  Gate blocked;
  Gate go_on;
  script.before = [&](const Call& call) {
    if (call == Call{"wait", 0, 0}) {
      blocked.open();
      go_on.pass();
    }
  };
  std::thread opener;
  {
    Lane lane = scripted_lane(script);
    lane.launch(0, 0);
    blocked.pass();
    for (std::int64_t sequence = 1; sequence < 4; ++sequence) lane.launch(sequence, sequence);
    opener = std::thread([&go_on] { go_on.open(); });
  }
  opener.join();
  EXPECT_EQ(script.calls_of("wait").size(), script.calls_of("pack").size());
  EXPECT_GE(script.calls_of("wait").size(), 1u);
}

TEST(LaneDestructor, LeavesTheThreadToItselfAfterTheGrace) {
  Script script{.num_chunks = {2}};
  Gate blocked;
  Gate go_on;
  Gate ended;
  script.before = [&](const Call& call) {
    if (call == Call{"wait", 0, 0}) {
      blocked.open();
      go_on.pass();
    }
  };
  script.at_end = [&ended] { ended.open(); };
  {
    Lane lane = scripted_lane(script, 2, std::chrono::milliseconds(0));
    lane.launch(0, 0);
    blocked.pass();
  }
  go_on.open();  // only now: the destructor has not waited for it
  ended.pass();
  EXPECT_EQ(script.calls_of("wait").size(), 2u);
  EXPECT_TRUE(script.calls_of("unpack").empty());
}

TEST(LaneDestructor, OfAFreshAndOfAFailedLane) {
  Script script{.num_chunks = {1}};
  { Lane lane = scripted_lane(script); }
  script.before = [](const Call&) { throw std::runtime_error("always"); };
  {
    Lane lane = scripted_lane(script);
    lane.launch(0, 0);
  }
  EXPECT_TRUE(script.calls.empty());
}

}  // namespace
}  // namespace dreamddp
