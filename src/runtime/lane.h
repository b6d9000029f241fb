// The one place where launched ops are carried out: in order, in chunks, through a ring of staging buffers.
//
// Design section 8. The lane knows nothing of tensors and process groups: a LaneTransport packs, reduces and
// unpacks. So its order, its error handling and its threads are tested without torch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "runtime/device_stream.h"

namespace dreamddp {

/// A part of an op that fits into one staging buffer.
struct Chunk {
  std::int64_t sequence = 0;  ///< of the op (OpRun::sequence)
  std::size_t op = 0;         ///< index into plan.ops
  std::size_t index = 0;      ///< of the chunk within the op
};

/// What the lane needs to carry out a chunk. Calls come from the lane's thread, but for take_snapshot() and
/// write(), which may come from any other, at the same time; never two for the same execution of an op.
///
/// Where there is a DeviceStream, calls may leave work to the calling thread's current stream, and return
/// before it is done. See Note [The lane on a device] in lane_state.h.
class LaneTransport {
 public:
  virtual ~LaneTransport() = default;

  /// How many chunks op `op` of the plan has; at least 0 (an op without elements finishes at once).
  virtual std::size_t num_chunks(std::size_t op) = 0;
  /// Whether the means of the op are kept back until they may be written: held and carried averages. For
  /// these unpack() keeps the mean of a chunk, and write() writes that of all chunks to the parameters.
  virtual bool is_kept_back(std::size_t /*op*/) { return false; }
  /// The op is being launched; compute goes on when this returns. For what must be copied before that.
  virtual void take_snapshot(std::int64_t /*sequence*/, std::size_t /*op*/) {}
  /// Whether reduce(), wait() and unpack() only leave work to streams, in their order, so that none of them
  /// blocks until the values are there. Else reduce() reads values on the host. Asked once.
  virtual bool reduces_on_device() { return false; }
  /// Copies the chunk from the parameters into staging buffer `slot`.
  virtual void pack(const Chunk& chunk, std::size_t slot) = 0;
  /// Starts reducing it over all ranks. Does not wait for the reduction.
  virtual void reduce(const Chunk& chunk, std::size_t slot) = 0;
  /// Calls `notify`, once and from any thread, when the reduction in `slot` has ended, well or not; at the
  /// latest when wait() would return. The default is at once: the lane then blocks in wait(). An exception
  /// counts as a notification, and fails the lane behind this chunk.
  virtual void when_reduced(std::size_t /*slot*/, const std::function<void()>& notify) { notify(); }
  /// Where it reduces on the device, called before wait(): a function that says whether the reduction has
  /// ended, and throws where it failed. It may outlive the chunk's use of the slot.
  virtual std::function<bool()> watch(const Chunk& /*chunk*/, std::size_t /*slot*/) { return {}; }
  /// Blocks until the reduction in `slot` has ended; where it reduces on the device, the current stream waits
  /// instead. Throws where it failed.
  virtual void wait(const Chunk& chunk, std::size_t slot) = 0;
  /// Divides by the number of ranks and writes the mean to the parameters. Called only after wait() has
  /// returned, so a parameter changes only when its chunk has been reduced.
  virtual void unpack(const Chunk& chunk, std::size_t slot) = 0;
  /// Writes the kept means of an op.
  virtual void write(std::int64_t /*sequence*/, std::size_t /*op*/) {}
  /// Ends reductions on the device that would never end: called once at most, after a timeout or at the end
  /// of a lane that has left some to the device.
  virtual void abort() {}
};

/// A chunk that has been under way for long.
struct Lateness {
  Chunk chunk;
  std::chrono::duration<double> elapsed{};
  bool has_timed_out = false;  ///< else half of the timeout has passed
};

struct LaneOptions {
  std::size_t num_slots =
      2;  ///< staging buffers: chunks that may be under way at once; at least 1, 2 to overlap
  /// Called from the lane's thread when an op's first chunk is packed (begin) and its last one unpacked
  /// (end). With a device they come soon after the device has done so, but for op_ends where reductions are
  /// on the host: it comes when the last unpack has been left to the device. An exception from them fails the
  /// lane.
  std::function<void(std::int64_t sequence, std::size_t op)> op_begins;
  std::function<void(std::int64_t sequence, std::size_t op)> op_ends;
  std::chrono::milliseconds grace{1000};  ///< how long the destructor waits for chunks under way
  /// How long the oldest chunk under way may take, since it is the oldest; none: forever. Counts only where
  /// the transport overrides when_reduced(), or watch() where it reduces on the device.
  std::optional<std::chrono::milliseconds> timeout;
  /// Called from the lane's thread at half the timeout (a warning is due) and at the timeout. There a text
  /// fails the lane, and nothing gives the chunk another timeout. Null: the lane fails.
  std::function<std::optional<std::string>(const Lateness&)> is_late;
  std::shared_ptr<DeviceStream> device;  ///< where the transport's work goes; null: it is done at once
};

/// A worker thread that carries out ops strictly in the order of launch().
///
/// Chunks are pipelined: while one is reduced, the next is packed, also across ops. The means of ops that are
/// kept back are written when they have been released, by the lane's thread or by the one that waits for
/// them. With a device, launch(), release() and wait() speak of the work of the calling thread's current
/// stream: see Note [The lane on a device] in lane_state.h.
///
/// Thread-safe: any thread may launch and wait. After a failure the lane carries out nothing more; every
/// later launch() and wait() throws the same SyncError, but for waits of ops that had finished before. Chunks
/// in front of the failed one have been unpacked, chunks behind it never are: those under way are only waited
/// for, and aborted where the device still has them after `grace`. The destructor never throws. It drops what
/// has not been packed and waits up to `grace` for the chunks under way, whose results are not unpacked;
/// after that the thread, and with it the transport and the callbacks, outlives the lane until the transport
/// returns. It must not run on the lane's own thread.
class Lane {
 public:
  /// @throws std::invalid_argument for no slots
  Lane(std::unique_ptr<LaneTransport> transport, LaneOptions options);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Queues an op. Does not block.
  /// @param sequence greater than that of every launch before
  /// @throws SyncError after a failure
  /// @throws std::invalid_argument for a sequence that does not grow
  void launch(std::int64_t sequence, std::size_t op);

