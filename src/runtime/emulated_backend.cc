#include "runtime/emulated_backend.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace dreamddp {
namespace {

using c10d::OpType;

std::int64_t num_bytes(const at::Tensor& tensor) {
  if (tensor.is_sparse()) return num_bytes(tensor._indices()) + num_bytes(tensor._values());
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

std::int64_t num_bytes(const std::vector<at::Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += num_bytes(tensor);
  return sum;
}

std::int64_t num_bytes(const std::vector<std::vector<at::Tensor>>& lists) {
  std::int64_t sum = 0;
  for (const std::vector<at::Tensor>& list : lists) sum += num_bytes(list);
  return sum;
}

// The wrapped backend gets tensors of its own over the same memory. It drops them from its own threads, also
// while the interpreter ends, when no thread may touch an object of Python any more.
at::Tensor alias_of(const at::Tensor& tensor) {
  // That of a sparse tensor would have indices of its own.
  return tensor.layout() == at::kStrided ? tensor.detach() : tensor;
}

template <typename T>
std::vector<T> alias_of(const std::vector<T>& tensors) {
  std::vector<T> aliases;
  for (const T& tensor : tensors) aliases.push_back(alias_of(tensor));
  return aliases;
}

}  // namespace

EmulatedBackend::EmulatedBackend(std::shared_ptr<EmulatedLink> link,
                                 c10::intrusive_ptr<c10d::Backend> wrapped, std::chrono::milliseconds timeout,
                                 const std::string& name)
    : Backend(wrapped->getRank(), wrapped->getSize()),
      group_(std::make_shared<EmulatedGroup>(std::move(link), name)),
      wrapped_(std::move(wrapped)),
      timeout_(timeout) {
  init();
  group_->link().add_user(group_);
}

EmulatedBackend::~EmulatedBackend() {
  group_->close("the process group over the emulated link was destroyed");
}

void EmulatedBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(launching_);
  wrapped_->setTimeout(timeout);
  timeout_ = timeout;
}

void EmulatedBackend::abort() {
  group_->close("the process group over the emulated link was aborted");
  wrapped_->abort();
}

void EmulatedBackend::shutdown() {
  group_->close("the process group over the emulated link was shut down");
  wrapped_->shutdown();
}

// The callbacks run on the wrapped backend's threads. They must not own that backend: the last owner destroys
// it, and it cannot be destroyed from its own thread.
EmulatedBackend::Work EmulatedBackend::launch(const Launch& launch, const std::function<Work()>& start,
                                              std::function<at::IValue(at::IValue)> finish) {
  Work real;
  Work agreement;
  std::shared_ptr<EmulatedOp> op;
  Tensors numbers = {at::Tensor(at::detail::empty_cpu({2}, at::kLong))};
  {
    const std::lock_guard lock(launching_);
    group_->require_open();
    real = start();  // first: where the wrapped backend rejects its arguments, nothing has happened yet
    const bool has_own_timeout = launch.timeout != c10d::kUnsetTimeout;

    // A rank whose link is still taken by other groups is ready only after that.
    const Nanoseconds launched = now_nanoseconds();
    auto* const values = numbers[0].mutable_data_ptr<std::int64_t>();
    values[0] = std::max(launched, group_->link().earliest_start());
    values[1] = launch.num_bytes;
    c10d::AllreduceOptions maximum;
    maximum.reduceOp = c10d::ReduceOp::MAX;
    maximum.timeout = launch.timeout;
    agreement = wrapped_->allreduce(numbers, maximum);

    op = group_->launch({.work = c10::make_intrusive<EmulatedWork>(getRank(), launch.type),
                         .request = {.collective = launch.collective, .workers = getSize()},
                         .launched = launched,
                         .timeout = has_own_timeout ? launch.timeout : timeout_});
  }
  agreement->getFuture()->addCallback(
      [group = group_, op, numbers = numbers[0]](c10::ivalue::Future& future) {
        if (future.hasError()) {
          group->fail(*op, future.exception_ptr());
        } else {
          const auto* const agreed = numbers.const_data_ptr<std::int64_t>();
          group->agree(*op, agreed[0], agreed[1]);
        }
      });
  real->getFuture()->addCallback([op, finish = std::move(finish)](c10::ivalue::Future& future) {
    try {
      if (future.hasError()) std::rethrow_exception(future.exception_ptr());
      op->work->collective_ends(finish ? finish(future.value()) : future.value());
    } catch (...) {
      op->work->fail(std::current_exception());
    }
  });
  return op->work;
}

