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
#include <string>
#include <thread>

namespace dreamddp {

/// A part of an op that fits into one staging buffer.
struct Chunk {
  std::int64_t sequence = 0;  ///< of the op (OpRun::sequence)
  std::size_t op = 0;         ///< index into plan.ops
  std::size_t index = 0;      ///< of the chunk within the op
};

/// What the lane needs to carry out a chunk. All calls come from the lane's thread.
class LaneTransport {
 public:
  virtual ~LaneTransport() = default;

  /// How many chunks op `op` of the plan has; at least 0 (an op without elements finishes at once).
  virtual std::size_t num_chunks(std::size_t op) = 0;
  /// Copies the chunk from the parameters into staging buffer `slot` and starts reducing it over all ranks.
  /// Does not wait for the reduction.
  virtual void pack_and_reduce(const Chunk& chunk, std::size_t slot) = 0;
  /// Blocks until the reduction in `slot` has ended. Throws where it failed.
  virtual void wait(const Chunk& chunk, std::size_t slot) = 0;
  /// Divides by the number of ranks and writes the mean to the parameters. Called only after wait() has
  /// returned, so a parameter changes only when its chunk has been reduced.
  virtual void unpack(const Chunk& chunk, std::size_t slot) = 0;
};

struct LaneOptions {
  std::size_t num_slots =
      2;  ///< staging buffers: chunks that may be under way at once; at least 1, 2 to overlap
  /// Called from the lane's thread when an op's first chunk is packed (begin) and its last one unpacked
  /// (end). An exception from them fails the lane.
  std::function<void(std::int64_t sequence, std::size_t op)> op_begins;
  std::function<void(std::int64_t sequence, std::size_t op)> op_ends;
  std::chrono::milliseconds grace{1000};  ///< how long the destructor waits for chunks under way
};

/// A worker thread that carries out ops strictly in the order of launch().
///
/// Chunks are pipelined: while one is reduced, the next is packed, also across ops. Thread-safe: any thread
/// may launch and wait. After a failure the lane carries out nothing more; every later launch() and wait()
/// throws the same SyncError, but for waits of ops that had finished before. Chunks in front of the failed
/// one have been unpacked, chunks behind it never are: those under way are only waited for. The destructor
/// never throws. It drops what has not been packed and waits up to `grace` for the chunks under way, whose
/// results are not unpacked; after that the thread, and with it the transport and the callbacks, outlives the
/// lane until the transport returns. It must not run on the lane's own thread.
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

  /// Blocks until the op has been unpacked.
  /// @throws SyncError where it failed, or an op before it did
  /// @throws std::invalid_argument for an op that has not been launched
  void wait(std::int64_t sequence);

  /// Whether wait(sequence) would return at once, without an error.
  bool is_finished(std::int64_t sequence) const;

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
