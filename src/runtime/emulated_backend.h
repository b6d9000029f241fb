// A process-group backend whose collectives take the time that an emulated link needs. Design section 8.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "runtime/emulated_group.h"

namespace dreamddp {

/// Has another backend carry out every collective, and completes it when, in addition, the link's formula
/// says so. All ranks lie on one machine: they agree on the time at which the last of them has launched
/// the collective by a small all-reduce of their steady clocks, so all of them see the same start and finish.
///
/// What is and is not emulated:
///   - collectives take the link in the order in which this group launched them;
///   - several groups over one link take it in the order in which their ranks have agreed, which may differ
///     between ranks for collectives launched at the same time; then the ranks' times differ by at most the
///     transfers concerned, and meet again at the next collective;
///   - a collective never ends before the wrapped backend has carried it out;
///   - point-to-point messages pass through untimed.
///
/// Thread-safe as any backend: collectives must be launched in the same order on all ranks.
class EmulatedBackend final : public c10d::Backend {
 public:
  /// @param timeout of a collective without one of its own
  /// @param name of the group; the same on all its ranks
  EmulatedBackend(std::shared_ptr<EmulatedLink> link, c10::intrusive_ptr<c10d::Backend> wrapped,
                  std::chrono::milliseconds timeout, const std::string& name);
  /// Fails what is under way, then waits for the wrapped backend to end.
  ~EmulatedBackend() override;

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  const std::string getBackendName() const override { return "emulated"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return wrapped_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override { wrapped_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return wrapped_->getSequenceNumberForGroup(); }
  void abort() override;
  void shutdown() override;

  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                     std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work barrier(const c10d::BarrierOptions& options) override;

  Work send(Tensors& tensors, int destination, int tag) override;
  Work recv(Tensors& tensors, int source, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;

 private:
  struct Launch {
    c10d::OpType type;
    Collective collective;
    std::int64_t num_bytes;             // as in LinkRequest; where ranks differ, the largest counts
    std::chrono::milliseconds timeout;  // may be kUnsetTimeout
  };
  /// Part of a reduced buffer that belongs to one output, from the given element on.
  struct Share {
    at::Tensor output;
    std::int64_t begin;
  };

  /// @param start has the wrapped backend start the collective
  /// @param finish called when that has ended, before anyone sees it; returns the value of the work
  Work launch(const Launch& launch, const std::function<Work()>& start,
              std::function<at::IValue(at::IValue)> finish = {});
  Work reduce_and_share(c10d::OpType type, const Tensors& inputs, std::vector<Share> shares,
                        const c10d::ReduceScatterOptions& options);

  const std::shared_ptr<EmulatedGroup> group_;
  const c10::intrusive_ptr<c10d::Backend> wrapped_;
  std::mutex launching_;
  std::chrono::milliseconds timeout_;  // guarded by launching_
};

}  // namespace dreamddp
