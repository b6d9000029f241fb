// Held and carried averages, whose means the lane keeps until they may be written; and chunks that are late.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "dreamddp/error.h"
#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::Call;
using testing::Gate;
using testing::Script;
using testing::scripted_lane;

constexpr std::chrono::milliseconds long_grace = std::chrono::minutes(10);

TEST(LaneKeptBack, IsWrittenWhenReleasedAndNotBefore) {
  Script script{.num_chunks = {2, 1}, .kept_back = {0}};
  Gate written;
  script.before = [&](const Call& call) {
    if (call.kind == "write") written.open();
  };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.launch(1, 1);
  lane.wait(1);  // the lane works in order, so op 0 has been reduced too
  EXPECT_TRUE(script.calls_of("write").empty());
  EXPECT_FALSE(lane.is_finished(0));
  lane.release(0);
  written.pass();  // by the lane itself: nobody waits for it
  lane.wait(0);
  EXPECT_EQ(script.calls_of("write"), (std::vector<Call>{{"write", 0, 0}}));
  EXPECT_EQ(script.calls_of("unpack").size(), 3u);
}

TEST(LaneKeptBack, IsWrittenAfterItsLastChunkWhereItWasReleasedBefore) {
  Script script{.num_chunks = {3}, .kept_back = {0}};
  Gate released;
  script.before = [&](const Call& call) {
    if (call.kind == "begin") released.pass();
  };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.release(0);
  released.open();
  lane.wait(0);
  EXPECT_EQ(script.calls.back(), (Call{"write", 0, 0}));
}

TEST(LaneKeptBack, SnapshotIsTakenBeforeLaunchReturns) {
  Script script{.num_chunks = {1}, .kept_back = {0}};
  const std::thread::id launcher = std::this_thread::get_id();
  std::atomic<bool> on_launcher = false;
  Gate snapshot_taken;
  script.before = [&](const Call& call) {
    if (call.kind == "snapshot") on_launcher = std::this_thread::get_id() == launcher;
    if (call.kind == "begin") snapshot_taken.pass();
  };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  EXPECT_EQ(script.calls_of("snapshot").size(), 1u);
  EXPECT_TRUE(on_launcher);
  snapshot_taken.open();
  lane.release(0);
  lane.wait(0);
}

// The lane's thread is busy with a later op: whoever waits writes the mean itself.
TEST(LaneKeptBack, WaiterWritesWhileTheLaneBlocks) {
  Script script{.num_chunks = {1, 1}, .kept_back = {0}};
  Gate blocked;
  Gate go_on;
  script.before = [&](const Call& call) {
    if (call == Call{"wait", 1, 0}) {
      blocked.open();
      go_on.pass();
    }
  };
  Lane lane = scripted_lane(script, 1);
  lane.launch(0, 0);
  lane.launch(1, 1);
  blocked.pass();
  lane.release(0);
  lane.wait(0);
  EXPECT_TRUE(lane.is_finished(0));
  EXPECT_FALSE(lane.is_finished(1));
  go_on.open();
}

// What the first writes may change what the second one keeps.
TEST(LaneKeptBack, ExecutionsOfOneOpAreWrittenInOrder) {
  Script script{.num_chunks = {1}, .kept_back = {0}};
  Gate first_is_being_written;
  Gate go_on;
  script.before = [&](const Call& call) {
    if (call != Call{"write", 0, 0}) return;
    first_is_being_written.open();
    go_on.pass();
  };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.launch(1, 0);
  lane.wait_until_reduced(1);
  lane.release(1);
  lane.release(0);
  std::thread second([&] { lane.wait(1); });
  first_is_being_written.pass();
  EXPECT_TRUE(script.calls_of("write").empty());
  EXPECT_FALSE(lane.is_finished(1));
  go_on.open();
  second.join();
  EXPECT_EQ(script.calls_of("write"), (std::vector<Call>{{"write", 0, 0}, {"write", 1, 0}}));
}

TEST(LaneKeptBack, AdoptedIsWrittenWhenReleased) {
  Script script{.num_chunks = {2, 1}, .kept_back = {0}};
  Lane lane = scripted_lane(script);
  lane.adopt(-1, 0);
  lane.wait_until_reduced(-1);
  lane.launch(0, 1);
  lane.wait(0);
  EXPECT_FALSE(lane.is_finished(-1));
  EXPECT_TRUE(script.calls_of("write").empty());
  lane.release(-1);
  lane.wait(-1);
  EXPECT_EQ(script.calls_of("write"), (std::vector<Call>{{"write", -1, 0}}));
  EXPECT_EQ(script.calls_of("pack").size(), 1u);  // of op 1
  EXPECT_THROW(lane.adopt(-1, 0), std::invalid_argument);
}