EmulatedBackend::Work EmulatedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return launch({OpType::ALLREDUCE, Collective::all_reduce, num_bytes(tensors), options.timeout},
                [&, tensors = alias_of(tensors)]() mutable { return wrapped_->allreduce(tensors, options); });
}

EmulatedBackend::Work EmulatedBackend::allreduce_sparse(Tensors& tensors,
                                                        const c10d::AllreduceOptions& options) {
  return launch(
      {OpType::_ALLREDUCE_SPARSE, Collective::all_reduce, num_bytes(tensors), options.timeout},
      [&, tensors = alias_of(tensors)]() mutable { return wrapped_->allreduce_sparse(tensors, options); });
}

EmulatedBackend::Work EmulatedBackend::allreduce_coalesced(Tensors& tensors,
                                                           const c10d::AllreduceCoalescedOptions& options) {
  return launch(
      {OpType::ALLREDUCE_COALESCED, Collective::all_reduce, num_bytes(tensors), options.timeout},
      [&, tensors = alias_of(tensors)]() mutable { return wrapped_->allreduce_coalesced(tensors, options); });
}

EmulatedBackend::Work EmulatedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return launch({OpType::REDUCE, Collective::reduce, num_bytes(tensors), options.timeout},
                [&, tensors = alias_of(tensors)]() mutable { return wrapped_->reduce(tensors, options); });
}

EmulatedBackend::Work EmulatedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return launch({OpType::BROADCAST, Collective::broadcast, num_bytes(tensors), options.timeout},
                [&, tensors = alias_of(tensors)]() mutable { return wrapped_->broadcast(tensors, options); });
}

EmulatedBackend::Work EmulatedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  return launch({OpType::ALLGATHER, Collective::all_gather, num_bytes(outputs), options.timeout},
                [&, outputs = alias_of(outputs), inputs = alias_of(inputs)]() mutable {
                  return wrapped_->allgather(outputs, inputs, options);
                });
}

EmulatedBackend::Work EmulatedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions& options) {
  return launch({OpType::_ALLGATHER_BASE, Collective::all_gather, num_bytes(output), options.timeout},
                [&, output = alias_of(output), input = alias_of(input)]() mutable {
                  return wrapped_->_allgather_base(output, input, options);
                });
}

EmulatedBackend::Work EmulatedBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  return launch({OpType::ALLGATHER_COALESCED, Collective::all_gather, num_bytes(outputs), options.timeout},
                [&, outputs = alias_of(outputs), inputs = alias_of(inputs)]() mutable {
                  return wrapped_->allgather_coalesced(outputs, inputs, options);
                });
}

EmulatedBackend::Work EmulatedBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return launch({OpType::ALLGATHER_COALESCED, Collective::all_gather, num_bytes(outputs), options.timeout},
                [&, outputs = alias_of(outputs), inputs = alias_of(inputs)]() mutable {
                  return wrapped_->allgather_into_tensor_coalesced(outputs, inputs, options);
                });
}

EmulatedBackend::Work EmulatedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                              const c10d::GatherOptions& options) {
  return launch({OpType::GATHER, Collective::gather, getSize() * num_bytes(inputs), options.timeout},
                [&, outputs = alias_of(outputs), inputs = alias_of(inputs)]() mutable {
                  return wrapped_->gather(outputs, inputs, options);
                });
}

EmulatedBackend::Work EmulatedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                               const c10d::ScatterOptions& options) {
  return launch({OpType::SCATTER, Collective::scatter, getSize() * num_bytes(outputs), options.timeout},
                [&, outputs = alias_of(outputs), inputs = alias_of(inputs)]() mutable {
                  return wrapped_->scatter(outputs, inputs, options);
                });
}

