// The lane's transport over libtorch and c10d: packs tensors, all-reduces them, writes the mean.
// Design section 8.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dreamddp/error.h"
#include "runtime/lane.h"
#include "runtime/tensor_slices.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace dreamddp {

struct TransportOptions {
  std::int64_t staging_bytes = 0;  ///< of all slots together
  std::size_t num_slots = 2;
  std::chrono::milliseconds timeout{0};  ///< of one chunk's reduction
  c10::Device device = c10::kCPU;        ///< that the parameters are on
  /// The text of the SyncError for a chunk whose reduction has failed after so long, with this error.
  std::function<std::string(const Chunk&, std::chrono::duration<double> elapsed, const std::string& error)>
      describe_failure;
};

/// What an op of the plan averages, and how the mean reaches the parameters.
struct TransportOp {
  std::vector<TensorSlice> slices;  ///< of parameters; an op of gradients averages theirs
  OpMode mode = OpMode::in_place;
  Quantity quantity = Quantity::parameters;
  std::vector<TensorSlice> statistics;  ///< of the layers that the op carries
};

/// One execution of a held or carried op from its launch to its write; both by chunk.
struct KeptMeans {
  std::size_t op = 0;
  std::vector<at::Tensor> means;
  std::vector<at::Tensor> snapshots;  ///< of chunks of differences
};

/// Means are exact: the sum is divided once, at the end; float16 is scaled by a power of two before it is
/// summed, so that it does not overflow. The wire has the parameter's dtype. Held and carried ops have memory
/// of their own from launch to write: the means, and the snapshot of a carried one.
///
/// Note [Carried averages that overlap]
///
/// A carried op may be launched again before its mean has been written. Its next snapshot then holds the
/// deviation from the mean that is about to be corrected, and would correct it a second time. So what is
/// written, mean - snapshot, is also added to the snapshots of later executions: their means stay what they
/// are, as these differences add up to 0 over the ranks.
///
/// Note [Running statistics]
///
/// The forward writes them, so in a window that spans one their mean must not be assigned: held ops carry
/// them as a difference, like carried ones. In every other window no forward runs.
///
/// Note [Memory of two streams]
///
/// Memory that is allocated for one stream's work may be used again in the order of that stream only. So
/// whatever the lane's stream and a training stream both work on is kept for the one that did not allocate
/// it: parameters for the lane's, means for the one that writes them, gradients that the lane makes for the
/// training's. Gradients that training has made are safe: backward() ends with a wait for their ops.
///
/// Values of a device are reduced in host memory, which is pinned, where the group has no backend that works
/// on the device by itself.
///
/// Thread safety: as LaneTransport says.
class TorchTransport : public LaneTransport {
 public:
  TorchTransport(std::vector<TransportOp> ops, c10::intrusive_ptr<c10d::ProcessGroup> group,
                 TransportOptions options);
  ~TorchTransport() override;

  std::size_t num_chunks(std::size_t op) override;
  bool is_kept_back(std::size_t op) override;
  void take_snapshot(std::int64_t sequence, std::size_t op) override;
  bool reduces_on_device() override { return reduces_on_device_; }
  void pack(const Chunk& chunk, std::size_t slot) override;
  void reduce(const Chunk& chunk, std::size_t slot) override;
  void when_reduced(std::size_t slot, const std::function<void()>& notify) override;
  std::function<bool()> watch(const Chunk& chunk, std::size_t slot) override;
  void wait(const Chunk& chunk, std::size_t slot) override;
  void unpack(const Chunk& chunk, std::size_t slot) override;
  void write(std::int64_t sequence, std::size_t op) override;
  void abort() override;

  /// What an op that is kept back is going to write: a copy, with the snapshots of chunks of differences
  /// only. Its means must be there, and not released.
  KeptMeans copy_of_kept(std::int64_t sequence);
  /// Takes over a copy of what an execution elsewhere is going to write.
  /// @throws std::invalid_argument where it was kept in other chunks
  void adopt(std::int64_t sequence, KeptMeans copy);

  /// More ops, behind those that it has; while ops are under way, too.
  /// @return the index of the first of them
  std::size_t add_ops(std::vector<TransportOp> ops);
  /// Forgets all ops but the first ones. None of those forgotten may be under way.
  void keep_first(std::size_t num_ops);

 private:
  struct Slot {
    at::Tensor bytes;       // the staging buffer, allocated on first use
    at::Tensor values;      // a part of the buffer, or the memory of a kept chunk
    at::Tensor host_bytes;  // where values of a device are reduced, if not there; allocated on first use
    at::Tensor reduced;     // what is reduced: the values, or a part of host_bytes
    c10::intrusive_ptr<c10d::Work> work;
    std::chrono::steady_clock::time_point launched;
  };
  enum class ChunkKind {
    values,       ///< of tensors; the mean is assigned
    differences,  ///< of tensors, as they are at the launch; the mean less the snapshot is added
    gradients,
  };
  struct ChunkSlices {
    ChunkKind kind = ChunkKind::values;
    std::vector<TensorSlice> slices;

    at::ScalarType wire_type() const;
    std::int64_t num_elements() const;  ///< on the wire
    std::int64_t num_bytes() const;
    void pack(const at::Tensor& buffer) const;
    at::Tensor packed_copy() const;
  };
  struct Op {
    bool is_kept_back = false;
    std::vector<ChunkSlices> chunks;

    void add_chunks(ChunkKind kind, const std::vector<TensorSlice>& slices, std::int64_t max_bytes);
  };

  std::shared_ptr<Op> op_at(std::size_t index) const;
  /// Where the chunk is reduced, filled with its values.
  at::Tensor packed(const Chunk& chunk, Slot& slot);
  SyncError failure(const Chunk& chunk, std::chrono::steady_clock::time_point launched,
                    const std::string& error) const;

  /// The stream that the op was launched from, where it has gradients on a device.
  std::optional<c10::Stream> launched_on(std::int64_t sequence) const;

  std::vector<std::shared_ptr<Op>> ops_;  // guarded by mutex_; an op itself belongs to who executes it
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  TransportOptions options_;
  bool reduces_on_device_ = false;
  std::int64_t chunk_limit_ = 0;  // in bytes
  std::atomic<std::int64_t> slot_bytes_ = 0;
  std::atomic<std::int64_t> host_slot_bytes_ = 0;
  std::vector<Slot> slots_;
  mutable std::mutex mutex_;                         // guards the maps; means belong to who executes the op
  std::map<std::int64_t, KeptMeans> kept_;           // by sequence, from launch to write
  std::map<std::int64_t, c10::Stream> launched_on_;  // by sequence, of gradients on a device, until unpacked
};

}  // namespace dreamddp
