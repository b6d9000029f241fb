#include "runtime/torch_transport.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

/// Smallest power of two that is at least the number of ranks.
double scale_of(int num_ranks) { return std::exp2(std::ceil(std::log2(static_cast<double>(num_ranks)))); }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

TorchTransport::TorchTransport(const std::vector<std::vector<TensorSlice>>& ops,
                               c10::intrusive_ptr<c10d::ProcessGroup> group, TransportOptions options)
    : group_(std::move(group)), options_(std::move(options)), slots_(options_.num_slots) {
  const std::int64_t limit =
      std::max<std::int64_t>(options_.staging_bytes / static_cast<std::int64_t>(slots_.size()), 1);
  for (const std::vector<TensorSlice>& op : ops) {
    chunks_.push_back(cut_into_chunks(op, limit));
    for (const std::vector<TensorSlice>& chunk : chunks_.back()) {
      slot_bytes_ = std::max(slot_bytes_, num_bytes(chunk));
    }
  }
}

TorchTransport::~TorchTransport() = default;

std::size_t TorchTransport::num_chunks(std::size_t op) { return chunks_.at(op).size(); }

void TorchTransport::pack_and_reduce(const Chunk& chunk, std::size_t slot_index) {
  const at::NoGradGuard no_grad;
  const std::vector<TensorSlice>& slices = chunks_.at(chunk.op).at(chunk.index);
  Slot& slot = slots_.at(slot_index);
  const at::Tensor& first = slices.front().tensor;
  const at::ScalarType dtype = c10::toRealValueType(first.scalar_type());
  if (!slot.bytes.defined() || slot.bytes.device() != first.device()) {
    slot.bytes = at::empty({slot_bytes_}, at::TensorOptions().dtype(at::kByte).device(first.device()));
  }
  slot.values = slot.bytes.narrow(0, 0, num_bytes(slices)).view(dtype);
  pack(slices, slot.values);
  if (dtype == at::kHalf) {
    slot.values.mul_(1 / scale_of(group_->getSize()));
  }
  std::vector<at::Tensor> tensors{slot.values};
  c10d::AllreduceOptions reduction;
  reduction.reduceOp = c10d::ReduceOp::SUM;
  reduction.timeout = options_.timeout;
  slot.launched = std::chrono::steady_clock::now();
  slot.work = group_->allreduce(tensors, reduction);
}

void TorchTransport::wait(const Chunk& chunk, std::size_t slot_index) {
  Slot& slot = slots_.at(slot_index);
  const auto work = std::exchange(slot.work, nullptr);
  try {
    work->wait(options_.timeout);
  } catch (const std::exception& error) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - slot.launched;
    std::ostringstream message;
    message.precision(3);
    message << "rank " << group_->getRank() << ": " << options_.describe(chunk) << " failed after "
            << elapsed.count() << " s (timeout " << std::chrono::duration<double>(options_.timeout).count()
            << " s): a peer has died, is late or does something else. " << first_line(error.what());
    throw SyncError(message.str());
  }
}

void TorchTransport::unpack(const Chunk& chunk, std::size_t slot_index) {
  const at::NoGradGuard no_grad;
  const Slot& slot = slots_.at(slot_index);
  const int num_ranks = group_->getSize();
  if (slot.values.scalar_type() == at::kHalf) {
    slot.values.mul_(scale_of(num_ranks) / num_ranks);
  } else if (num_ranks > 1) {
    slot.values.div_(num_ranks);
  }
  dreamddp::unpack(slot.values, chunks_.at(chunk.op).at(chunk.index));
}

}  // namespace dreamddp
