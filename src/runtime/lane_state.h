// What a lane is made of. lane_state.cc has what any thread calls, lane_thread.cc what the lane's thread
// does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "runtime/kept_back_ops.h"
#include "runtime/lane.h"

namespace dreamddp {

// Note [The lane on a device]
//
// On a device (a GPU) the training thread gives work to its current stream and runs ahead of it, and so does
// the lane's thread with a stream of the lane's own. Then
// - launch() records an event on the launching thread's stream, and the lane's stream waits for it before the
//   op is packed: work that was given before may still write or read the parameters.
// - Where reductions happen on the device, pack, reduce, wait and unpack are left to the lane's stream as
//   soon as the op is launched. A slot is packed again in the order of that stream. The lane's thread then
//   watches how the device gets on: that is how it tells of begin and end, of failures and of lateness.
// - Where they happen on the host, a reduction is started when the event behind its pack is over, which the
//   lane's thread looks for now and then, and chunks are unpacked when the reduction has ended, as on a CPU.
// - wait() blocks until the op's last unpack has been left to the lane's stream, and then has the calling
//   thread's stream wait for the event behind it. So it blocks for the link where reductions happen on the
//   host, and hardly at all where they happen on the device.
// - The means of an op that is kept back are written by the thread that waits for it, to its current stream:
//   behind all reads that it has been given, in front of all that follow.
// No stream ever waits for work that is given later than its own, so none waits for ever.

struct QueuedOp {
  std::int64_t sequence;
  std::size_t op;
  EventPointer launched;
};

/// An op whose chunks are being carried out.
struct BegunOp {
  std::int64_t sequence;
  std::size_t op;
  std::size_t num_chunks;
  std::size_t num_packed = 0;
  std::size_t num_unpacked = 0;
};

/// How long the oldest chunk under way has been that.
struct OldestSince {
  std::chrono::steady_clock::time_point time;  ///< or when it was last given more time
  bool has_warned = false;
};

struct ChunkUnderWay {
  Chunk chunk;
  std::size_t slot;
  std::int64_t ticket;
  OldestSince since;
  EventPointer packed;  ///< null: it has been
  bool is_reducing = false;
};

/// A chunk all of whose work has been left to the lane's stream.
struct IssuedChunk {
  Chunk chunk;
  OldestSince since;
  EventPointer packed;
  EventPointer unpacked;
  std::function<bool()> is_reduced;
  bool ends_op;
  bool is_packed = false;
};

/// The oldest chunk whose reduction has not ended; null where there is none, or its values are not packed
/// yet.
struct Oldest {
  const Chunk* chunk = nullptr;
  OldestSince* since = nullptr;
};

/// The text of the exception that `action` throws, or nothing.
template <typename Action>
std::optional<std::string> error_of(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown error in the lane";
  }
}

struct Lane::State : std::enable_shared_from_this<Lane::State> {
  /// @throws std::invalid_argument for no slots
  State(std::unique_ptr<LaneTransport> transport, LaneOptions options);

  // -- Called from any thread.

  void launch(std::int64_t sequence, std::size_t op);
  void adopt(std::int64_t sequence, std::size_t op);
  void wait_until_reduced(std::int64_t sequence);
  void release(std::int64_t sequence);
  void wait(std::int64_t sequence, const std::function<void()>& check);
  void wait_until_done(const std::function<void()>& check);
  bool is_finished(std::int64_t sequence) const;
  /// The first failure stays. No chunk is packed or unpacked after it.
  void fail(const std::string& text);
  bool has_failed() const;
  /// @return whether the op is kept back
  bool check_launch(std::int64_t sequence, std::size_t op);
  void chunk_is_reduced(std::int64_t ticket);
  /// A place in the work of the calling thread's current stream; null without a device.
  EventPointer record() const;
  /// Has the calling thread's current stream wait; nothing without an event.
  void await(const EventPointer& event) const;

  // -- With the mutex held.

  bool was_launched(std::int64_t sequence) const { return last_launched && sequence <= *last_launched; }
  bool finished(std::int64_t sequence) const {
    return was_launched(sequence) && !unfinished.contains(sequence);
  }
  void finish(std::int64_t sequence, EventPointer end);
  bool is_done() const;
  [[noreturn]] void throw_failure();
  /// Waits for op_finishes until the predicate holds, and calls `check` now and then with the mutex released.
  template <typename Predicate>
  void block_until(std::unique_lock<std::mutex>& lock, const std::function<void()>& check,
                   Predicate predicate);
  /// Writes a kept op, with the mutex released meanwhile.
  void write(std::int64_t sequence, std::unique_lock<std::mutex>& lock);

  // -- On the lane's thread.

  void run();
  void carry_out();
  void end_chunks_under_way();
  bool has_chunk_to_pack();
  std::optional<QueuedOp> take_queued();
  void pack_next();
  void reduce(ChunkUnderWay& chunk);
  void notify_when_reduced(const ChunkUnderWay& chunk);
  bool reduce_packed();
  bool oldest_is_reduced() const;
  void await_oldest();
  bool write_next();
  void complete_oldest();
  void tell_begin(const Chunk& chunk);
  void end_completed_ops();
  void follow(IssuedChunk chunk);
  void follow_issued();
  void abort_issued();
  bool must_look_again() const;
  void wait_for_work();
  Oldest oldest();
  std::chrono::steady_clock::time_point late_at(const OldestSince& since) const;
  void oldest_is_late(const Oldest& oldest);

  const std::unique_ptr<LaneTransport> transport;
  const LaneOptions options;
  DeviceStream* const device;    ///< of the options; may be null
  const bool reduces_on_device;  ///< only with a device

  mutable std::mutex mutex;              // guards the members up to the next gap
  std::condition_variable work_arrives;  // for the lane's thread
  std::condition_variable op_finishes;
  std::condition_variable thread_ends;
  bool has_ended = false;
  std::deque<QueuedOp> queue;  // launched and not begun
  std::set<std::int64_t> unfinished;
  KeptBackOps kept_back;                       // launched and not written
  std::map<std::size_t, EventPointer> writes;  // of ops that are kept back, behind the last one
  std::map<std::int64_t, EventPointer> ends;   // of finished ops that the device may still be busy with
  std::set<std::int64_t> reduced;              // tickets of chunks under way
  std::size_t num_issued = 0;  // chunks left to the device that are not known to have ended well
  std::optional<std::int64_t> last_launched;
  std::optional<std::string> failure;
  bool failure_is_told = false;  // thrown by some call

  // Of the lane's thread alone.
  std::deque<BegunOp> begun;            // in order; all but the last have been packed
  std::deque<ChunkUnderWay> under_way;  // packed and not waited for, oldest first
  std::deque<IssuedChunk> issued;       // unpacked, as far as the lane's thread is concerned, oldest first
  std::optional<std::string> held_back_failure;  // told when the chunks in front of it have ended
  bool is_aborted = false;
  std::size_t next_slot = 0;
  std::int64_t next_ticket = 0;
};

}  // namespace dreamddp