  /// The means of an op that is kept back may be written from now on, as soon as they are there.
  /// @throws std::invalid_argument for an op that was not launched or is not kept back
  void release(std::int64_t sequence);

  /// Blocks until the op has been unpacked, and written where it is kept back. With a device it blocks until
  /// this has been left to it, and has the calling thread's current stream wait.
  /// @param check called about ten times a second while it blocks; what it throws ends the wait
  /// @throws SyncError where it failed, or an op before it did
  /// @throws std::invalid_argument for an op that has not been launched, or is kept back and not released
  void wait(std::int64_t sequence, const std::function<void()>& check = nullptr);

  /// Blocks until all ops that have been launched are over, on a device until it is done with them, but for
  /// writes of those that are kept back; or until the lane has failed. To be called before a lane is
  /// destroyed: it tells of failures that nobody has been told of, which later nothing does.
  /// @param check as for wait()
  /// @throws SyncError where one of them failed, and no other call has thrown that
  void wait_until_done(const std::function<void()>& check = nullptr);

  /// Blocks until the means of an op that is kept back are there, or have been written; like wait() with a
  /// device.
  /// @throws SyncError where it failed, or an op before it did
  void wait_until_reduced(std::int64_t sequence);

  /// Takes over an op that is kept back and whose means are there already, as if it had been launched here.
  /// @param sequence greater than that of every launch before
  /// @throws std::invalid_argument for a sequence that does not grow
  void adopt(std::int64_t sequence, std::size_t op);

  /// The one given to the constructor. Calls must keep to what it says of its own thread safety.
  LaneTransport& transport();

  /// Whether wait(sequence) would return at once, without an error.
  bool is_finished(std::int64_t sequence) const;
  bool has_failed() const;

  /// Fails the lane from outside: ops that have not begun are dropped, waits end with this message, at once
  /// even where the transport blocks. A chunk that is being unpacked at that moment may still be written,
  /// none after it. After a failure it changes nothing.
  void abort(const std::string& reason);

 private:
  struct State;
  std::shared_ptr<State> state_;  // also the thread's: it may outlive the lane
  std::thread thread_;
};

}  // namespace dreamddp
