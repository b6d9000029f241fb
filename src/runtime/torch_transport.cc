#include "runtime/torch_transport.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

/// Smallest power of two that is at least the number of ranks.
double scale_of(int num_ranks) { return std::exp2(std::ceil(std::log2(static_cast<double>(num_ranks)))); }

/// The dtype in which the slices travel; they have the same.
at::ScalarType wire_type(const std::vector<TensorSlice>& slices) {
  return c10::toRealValueType(slices.front().tensor.scalar_type());
}

/// The slices, one after the other, in memory of their own.
at::Tensor packed_copy(const std::vector<TensorSlice>& slices) {
  std::int64_t num_elements = 0;
  for (const TensorSlice& slice : slices) num_elements += slice.num_elements();
  const auto options = slices.front().tensor.options().dtype(wire_type(slices)).requires_grad(false);
  at::Tensor copy = at::empty({num_elements}, options);
  pack(slices, copy);
  return copy;
}

/// What Gloo says, in one line and without its advice.
std::string reason(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.substr(0, line.find(". This may "));
}

}  // namespace

TorchTransport::TorchTransport(std::vector<TransportOp> ops, c10::intrusive_ptr<c10d::ProcessGroup> group,
                               TransportOptions options)
    : group_(std::move(group)), options_(std::move(options)), slots_(options_.num_slots) {
  const std::int64_t limit =
      std::max<std::int64_t>(options_.staging_bytes / static_cast<std::int64_t>(slots_.size()), 1);
  for (const TransportOp& op : ops) {
    ops_.push_back({.mode = op.mode, .chunks = cut_into_chunks(op.slices, limit)});
    if (op.mode != OpMode::in_place) continue;
    for (const std::vector<TensorSlice>& chunk : ops_.back().chunks) {
      slot_bytes_ = std::max(slot_bytes_, num_bytes(chunk));
    }
  }
}

TorchTransport::~TorchTransport() = default;

std::size_t TorchTransport::num_chunks(std::size_t op) { return ops_.at(op).chunks.size(); }

bool TorchTransport::is_kept_back(std::size_t op) { return ops_.at(op).mode != OpMode::in_place; }

const std::vector<TensorSlice>& TorchTransport::slices_of(const Chunk& chunk) const {
  return ops_.at(chunk.op).chunks.at(chunk.index);
}

void TorchTransport::take_snapshot(std::int64_t sequence, std::size_t op_index) {
  const Op& op = ops_.at(op_index);
  if (op.mode == OpMode::in_place) return;
  KeptMeans kept{.op = op_index, .means = std::vector<at::Tensor>(op.chunks.size()), .snapshots = {}};
  if (op.mode == OpMode::carried) {
    for (std::size_t i = 0; i < op.chunks.size(); ++i) {
      kept.means[i] = packed_copy(op.chunks[i]);
      kept.snapshots.push_back(kept.means[i].clone());
    }
  }
  const std::lock_guard lock(mutex_);
  kept_.emplace(sequence, std::move(kept));
}

at::Tensor TorchTransport::packed(const Chunk& chunk, Slot& slot) {
  const std::vector<TensorSlice>& slices = slices_of(chunk);
  if (is_kept_back(chunk.op)) {
    const std::lock_guard lock(mutex_);
    at::Tensor& mean = kept_.at(chunk.sequence).means[chunk.index];
    if (!mean.defined()) mean = packed_copy(slices);
    return mean;
  }
  const at::Tensor& first = slices.front().tensor;
  if (!slot.bytes.defined() || slot.bytes.device() != first.device()) {
    slot.bytes = at::empty({slot_bytes_}, at::TensorOptions().dtype(at::kByte).device(first.device()));
  }
  at::Tensor values = slot.bytes.narrow(0, 0, num_bytes(slices)).view(wire_type(slices));
  pack(slices, values);
  return values;
}

void TorchTransport::pack_and_reduce(const Chunk& chunk, std::size_t slot_index) {
  const at::NoGradGuard no_grad;
  Slot& slot = slots_.at(slot_index);
  slot.values = packed(chunk, slot);
  if (slot.values.scalar_type() == at::kHalf) {
    slot.values.mul_(1 / scale_of(group_->getSize()));
  }
  std::vector<at::Tensor> tensors{slot.values};
  c10d::AllreduceOptions reduction;
  reduction.reduceOp = c10d::ReduceOp::SUM;
  reduction.timeout = options_.timeout;
  slot.launched = std::chrono::steady_clock::now();
  slot.work = group_->allreduce(tensors, reduction);
}

void TorchTransport::when_reduced(std::size_t slot, const std::function<void()>& notify) {
  const auto future = slots_.at(slot).work->getFuture();
  if (!future) return notify();
  future->addCallback([notify](auto& /*future*/) { notify(); });
}

void TorchTransport::wait(const Chunk& chunk, std::size_t slot_index) {
  Slot& slot = slots_.at(slot_index);
  const auto work = std::exchange(slot.work, nullptr);
  try {
    work->wait(options_.timeout);
  } catch (const std::exception& error) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - slot.launched;
    throw SyncError(options_.describe_failure(chunk, elapsed, reason(error.what())));
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
  if (!is_kept_back(chunk.op)) dreamddp::unpack(slot.values, slices_of(chunk));
}

void TorchTransport::write(std::int64_t sequence, std::size_t op_index) {
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  const KeptMeans kept = std::move(kept_.extract(sequence).mapped());
  std::vector<KeptMeans*> later;  // see Note [Carried averages that overlap]
  for (auto& [number, other] : kept_) {
    if (number > sequence && other.op == op_index) later.push_back(&other);
  }
  lock.unlock();
  const Op& op = ops_.at(op_index);
  for (std::size_t i = 0; i < op.chunks.size(); ++i) {
    if (op.mode == OpMode::held) {
      dreamddp::unpack(kept.means[i], op.chunks[i]);
      continue;
    }
    const at::Tensor difference = kept.means[i] - kept.snapshots[i];
    add(difference, op.chunks[i]);
    for (KeptMeans* other : later) other->snapshots[i].add_(difference);
  }
}

}  // namespace dreamddp
