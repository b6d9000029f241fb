// The lane's transport over libtorch and c10d: packs tensors, all-reduces them, writes the mean.
// Design section 8.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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
  /// Describes a chunk in an error: "averaging 'h.2' (op 3, iteration 17)".
  std::function<std::string(const Chunk&)> describe;
};

/// Means are exact: the sum is divided once, at the end; float16 is scaled by a power of two before it is
/// summed, so that it does not overflow. The wire has the parameter's dtype.
/// Thread safety: called from the lane's thread only.
class TorchTransport : public LaneTransport {
 public:
  /// @param ops for every op of the plan, the slices that it averages
  TorchTransport(const std::vector<std::vector<TensorSlice>>& ops,
                 c10::intrusive_ptr<c10d::ProcessGroup> group, TransportOptions options);
  ~TorchTransport() override;

  std::size_t num_chunks(std::size_t op) override;
  void pack_and_reduce(const Chunk& chunk, std::size_t slot) override;
  void wait(const Chunk& chunk, std::size_t slot) override;
  void unpack(const Chunk& chunk, std::size_t slot) override;

 private:
  struct Slot {
    at::Tensor bytes;   // the staging buffer, allocated on first use
    at::Tensor values;  // the part of it that the chunk fills, in its dtype
    c10::intrusive_ptr<c10d::Work> work;
    std::chrono::steady_clock::time_point launched;
  };

  std::vector<std::vector<std::vector<TensorSlice>>> chunks_;  // [op][chunk]
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  TransportOptions options_;
  std::int64_t slot_bytes_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace dreamddp
