#include "runtime/lane.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr std::chrono::milliseconds check_interval{100};

struct QueuedOp {
  std::int64_t sequence;
  std::size_t op;
};

/// An op whose chunks are being carried out.
struct BegunOp {
  std::int64_t sequence;
  std::size_t op;
  std::size_t num_chunks;
  std::size_t num_packed = 0;
  std::size_t num_unpacked = 0;
};

struct ChunkUnderWay {
  Chunk chunk;
  std::size_t slot;
  std::chrono::steady_clock::time_point oldest_since;  // or when it was last given more time
  std::int64_t ticket;
  bool has_warned = false;
};

/// An op whose means are kept back.
struct KeptOp {
  std::size_t op;
  bool is_reduced = false;
  bool is_released = false;
  bool is_being_written = false;
};

/// The text of the exception that `action` throws, or nothing.
template <typename Action>
std::optional<std::string> error_of(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown error in the lane";
  }
}

}  // namespace

struct Lane::State : std::enable_shared_from_this<Lane::State> {
  State(std::unique_ptr<LaneTransport> the_transport, LaneOptions the_options)
      : transport(std::move(the_transport)), options(std::move(the_options)) {
    if (options.num_slots < 1) {
      reject(
          {"num_slots", std::to_string(options.num_slots), "at least 1", "Use 2 or more to overlap chunks."});
    }
  }

  // -- Called from any thread.

  void launch(std::int64_t sequence, std::size_t op) {
    const bool is_kept_back = check_launch(sequence, op);
    transport->take_snapshot(sequence, op);
    const std::lock_guard lock(mutex);
    if (failure) throw SyncError(*failure);
    unfinished.insert(sequence);
    if (is_kept_back) kept_back.emplace(sequence, KeptOp{.op = op});
    last_launched = sequence;
    queue.push_back({sequence, op});
    work_arrives.notify_one();
  }

  void adopt(std::int64_t sequence, std::size_t op) {
    check_launch(sequence, op);
    const std::lock_guard lock(mutex);
    unfinished.insert(sequence);
    kept_back.emplace(sequence, KeptOp{.op = op, .is_reduced = true});
    last_launched = sequence;
  }

  void wait_until_reduced(std::int64_t sequence) {
    std::unique_lock lock(mutex);
    const auto is_reduced = [&] {
      const auto op = kept_back.find(sequence);
      return op == kept_back.end() || op->second.is_reduced;
    };
    op_finishes.wait(lock, [&] { return failure || is_reduced(); });
    if (!is_reduced()) throw SyncError(*failure);
  }

  /// @return whether the op is kept back
  bool check_launch(std::int64_t sequence, std::size_t op) {
    {
      const std::lock_guard lock(mutex);
      if (failure) throw SyncError(*failure);
      if (last_launched && sequence <= *last_launched) {
        reject({"sequence", std::to_string(sequence), "more than " + std::to_string(*last_launched),
                "Launch ops in the order of their sequence numbers."});
      }
    }
    return transport->is_kept_back(op);
  }

  void release(std::int64_t sequence) {
    const std::lock_guard lock(mutex);
    if (failure) return;  // wait() tells
    kept(sequence).is_released = true;
    work_arrives.notify_one();
    op_finishes.notify_all();
  }

  void wait(std::int64_t sequence, const std::function<void()>& check) {
    std::unique_lock lock(mutex);
    if (!was_launched(sequence) && !failure) {
      reject({"sequence", std::to_string(sequence), "an op that was launched",
              "Launch the op before waiting for it."});
    }
    const auto found = kept_back.find(sequence);
    if (found != kept_back.end() && !found->second.is_released && !failure) {
      reject({"sequence", std::to_string(sequence), "an op that was released",
              "Release an op that is kept back before waiting for it."});
    }
    const auto can_write = [&] {
      const auto op = kept_back.find(sequence);
      return op != kept_back.end() && may_be_written(op);
    };
    const auto may_go_on = [&] { return failure || finished(sequence) || can_write(); };
    while (!op_finishes.wait_for(lock, check_interval, may_go_on)) {
      if (!check) continue;
      lock.unlock();
      check();
      lock.lock();
    }
    if (!failure && can_write()) write(sequence, lock);
    if (!finished(sequence)) throw SyncError(*failure);
  }

  bool is_finished(std::int64_t sequence) const {
    const std::lock_guard lock(mutex);
    return finished(sequence);
  }

  /// The first failure stays. No chunk is packed or unpacked after it.
  void fail(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (failure) return;
    failure = text;
    queue.clear();
    work_arrives.notify_one();
    op_finishes.notify_all();
  }

  bool has_failed() const {
    const std::lock_guard lock(mutex);
    return failure.has_value();
  }

  // -- With the mutex held.

