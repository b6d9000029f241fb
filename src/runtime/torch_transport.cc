#include "runtime/torch_transport.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "dreamddp/error.h"
#include "runtime/gradient_slices.h"

namespace dreamddp {
namespace {

/// Smallest power of two that is at least the number of ranks.
double scale_of(int num_ranks) { return std::exp2(std::ceil(std::log2(static_cast<double>(num_ranks)))); }

/// What Gloo says, in one line, without the place in its source and its advice.
std::string reason(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  line = line.substr(0, line.find(". This "));
  const auto place_end = line.find("] ");
  return line.starts_with("[/") && place_end != std::string::npos ? line.substr(place_end + 2) : line;
}

}  // namespace

/// The dtype in which the slices travel; they have the same.
at::ScalarType TorchTransport::ChunkSlices::wire_type() const {
  return c10::toRealValueType(slices.front().tensor.scalar_type());
}

std::int64_t TorchTransport::ChunkSlices::num_elements() const {
  if (kind == ChunkKind::gradients) return num_gradient_elements(slices);
  std::int64_t total = 0;
  for (const TensorSlice& slice : slices) total += slice.num_elements();
  return total;
}

std::int64_t TorchTransport::ChunkSlices::num_bytes() const {
  return num_elements() * static_cast<std::int64_t>(c10::elementSize(wire_type()));
}

void TorchTransport::ChunkSlices::pack(const at::Tensor& buffer) const {
  if (kind == ChunkKind::gradients) {
    pack_gradients(slices, buffer);
  } else {
    dreamddp::pack(slices, buffer);
  }
}

/// The slices, one after the other, in memory of their own.
at::Tensor TorchTransport::ChunkSlices::packed_copy() const {
  const auto options = slices.front().tensor.options().dtype(wire_type()).requires_grad(false);
  at::Tensor copy = at::empty({num_elements()}, options);
  pack(copy);
  return copy;
}

void TorchTransport::Op::add_chunks(ChunkKind kind, const std::vector<TensorSlice>& slices,
                                    std::int64_t max_bytes) {
  const std::int64_t extra = kind == ChunkKind::gradients ? 1 : 0;
  for (std::vector<TensorSlice>& chunk : cut_into_chunks(slices, max_bytes, extra)) {
    chunks.push_back({.kind = kind, .slices = std::move(chunk)});
  }
}

TorchTransport::TorchTransport(std::vector<TransportOp> ops, c10::intrusive_ptr<c10d::ProcessGroup> group,
                               TransportOptions options)
    : group_(std::move(group)), options_(std::move(options)), slots_(options_.num_slots) {
  const std::int64_t limit =
      std::max<std::int64_t>(options_.staging_bytes / static_cast<std::int64_t>(slots_.size()), 1);
  for (TransportOp& op : ops) {
    Op& added = ops_.emplace_back();
    added.is_kept_back = op.mode != OpMode::in_place;
    const ChunkKind kind = op.quantity == Quantity::gradients ? ChunkKind::gradients
                           : op.mode == OpMode::carried       ? ChunkKind::differences
                                                              : ChunkKind::values;
    const ChunkKind statistics_kind = added.is_kept_back ? ChunkKind::differences : ChunkKind::values;
    if (kind == statistics_kind) {
      op.slices.insert(op.slices.end(), op.statistics.begin(), op.statistics.end());
      op.statistics.clear();
    }
    added.add_chunks(kind, op.slices, limit);
    added.add_chunks(statistics_kind, op.statistics, limit);
    if (added.is_kept_back) continue;
    for (const ChunkSlices& chunk : added.chunks) slot_bytes_ = std::max(slot_bytes_, chunk.num_bytes());
  }
}

TorchTransport::~TorchTransport() = default;

std::size_t TorchTransport::num_chunks(std::size_t op) { return ops_.at(op).chunks.size(); }

bool TorchTransport::is_kept_back(std::size_t op) { return ops_.at(op).is_kept_back; }

const TorchTransport::ChunkSlices& TorchTransport::slices_of(const Chunk& chunk) const {
  return ops_.at(chunk.op).chunks.at(chunk.index);
}

void TorchTransport::take_snapshot(std::int64_t sequence, std::size_t op_index) {
  const Op& op = ops_.at(op_index);
  if (!op.is_kept_back) return;
  const std::size_t num_chunks = op.chunks.size();
  KeptMeans kept{.op = op_index,
                 .means = std::vector<at::Tensor>(num_chunks),
                 .snapshots = std::vector<at::Tensor>(num_chunks)};
  for (std::size_t i = 0; i < num_chunks; ++i) {
    if (op.chunks[i].kind != ChunkKind::differences) continue;
    kept.means[i] = op.chunks[i].packed_copy();
    kept.snapshots[i] = kept.means[i].clone();
  }
  const std::lock_guard lock(mutex_);
  kept_.emplace(sequence, std::move(kept));
}

KeptMeans TorchTransport::copy_of_kept(std::int64_t sequence) {
  const std::lock_guard lock(mutex_);
  const KeptMeans& kept = kept_.at(sequence);
  KeptMeans copy{.op = kept.op, .means = {}, .snapshots = {}};
  for (const at::Tensor& mean : kept.means) copy.means.push_back(mean.clone());
  for (const at::Tensor& snapshot : kept.snapshots) {
    if (snapshot.defined()) copy.snapshots.push_back(snapshot.clone());
  }
  return copy;
}

void TorchTransport::adopt(std::int64_t sequence, KeptMeans copy) {
  const Op& op = ops_.at(copy.op);
  KeptMeans kept{.op = copy.op, .means = {}, .snapshots = std::vector<at::Tensor>(op.chunks.size())};
  std::size_t num_snapshots = 0;
  bool fits = op.is_kept_back && copy.means.size() == op.chunks.size();
  for (std::size_t i = 0; fits && i < op.chunks.size(); ++i) {
    const ChunkSlices& chunk = op.chunks[i];
    const auto take = [&](const at::Tensor& values) {
      fits = fits && values.dim() == 1 && values.numel() == chunk.num_elements() &&
             values.scalar_type() == chunk.wire_type();
      return values.to(chunk.slices.front().tensor.device());
    };
    kept.means.push_back(take(copy.means[i]));
    if (chunk.kind != ChunkKind::differences) continue;
    fits = fits && num_snapshots < copy.snapshots.size();
    if (fits) kept.snapshots[i] = take(copy.snapshots[num_snapshots++]);
  }
  if (!fits || num_snapshots != copy.snapshots.size()) {
    reject({.field = "averages under way",
            .value = "those of op " + std::to_string(copy.op) + " in other pieces",
            .allowed = "the pieces of this model and this staging_bytes",
            .remedy = "Resume with the model and the staging_bytes that the state was saved with."});
  }
  const std::lock_guard lock(mutex_);
  kept_.emplace(sequence, std::move(kept));
}

at::Tensor TorchTransport::packed(const Chunk& chunk, Slot& slot) {
  const ChunkSlices& slices = slices_of(chunk);
  if (is_kept_back(chunk.op)) {
    const std::lock_guard lock(mutex_);
    at::Tensor& mean = kept_.at(chunk.sequence).means[chunk.index];
    if (!mean.defined()) mean = slices.packed_copy();
    return mean;
  }
  const at::Device device = slices.slices.front().tensor.device();
  if (!slot.bytes.defined() || slot.bytes.device() != device) {
    slot.bytes = at::empty({slot_bytes_}, at::TensorOptions().dtype(at::kByte).device(device));
  }
  at::Tensor values = slot.bytes.narrow(0, 0, slices.num_bytes()).view(slices.wire_type());
  slices.pack(values);
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
  if (is_kept_back(chunk.op)) return;
  const ChunkSlices& slices = slices_of(chunk);
  if (slices.kind == ChunkKind::gradients) {
    unpack_gradients(slot.values, slices.slices);
  } else {
    dreamddp::unpack(slot.values, slices.slices);
  }
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
    if (op.chunks[i].kind == ChunkKind::values) {
      dreamddp::unpack(kept.means[i], op.chunks[i].slices);
      continue;
    }
    const at::Tensor difference = kept.means[i] - kept.snapshots[i];
    add(difference, op.chunks[i].slices);
    for (KeptMeans* other : later) other->snapshots[i].add_(difference);
  }
}

}  // namespace dreamddp
