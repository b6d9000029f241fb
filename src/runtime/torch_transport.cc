#include "runtime/torch_transport.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "dreamddp/error.h"
#include "runtime/gradient_slices.h"
#include "runtime/torch_device_stream.h"

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

/// Whether the group reduces values on the device by itself. A backend that takes host memory, too, such as
/// Gloo, would copy them to the host and back.
bool has_backend_of_its_own(c10d::ProcessGroup& group, c10::Device device) {
  if (device.is_cpu()) return false;
  bool has_for_device = false;
  bool has_for_host = false;
  for (const c10::Device& supported : group.getDeviceTypes()) {
    has_for_device = has_for_device || supported.type() == device.type();
    has_for_host = has_for_host || supported.is_cpu();
  }
  return has_for_device && !(has_for_host && group.getBackend(device.type()) == group.getBackend(c10::kCPU));
}

/// On a CPU a number divides exactly. Devices multiply by its reciprocal, so there it is a tensor.
void divide(const at::Tensor& values, int divisor) {
  if (values.is_cpu()) {
    values.div_(divisor);
  } else {
    values.div_(at::scalar_tensor(divisor, values.options()));
  }
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
    : group_(std::move(group)),
      options_(std::move(options)),
      reduces_on_device_(has_backend_of_its_own(*group_, options_.device)),
      slots_(options_.num_slots) {
  chunk_limit_ = std::max<std::int64_t>(options_.staging_bytes / static_cast<std::int64_t>(slots_.size()), 1);
  add_ops(std::move(ops));
}

std::size_t TorchTransport::add_ops(std::vector<TransportOp> ops) {
  std::vector<std::shared_ptr<Op>> added;
  for (TransportOp& given : ops) {
    Op& op = *added.emplace_back(std::make_shared<Op>());
    op.is_kept_back = given.mode != OpMode::in_place;
    const ChunkKind kind = given.quantity == Quantity::gradients ? ChunkKind::gradients
                           : given.mode == OpMode::carried       ? ChunkKind::differences
                                                                 : ChunkKind::values;
    const ChunkKind statistics_kind = op.is_kept_back ? ChunkKind::differences : ChunkKind::values;
    if (kind == statistics_kind) {
      given.slices.insert(given.slices.end(), given.statistics.begin(), given.statistics.end());
      given.statistics.clear();
    }
    op.add_chunks(kind, given.slices, chunk_limit_);
    op.add_chunks(statistics_kind, given.statistics, chunk_limit_);
    for (const ChunkSlices& chunk : op.chunks) {
      host_slot_bytes_ = std::max(host_slot_bytes_.load(), chunk.num_bytes());
      if (!op.is_kept_back) slot_bytes_ = std::max(slot_bytes_.load(), chunk.num_bytes());
    }
  }
  const std::lock_guard lock(mutex_);
  ops_.insert(ops_.end(), added.begin(), added.end());
  return ops_.size() - added.size();
}

void TorchTransport::keep_first(std::size_t num_ops) {
  const std::lock_guard lock(mutex_);
  ops_.resize(std::min(num_ops, ops_.size()));
}

std::shared_ptr<TorchTransport::Op> TorchTransport::op_at(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return ops_.at(index);
}

TorchTransport::~TorchTransport() = default;

std::size_t TorchTransport::num_chunks(std::size_t op) { return op_at(op)->chunks.size(); }

bool TorchTransport::is_kept_back(std::size_t op) { return op_at(op)->is_kept_back; }

void TorchTransport::take_snapshot(std::int64_t sequence, std::size_t op_index) {
  const auto held = op_at(op_index);
  const Op& op = *held;
  const bool has_gradients = !op.chunks.empty() && op.chunks.front().kind == ChunkKind::gradients;
  if (has_gradients && !options_.device.is_cpu()) {
    const std::lock_guard lock(mutex_);
    launched_on_.emplace(sequence, current_stream(options_.device));
  }
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
  for (const at::Tensor& mean : kept.means) {
    keep_for_current_stream(mean);
    copy.means.push_back(mean.clone());
  }
  for (const at::Tensor& snapshot : kept.snapshots) {
    if (snapshot.defined()) copy.snapshots.push_back(snapshot.clone());
  }
  return copy;
}

void TorchTransport::adopt(std::int64_t sequence, KeptMeans copy) {
  const auto held = op_at(copy.op);
  const Op& op = *held;
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
  const auto op = op_at(chunk.op);
  const ChunkSlices& slices = op->chunks.at(chunk.index);
  if (slices.kind != ChunkKind::gradients) {  // see Note [Memory of two streams]
    for (const TensorSlice& slice : slices.slices) keep_for_current_stream(slice.tensor);
  }
  if (op->is_kept_back) {
    const std::lock_guard lock(mutex_);
    at::Tensor& mean = kept_.at(chunk.sequence).means[chunk.index];
    if (!mean.defined()) mean = slices.packed_copy();
    keep_for_current_stream(mean);
    return mean;
  }
  const at::Device device = slices.slices.front().tensor.device();
  if (!slot.bytes.defined() || slot.bytes.device() != device || slot.bytes.numel() < slices.num_bytes()) {
    slot.bytes = at::empty({slot_bytes_.load()}, at::TensorOptions().dtype(at::kByte).device(device));
  }
  at::Tensor values = slot.bytes.narrow(0, 0, slices.num_bytes()).view(slices.wire_type());
  slices.pack(values);
  return values;
}

void TorchTransport::pack(const Chunk& chunk, std::size_t slot_index) {
  const at::NoGradGuard no_grad;
  Slot& slot = slots_.at(slot_index);
  slot.values = packed(chunk, slot);
  if (slot.values.scalar_type() == at::kHalf) {
    slot.values.mul_(1 / scale_of(group_->getSize()));
  }
  slot.reduced = slot.values;
  if (slot.values.is_cpu() || reduces_on_device_) return;
  if (!slot.host_bytes.defined() ||
      slot.host_bytes.numel() < static_cast<std::int64_t>(slot.values.nbytes())) {
    slot.host_bytes =
        at::empty({host_slot_bytes_.load()}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }
  const auto num_bytes = static_cast<std::int64_t>(slot.values.nbytes());
  slot.reduced = slot.host_bytes.narrow(0, 0, num_bytes).view(slot.values.scalar_type());
  slot.reduced.copy_(slot.values, /*non_blocking=*/true);
}

void TorchTransport::reduce(const Chunk& /*chunk*/, std::size_t slot_index) {
  Slot& slot = slots_.at(slot_index);
  std::vector<at::Tensor> tensors{slot.reduced};
  c10d::AllreduceOptions reduction;
  reduction.reduceOp = c10d::ReduceOp::SUM;
  reduction.timeout = options_.timeout;
  slot.launched = std::chrono::steady_clock::now();
  slot.work = group_->allreduce(tensors, reduction);
}

void TorchTransport::when_reduced(std::size_t slot, const std::function<void()>& notify) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    if (!reduces_on_device_) future = slots_.at(slot).work->getFuture();
  } catch (const c10::Error&) {
    future = nullptr;  // a backend without futures: wait() blocks until the reduction has ended
  }
  if (!future) return notify();
  future->addCallback([notify](auto& /*future*/) { notify(); });
}

