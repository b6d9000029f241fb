#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/lane_state.h"

namespace dreamddp {
namespace {

using std::chrono::steady_clock;

/// How often the thread looks how the device gets on, while there is something to look for.
constexpr std::chrono::microseconds look_interval{200};

}  // namespace

void Lane::State::run() {
  std::unique_ptr<DeviceStream::Scope> scope;
  held_back_failure = error_of([&] {
    if (device) scope = device->enter();
    carry_out();
  });
  end_chunks_under_way();
  if (held_back_failure) fail(*held_back_failure);
  abort_issued();
  scope.reset();
  const std::lock_guard lock(mutex);
  has_ended = true;
  thread_ends.notify_one();
}

void Lane::State::carry_out() {
  while (!has_failed()) {
    if (device) {
      reduce_packed();
      if (const auto error = error_of([this] { follow_issued(); })) return fail(*error);
    }
    if (under_way.size() < options.num_slots && has_chunk_to_pack()) {
      pack_next();
    } else if (oldest_is_reduced()) {
      complete_oldest();
    } else if (!write_next()) {
      wait_for_work();
    }
  }
}

/// An op that cannot be packed does not harm the chunks in front of it: they are unpacked before the failure
/// is made known, or one of them is late. After a failed reduction nothing is unpacked any more. The group
/// may still use the buffers of chunks under way, however late they are.
void Lane::State::end_chunks_under_way() {
  while (!under_way.empty()) {
    if (under_way.front().is_reducing) {
      await_oldest();
      complete_oldest();
    } else if (has_failed()) {
      under_way.pop_front();
    } else {
      bool has_started = false;
      const auto error = error_of([&] { has_started = reduce_packed(); });
      if (error) fail(*error);
      if (!has_started) std::this_thread::sleep_for(look_interval);
    }
  }
  const auto deadline = steady_clock::now() + options.grace;
  while (!issued.empty() && steady_clock::now() < deadline) {
    if (const auto error = error_of([this] { follow_issued(); })) return fail(*error);
    std::this_thread::sleep_for(look_interval);
  }
}

void Lane::State::abort_issued() {
  if (issued.empty() || std::exchange(is_aborted, true)) return;
  error_of([this] { transport->abort(); });
}

/// Begins queued ops until one has chunks.
bool Lane::State::has_chunk_to_pack() {
  while (begun.empty() || begun.back().num_packed == begun.back().num_chunks) {
    const std::optional<QueuedOp> next = take_queued();
    if (!next) return false;
    const std::size_t num_chunks = transport->num_chunks(next->op);
    await(next->launched);
    // On a device it begins when the launch is over.
    if (!device || num_chunks == 0) tell_begin({.sequence = next->sequence, .op = next->op});
    begun.push_back({.sequence = next->sequence, .op = next->op, .num_chunks = num_chunks});
    end_completed_ops();
  }
  return true;
}

std::optional<QueuedOp> Lane::State::take_queued() {
  const std::lock_guard lock(mutex);
  if (queue.empty()) return std::nullopt;
  QueuedOp next = std::move(queue.front());
  queue.pop_front();
  return next;
}

void Lane::State::pack_next() {
  BegunOp& op = begun.back();
  ChunkUnderWay next{.chunk = {op.sequence, op.op, op.num_packed},
                     .slot = next_slot,
                     .ticket = next_ticket++,
                     .since = {.time = steady_clock::now()},
                     .packed = nullptr};
  transport->pack(next.chunk, next.slot);
  next.packed = record();
  if (!device || reduces_on_device) reduce(next);
  ++op.num_packed;
  under_way.push_back(std::move(next));
  next_slot = (next_slot + 1) % options.num_slots;
  if (under_way.back().is_reducing) notify_when_reduced(under_way.back());
}

void Lane::State::reduce(ChunkUnderWay& chunk) {
  transport->reduce(chunk.chunk, chunk.slot);
  chunk.is_reducing = true;
}

void Lane::State::notify_when_reduced(const ChunkUnderWay& chunk) {
  try {
    transport->when_reduced(chunk.slot, [state = weak_from_this(), ticket = chunk.ticket] {
      if (const std::shared_ptr<State> lane = state.lock()) lane->chunk_is_reduced(ticket);
    });
  } catch (...) {
    chunk_is_reduced(chunk.ticket);  // nobody else will tell: wait() blocks instead
    throw;
  }
}

/// Starts the reductions on the host whose values have been packed.
/// @return whether there were any
bool Lane::State::reduce_packed() {
  bool has_started = false;
  for (ChunkUnderWay& chunk : under_way) {
    if (chunk.is_reducing) continue;
    if (!device->is_over(*chunk.packed)) break;
    chunk.since.time = steady_clock::now();
    if (chunk.chunk.index == 0) tell_begin(chunk.chunk);
    reduce(chunk);
    notify_when_reduced(chunk);
    has_started = true;
  }
  return has_started;
}

bool Lane::State::oldest_is_reduced() const {
  const std::lock_guard lock(mutex);
  return !under_way.empty() && reduced.contains(under_way.front().ticket);
}

void Lane::State::await_oldest() {
  ChunkUnderWay& front = under_way.front();
  const auto is_reduced = [&] { return reduced.contains(front.ticket); };
  std::unique_lock lock(mutex);
  while (options.timeout && !failure) {
    if (work_arrives.wait_until(lock, late_at(front.since), [&] { return failure || is_reduced(); })) break;
    lock.unlock();
    const auto error = error_of([&] { oldest_is_late({&front.chunk, &front.since}); });
    if (error) fail(*error);
    lock.lock();
  }
  work_arrives.wait(lock, is_reduced);
}

/// Writes the first of the kept ops that may be written.
bool Lane::State::write_next() {
  if (device) return false;  // who waits does
  std::unique_lock lock(mutex);
  const auto next = kept_back.first_to_write();
  if (!next || failure) return false;
  write(*next, lock);
  return true;
}

void Lane::State::complete_oldest() {
  const ChunkUnderWay oldest = std::move(under_way.front());
  under_way.pop_front();
  if (!under_way.empty()) under_way.front().since.time = steady_clock::now();
  {
    const std::lock_guard lock(mutex);
    reduced.erase(oldest.ticket);
  }
  IssuedChunk followed{.chunk = oldest.chunk,
                       .since = {.time = steady_clock::now()},
                       .packed = oldest.packed,
                       .unpacked = nullptr,
                       .is_reduced = nullptr,
                       .ends_op = false};
  bool is_unpacked = false;
  const std::optional<std::string> error = error_of([&] {
    if (reduces_on_device) followed.is_reduced = transport->watch(oldest.chunk, oldest.slot);
    transport->wait(oldest.chunk, oldest.slot);
    if (has_failed()) return;
    transport->unpack(oldest.chunk, oldest.slot);
    BegunOp& op = begun.front();
    followed.ends_op = ++op.num_unpacked == op.num_chunks;
    is_unpacked = true;
  });
  if (error) fail(*error);
  const std::optional<std::string> error_behind = error_of([&] {
    if (reduces_on_device) follow(std::move(followed));
    if (is_unpacked) end_completed_ops();
  });
  if (error_behind) fail(*error_behind);
}

/// Also a chunk that has failed on the host: the device may never come to its end.
void Lane::State::follow(IssuedChunk chunk) {
  chunk.unpacked = record();
  issued.push_back(std::move(chunk));
  const std::lock_guard lock(mutex);
  ++num_issued;
}

void Lane::State::tell_begin(const Chunk& chunk) {
  if (options.op_begins) options.op_begins(chunk.sequence, chunk.op);
}

/// Ops end in order: one without chunks waits for those in front of it.
void Lane::State::end_completed_ops() {
  while (!begun.empty() && begun.front().num_unpacked == begun.front().num_chunks) {
    const BegunOp op = begun.front();
    begun.pop_front();
    const bool is_followed = reduces_on_device && op.num_chunks > 0;
    if (options.op_ends && !is_followed) options.op_ends(op.sequence, op.op);
    EventPointer end = record();
    const std::lock_guard lock(mutex);
    if (kept_back.contains(op.sequence)) {
      kept_back.set_reduced(op.sequence, std::move(end));
      op_finishes.notify_all();
    } else {
      finish(op.sequence, std::move(end));
    }
  }
}

/// Tells of the ops that the device has begun and ended meanwhile.
void Lane::State::follow_issued() {
  while (!issued.empty()) {
    IssuedChunk& oldest = issued.front();
    if (!oldest.is_packed) {
      if (!device->is_over(*oldest.packed)) return;
      oldest.is_packed = true;
      oldest.since.time = steady_clock::now();
      if (oldest.chunk.index == 0) tell_begin(oldest.chunk);
    }
    if (oldest.is_reduced && !oldest.is_reduced()) return;
    if (!device->is_over(*oldest.unpacked)) return;
    if (oldest.ends_op && options.op_ends) options.op_ends(oldest.chunk.sequence, oldest.chunk.op);
    issued.pop_front();
    const std::lock_guard lock(mutex);
    if (!failure && --num_issued == 0) op_finishes.notify_all();
  }
}

/// Whether the device does something that nothing tells the thread of.
bool Lane::State::must_look_again() const {
  return !issued.empty() ||
         std::ranges::any_of(under_way, [](const ChunkUnderWay& chunk) { return !chunk.is_reducing; });
}

void Lane::State::wait_for_work() {
  const Oldest late = options.timeout ? oldest() : Oldest{};
  std::optional<steady_clock::time_point> is_late_at;
  if (late.chunk) is_late_at = late_at(*late.since);
  std::optional<steady_clock::time_point> until = is_late_at;
  if (must_look_again()) {
    until =
        std::min(is_late_at.value_or(steady_clock::time_point::max()), steady_clock::now() + look_interval);
  }
  std::unique_lock lock(mutex);
  const auto has_work = [this] {
    return failure || (!under_way.empty() && reduced.contains(under_way.front().ticket)) ||
           (under_way.size() < options.num_slots && !queue.empty()) ||
           (!device && kept_back.first_to_write());
  };
  if (!until) return work_arrives.wait(lock, has_work);
  if (work_arrives.wait_until(lock, *until, has_work)) return;
  lock.unlock();
  if (is_late_at && steady_clock::now() >= *is_late_at) oldest_is_late(late);
}

/// When the next call of oldest_is_late() is due, in a lane with a timeout.
steady_clock::time_point Lane::State::late_at(const OldestSince& since) const {
  return since.time + *options.timeout / (since.has_warned ? 1 : 2);
}

Oldest Lane::State::oldest() {
  if (!issued.empty()) {
    IssuedChunk& first = issued.front();
    return first.is_packed ? Oldest{&first.chunk, &first.since} : Oldest{};
  }
  if (under_way.empty() || !under_way.front().is_reducing) return {};
  return {&under_way.front().chunk, &under_way.front().since};
}

void Lane::State::oldest_is_late(const Oldest& oldest) {
  const auto now = steady_clock::now();
  const Lateness lateness{.chunk = *oldest.chunk,
                          .elapsed = now - oldest.since->time,
                          .has_timed_out = std::exchange(oldest.since->has_warned, true)};
  const std::optional<std::string> text =
      options.is_late ? options.is_late(lateness) : "a reduction has not ended within its timeout";
  if (!lateness.has_timed_out) return;
  if (text) {
    fail(held_back_failure.value_or(*text));  // at once: what is under way may never end
    abort_issued();
    return;
  }
  *oldest.since = {.time = now};
}

}  // namespace dreamddp