  bool was_launched(std::int64_t sequence) const { return last_launched && sequence <= *last_launched; }
  bool finished(std::int64_t sequence) const {
    return was_launched(sequence) && !unfinished.contains(sequence);
  }

  using KeptOps = std::map<std::int64_t, KeptOp>;

  /// Executions of one op are written one after the other: what is written may change what the next one
  /// keeps.
  bool may_be_written(KeptOps::const_iterator op) const {
    const KeptOp& kept = op->second;
    return kept.is_reduced && kept.is_released && !kept.is_being_written &&
           std::none_of(kept_back.begin(), op,
                        [&](const auto& earlier) { return earlier.second.op == kept.op; });
  }
  KeptOps::const_iterator next_to_write() const {
    auto op = kept_back.begin();
    while (op != kept_back.end() && !may_be_written(op)) ++op;
    return op;
  }
  KeptOp& kept(std::int64_t sequence) {
    const auto found = kept_back.find(sequence);
    if (found == kept_back.end()) {
      reject({"sequence", std::to_string(sequence), "an op that is kept back", "Release each op once."});
    }
    return found->second;
  }

  /// Writes a kept op, with the mutex released meanwhile.
  void write(std::int64_t sequence, std::unique_lock<std::mutex>& lock) {
    KeptOp& op = kept(sequence);
    op.is_being_written = true;
    const std::size_t index = op.op;
    lock.unlock();
    const std::optional<std::string> error = error_of([&] { transport->write(sequence, index); });
    if (error) fail(*error);
    lock.lock();
    kept_back.erase(sequence);
    if (!error) finish(sequence);
    work_arrives.notify_one();  // the next execution of the op may be written
  }

  void finish(std::int64_t sequence) {
    unfinished.erase(sequence);
    op_finishes.notify_all();
  }

  // -- On the lane's thread.

  void run() {
    const std::optional<std::string> error = error_of([this] { carry_out(); });
    // An op that cannot be packed does not harm the chunks in front of it: they are unpacked before the
    // failure is made known. After a failed reduction nothing is unpacked any more. The group may still use
    // the buffers of chunks under way, however late they are.
    while (!under_way.empty()) {
      await_oldest();
      complete_oldest();
    }
    if (error) fail(*error);
    const std::lock_guard lock(mutex);
    has_ended = true;
    thread_ends.notify_one();
  }

  void carry_out() {
    while (!has_failed()) {
      if (under_way.size() < options.num_slots && has_chunk_to_pack()) {
        pack_next();
      } else if (oldest_is_reduced()) {
        complete_oldest();
      } else if (!write_next()) {
        wait_for_work();
      }
    }
  }

  /// Begins queued ops until one has chunks.
  bool has_chunk_to_pack() {
    while (begun.empty() || begun.back().num_packed == begun.back().num_chunks) {
      const std::optional<QueuedOp> next = take_queued();
      if (!next) return false;
      const std::size_t num_chunks = transport->num_chunks(next->op);
      if (options.op_begins) options.op_begins(next->sequence, next->op);
      begun.push_back({.sequence = next->sequence, .op = next->op, .num_chunks = num_chunks});
      end_completed_ops();
    }
    return true;
  }

  std::optional<QueuedOp> take_queued() {
    const std::lock_guard lock(mutex);
    if (queue.empty()) return std::nullopt;
    const QueuedOp next = queue.front();
    queue.pop_front();
    return next;
  }

  void pack_next() {
    BegunOp& op = begun.back();
    const ChunkUnderWay next{.chunk = {op.sequence, op.op, op.num_packed},
                             .slot = next_slot,
                             .oldest_since = std::chrono::steady_clock::now(),
                             .ticket = next_ticket++};
    transport->pack_and_reduce(next.chunk, next.slot);
    ++op.num_packed;
    under_way.push_back(next);
    next_slot = (next_slot + 1) % options.num_slots;
    transport->when_reduced(next.slot, [state = weak_from_this(), ticket = next.ticket] {
      if (const std::shared_ptr<State> lane = state.lock()) lane->chunk_is_reduced(ticket);
    });
  }

  /// From any thread.
  void chunk_is_reduced(std::int64_t ticket) {
    const std::lock_guard lock(mutex);
    reduced.insert(ticket);
    work_arrives.notify_one();
  }

  bool oldest_is_reduced() const {
    const std::lock_guard lock(mutex);
    return !under_way.empty() && reduced.contains(under_way.front().ticket);
  }

  void await_oldest() {
    std::unique_lock lock(mutex);
    work_arrives.wait(lock, [this] { return reduced.contains(under_way.front().ticket); });
  }

  /// Writes the first of the kept ops that may be written.
  bool write_next() {
    std::unique_lock lock(mutex);
    const auto next = next_to_write();
    if (next == kept_back.end() || failure) return false;
    write(next->first, lock);
    return true;
  }