TEST(LaneKeptBack, IsNeverWrittenAfterAFailure) {
  Script script{.num_chunks = {1, 1}, .kept_back = {0}};
  script.before = [](const Call& call) {
    if (call == Call{"wait", 1, 0}) throw std::runtime_error("peer 1 is gone");
  };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.launch(1, 1);
  EXPECT_THROW(lane.wait(1), SyncError);
  lane.release(0);
  EXPECT_THROW(lane.wait(0), SyncError);
  EXPECT_TRUE(script.calls_of("write").empty());
}

TEST(LaneKeptBack, WriteThatFailsIsTheLanesFailure) {
  Script script{.num_chunks = {1}, .kept_back = {0}};
  script.before = [](const Call& call) {
    if (call.kind == "write") throw std::runtime_error("no such device");
  };
  Lane lane = scripted_lane(script);
  lane.launch(0, 0);
  lane.release(0);
  EXPECT_THROW(lane.wait(0), SyncError);
  EXPECT_THROW(lane.launch(1, 0), SyncError);
}

TEST(LaneKeptBack, BadInputIsRejected) {
  Script script{.num_chunks = {1, 1}, .kept_back = {0}};
  Lane lane = scripted_lane(script);
  EXPECT_THROW(lane.release(0), std::invalid_argument);
  lane.launch(0, 0);
  EXPECT_THROW(lane.wait(0), std::invalid_argument);
  lane.launch(1, 1);
  EXPECT_THROW(lane.release(1), std::invalid_argument);
  lane.release(0);
  lane.wait(0);
  EXPECT_THROW(lane.release(0), std::invalid_argument);
}

// Reductions that end on threads of their own: new ops are packed while the lane waits for older ones.
TEST(LaneAsynchronous, PacksWhileOlderChunksAreUnderWay) {
  Script script{.num_chunks = {1, 1}};
  std::vector<std::function<void()>> notifications;
  std::mutex mutex;
  Gate first_is_packed;
  Gate second_is_packed;
  script.when_reduced = [&](const std::function<void()>& notify) {
    const std::lock_guard lock(mutex);
    notifications.push_back(notify);
    (notifications.size() == 1 ? first_is_packed : second_is_packed).open();
  };
  Lane lane = scripted_lane(script, 2);
  lane.launch(0, 0);
  first_is_packed.pass();
  lane.launch(1, 1);
  second_is_packed.pass();
  EXPECT_TRUE(script.calls_of("wait").empty());
  notifications[1]();  // out of order: unpacked in order all the same
  notifications[0]();
  lane.wait(1);
  EXPECT_EQ(script.calls_of("unpack"), (std::vector<Call>{{"unpack", 0, 0}, {"unpack", 1, 0}}));
}

TEST(LaneTimeout, WarnsAtHalfAndFailsAtTheWholeOfIt) {
  Script script{.num_chunks = {1}};
  script.when_reduced = [](const std::function<void()>&) {};  // never
  LaneOptions options;
  options.timeout = std::chrono::milliseconds(20);
  std::vector<bool> has_timed_out;
  options.is_late = [&](const Lateness& late) -> std::optional<std::string> {
    has_timed_out.push_back(late.has_timed_out);
    EXPECT_GE(late.elapsed.count(), late.has_timed_out ? 0.02 : 0.01);
    return "rank 1 is late";
  };
  Lane lane = scripted_lane(script, 2, std::chrono::milliseconds(0), options);
  lane.launch(0, 0);
  EXPECT_THROW(lane.wait(0), SyncError);
  EXPECT_EQ(has_timed_out, (std::vector<bool>{false, true}));
}

TEST(LaneTimeout, GivesMoreTimeWhereNothingIsWrong) {
  Script script{.num_chunks = {1}};
  std::function<void()> notify;
  script.when_reduced = [&](const std::function<void()>& given) { notify = given; };
  LaneOptions options;
  options.timeout = std::chrono::milliseconds(10);
  int num_timeouts = 0;
  options.is_late = [&](const Lateness& late) -> std::optional<std::string> {
    if (late.has_timed_out && ++num_timeouts == 3) notify();  // the peer has come back
    return std::nullopt;
  };
  Lane lane = scripted_lane(script, 2, long_grace, options);
  lane.launch(0, 0);
  lane.wait(0);
  EXPECT_GE(num_timeouts, 3);
}

}  // namespace
}  // namespace dreamddp