std::function<bool()> TorchTransport::watch(const Chunk& chunk, std::size_t slot_index) {
  const Slot& slot = slots_.at(slot_index);
  return [this, chunk, work = slot.work, launched = slot.launched] {
    if (!work->isCompleted()) return false;
    if (const std::exception_ptr failed = work->exception()) {
      try {
        std::rethrow_exception(failed);
      } catch (const std::exception& error) {
        throw failure(chunk, launched, error.what());
      }
    }
    return true;
  };
}

SyncError TorchTransport::failure(const Chunk& chunk, std::chrono::steady_clock::time_point launched,
                                  const std::string& error) const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - launched;
  return SyncError(options_.describe_failure(chunk, elapsed, reason(error)));
}

void TorchTransport::wait(const Chunk& chunk, std::size_t slot_index) {
  Slot& slot = slots_.at(slot_index);
  const auto work = std::exchange(slot.work, nullptr);
  try {
    // With a timeout, NCCL would block the thread until the reduction has ended.
    work->wait(reduces_on_device_ ? kNoTimeout : options_.timeout);
  } catch (const std::exception& error) {
    throw failure(chunk, slot.launched, error.what());
  }
}

void TorchTransport::unpack(const Chunk& chunk, std::size_t slot_index) {
  const at::NoGradGuard no_grad;
  const Slot& slot = slots_.at(slot_index);
  const int num_ranks = group_->getSize();
  if (!slot.reduced.is_same(slot.values)) slot.values.copy_(slot.reduced, /*non_blocking=*/true);
  if (slot.values.scalar_type() == at::kHalf) {
    slot.values.mul_(scale_of(num_ranks) / num_ranks);
  } else if (num_ranks > 1) {
    divide(slot.values, num_ranks);
  }
  const auto op = op_at(chunk.op);
  if (op->is_kept_back) return;
  // Ops are unpacked in order: those before have been.
  {
    const std::lock_guard lock(mutex_);
    launched_on_.erase(launched_on_.begin(), launched_on_.lower_bound(chunk.sequence));
  }
  const ChunkSlices& slices = op->chunks.at(chunk.index);
  if (slices.kind != ChunkKind::gradients) return dreamddp::unpack(slot.values, slices.slices);
  const auto training = launched_on(chunk.sequence);
  for (const at::Tensor& made : unpack_gradients(slot.values, slot.reduced, slices.slices)) {
    if (training) keep_for(*training, made);
  }
}

std::optional<c10::Stream> TorchTransport::launched_on(std::int64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto found = launched_on_.find(sequence);
  if (found == launched_on_.end()) return std::nullopt;
  return found->second;
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
  const auto held = op_at(op_index);
  const Op& op = *held;
  for (std::size_t i = 0; i < op.chunks.size(); ++i) {
    keep_for_current_stream(kept.means[i]);
    if (op.chunks[i].kind == ChunkKind::values) {
      dreamddp::unpack(kept.means[i], op.chunks[i].slices);
      continue;
    }
    keep_for_current_stream(kept.snapshots[i]);
    const at::Tensor difference = kept.means[i] - kept.snapshots[i];
    add(difference, op.chunks[i].slices);
    for (KeptMeans* other : later) other->snapshots[i].add_(difference);
  }
}

void TorchTransport::abort() { group_->getBackend(options_.device.type())->abort(); }

}  // namespace dreamddp