EmulatedBackend::Work EmulatedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == 1 && inputs.size() == 1,
                    "reduce_scatter: expected one output and one list");
  TORCH_CHECK_VALUE(inputs[0].size() == static_cast<std::size_t>(getSize()),
                    "reduce_scatter: expected an input for each of the ", getSize(), " ranks, got ",
                    inputs[0].size());
  std::int64_t begin = 0;
  for (int rank = 0; rank < getRank(); ++rank) begin += inputs[0][rank].numel();
  return reduce_and_share(OpType::REDUCE_SCATTER, inputs[0], {{outputs[0], begin}}, options);
}

EmulatedBackend::Work EmulatedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(input.numel() == getSize() * output.numel(), "reduce_scatter: expected an input of ",
                    getSize(), " times the output's ", output.numel(), " elements, got ", input.numel());
  return reduce_and_share(OpType::_REDUCE_SCATTER_BASE, {input}, {{output, getRank() * output.numel()}},
                          options);
}

EmulatedBackend::Work EmulatedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "reduce_scatter: expected as many outputs as inputs");
  std::vector<Share> shares;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK_VALUE(inputs[i].numel() == getSize() * outputs[i].numel(),
                      "reduce_scatter: expected an input of ", getSize(), " times the output's ",
                      outputs[i].numel(), " elements, got ", inputs[i].numel());
    shares.push_back({outputs[i], begin + getRank() * outputs[i].numel()});
    begin += inputs[i].numel();
  }
  return reduce_and_share(OpType::REDUCE_SCATTER_TENSOR_COALESCED, inputs, std::move(shares), options);
}

// Gloo's own reduce_scatter does the same, but only when somebody waits: its works have no futures.
EmulatedBackend::Work EmulatedBackend::reduce_and_share(OpType type, const Tensors& inputs,
                                                        std::vector<Share> shares,
                                                        const c10d::ReduceScatterOptions& options) {
  const c10::NoGradGuard no_grad;
  Tensors flat;
  for (const at::Tensor& input : inputs) flat.push_back(input.reshape(-1));
  Tensors buffer = {at::cat(flat)};
  c10d::AllreduceOptions sum;
  sum.reduceOp = options.reduceOp;
  sum.timeout = options.timeout;
  return launch(
      {type, Collective::reduce_scatter, num_bytes(buffer), options.timeout},
      [&] { return wrapped_->allreduce(buffer, sum); },
      [shares = std::move(shares), reduced = buffer[0]](const at::IValue&) {
        const c10::NoGradGuard no_grad;
        Tensors outputs;
        for (const Share& share : shares) {
          share.output.copy_(reduced.narrow(0, share.begin, share.output.numel()).view(share.output.sizes()));
          outputs.push_back(share.output);
        }
        return at::IValue(outputs);
      });
}

EmulatedBackend::Work EmulatedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                     std::vector<int64_t>& output_sizes,
                                                     std::vector<int64_t>& input_sizes,
                                                     const c10d::AllToAllOptions& options) {
  return launch({OpType::ALLTOALL_BASE, Collective::all_to_all, num_bytes(input), options.timeout},
                [&, output = alias_of(output), input = alias_of(input)]() mutable {
                  return wrapped_->alltoall_base(output, input, output_sizes, input_sizes, options);
                });
}

EmulatedBackend::Work EmulatedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllToAllOptions& options) {
  return launch({OpType::ALLTOALL, Collective::all_to_all, num_bytes(inputs), options.timeout},
                [&, outputs = alias_of(outputs), inputs = alias_of(inputs)]() mutable {
                  return wrapped_->alltoall(outputs, inputs, options);
                });
}

EmulatedBackend::Work EmulatedBackend::barrier(const c10d::BarrierOptions& options) {
  return launch({OpType::BARRIER, Collective::barrier, 0, options.timeout},
                [&] { return wrapped_->barrier(options); });
}

EmulatedBackend::Work EmulatedBackend::send(Tensors& tensors, int destination, int tag) {
  return wrapped_->send(tensors, destination, tag);
}

EmulatedBackend::Work EmulatedBackend::recv(Tensors& tensors, int source, int tag) {
  return wrapped_->recv(tensors, source, tag);
}

EmulatedBackend::Work EmulatedBackend::recvAnysource(Tensors& tensors, int tag) {
  return wrapped_->recvAnysource(tensors, tag);
}

}  // namespace dreamddp