  void complete_oldest() {
    const ChunkUnderWay oldest = under_way.front();
    under_way.pop_front();
    if (!under_way.empty()) under_way.front().oldest_since = std::chrono::steady_clock::now();
    {
      const std::lock_guard lock(mutex);
      reduced.erase(oldest.ticket);
    }
    const std::optional<std::string> error = error_of([&] {
      transport->wait(oldest.chunk, oldest.slot);
      if (has_failed()) return;
      transport->unpack(oldest.chunk, oldest.slot);
      ++begun.front().num_unpacked;
      end_completed_ops();
    });
    if (error) fail(*error);
  }

  /// Ops end in order: one without chunks waits for those in front of it.
  void end_completed_ops() {
    while (!begun.empty() && begun.front().num_unpacked == begun.front().num_chunks) {
      const BegunOp op = begun.front();
      begun.pop_front();
      if (options.op_ends) options.op_ends(op.sequence, op.op);
      const std::lock_guard lock(mutex);
      const auto kept = kept_back.find(op.sequence);
      if (kept == kept_back.end()) {
        finish(op.sequence);
      } else {
        kept->second.is_reduced = true;
        op_finishes.notify_all();
      }
    }
  }

  void wait_for_work() {
    std::unique_lock lock(mutex);
    const auto has_work = [this] {
      return failure || (!under_way.empty() && reduced.contains(under_way.front().ticket)) ||
             (under_way.size() < options.num_slots && !queue.empty()) || next_to_write() != kept_back.end();
    };
    if (under_way.empty() || !options.timeout) {
      work_arrives.wait(lock, has_work);
      return;
    }
    const ChunkUnderWay& oldest = under_way.front();
    const auto allowed = oldest.has_warned ? *options.timeout : *options.timeout / 2;
    if (work_arrives.wait_until(lock, oldest.oldest_since + allowed, has_work)) return;
    lock.unlock();
    oldest_is_late();
  }

  void oldest_is_late() {
    ChunkUnderWay& oldest = under_way.front();
    const auto now = std::chrono::steady_clock::now();
    const Lateness lateness{.chunk = oldest.chunk,
                            .elapsed = now - oldest.oldest_since,
                            .has_timed_out = std::exchange(oldest.has_warned, true)};
    const std::optional<std::string> text =
        options.is_late ? options.is_late(lateness) : "a reduction has not ended within its timeout";
    if (!lateness.has_timed_out) return;
    if (text) return fail(*text);  // at once: what is under way may never end
    oldest.oldest_since = now;
    oldest.has_warned = false;
  }

  const std::unique_ptr<LaneTransport> transport;
  const LaneOptions options;

  mutable std::mutex mutex;              // guards the members up to the next gap
  std::condition_variable work_arrives;  // for the lane's thread
  std::condition_variable op_finishes;
  std::condition_variable thread_ends;
  bool has_ended = false;
  std::deque<QueuedOp> queue;  // launched and not begun
  std::set<std::int64_t> unfinished;
  KeptOps kept_back;               // launched and not written
  std::set<std::int64_t> reduced;  // tickets of chunks under way
  std::optional<std::int64_t> last_launched;
  std::optional<std::string> failure;

  // Of the lane's thread alone.
  std::deque<BegunOp> begun;            // in order; all but the last have been packed
  std::deque<ChunkUnderWay> under_way;  // packed and not waited for, oldest first
  std::size_t next_slot = 0;
  std::int64_t next_ticket = 0;
};

Lane::Lane(std::unique_ptr<LaneTransport> transport, LaneOptions options)
    : state_(std::make_shared<State>(std::move(transport), std::move(options))),
      thread_([state = state_] { state->run(); }) {}

Lane::~Lane() {
  state_->fail("the lane was closed");
  std::unique_lock lock(state_->mutex);
  const bool ended =
      state_->thread_ends.wait_for(lock, state_->options.grace, [this] { return state_->has_ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Lane::launch(std::int64_t sequence, std::size_t op) { state_->launch(sequence, op); }

void Lane::release(std::int64_t sequence) { state_->release(sequence); }

void Lane::wait(std::int64_t sequence, const std::function<void()>& check) { state_->wait(sequence, check); }

void Lane::wait_until_reduced(std::int64_t sequence) { state_->wait_until_reduced(sequence); }

void Lane::adopt(std::int64_t sequence, std::size_t op) { state_->adopt(sequence, op); }

LaneTransport& Lane::transport() { return *state_->transport; }

bool Lane::is_finished(std::int64_t sequence) const { return state_->is_finished(sequence); }

bool Lane::has_failed() const { return state_->has_failed(); }

void Lane::abort(const std::string& reason) { state_->fail(reason); }

}  // namespace dreamddp
