#include "runtime/lane.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

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

struct Lane::State {
  State(std::unique_ptr<LaneTransport> the_transport, LaneOptions the_options)
      : transport(std::move(the_transport)), options(std::move(the_options)) {
    if (options.num_slots < 1) {
      reject(
          {"num_slots", std::to_string(options.num_slots), "at least 1", "Use 2 or more to overlap chunks."});
    }
  }

  // -- Called from any thread.

  void launch(std::int64_t sequence, std::size_t op) {
    const std::lock_guard lock(mutex);
    if (failure) throw SyncError(*failure);
    if (last_launched && sequence <= *last_launched) {
      reject({"sequence", std::to_string(sequence), "more than " + std::to_string(*last_launched),
              "Launch ops in the order of their sequence numbers."});
    }
    unfinished.insert(sequence);
    last_launched = sequence;
    queue.push_back({sequence, op});
    op_arrives.notify_one();
  }

  void wait(std::int64_t sequence) {
    std::unique_lock lock(mutex);
    if (!was_launched(sequence) && !failure) {
      reject({"sequence", std::to_string(sequence), "an op that was launched",
              "Launch the op before waiting for it."});
    }
    op_finishes.wait(lock, [&] { return failure || finished(sequence); });
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
    op_arrives.notify_one();
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

  // -- On the lane's thread.

  void run() {
    const std::optional<std::string> error = error_of([this] { carry_out(); });
    // An op that cannot be packed does not harm the chunks in front of it: they are unpacked before the
    // failure is made known. After a failed reduction nothing is unpacked any more.
    while (!under_way.empty()) complete_oldest();
    if (error) fail(*error);
    const std::lock_guard lock(mutex);
    has_ended = true;
    thread_ends.notify_one();
  }

  void carry_out() {
    while (!has_failed()) {
      if (under_way.size() < options.num_slots && has_chunk_to_pack()) {
        pack_next();
      } else if (!under_way.empty()) {
        complete_oldest();
      } else {
        wait_for_op();
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
    const ChunkUnderWay next{{op.sequence, op.op, op.num_packed}, next_slot};
    transport->pack_and_reduce(next.chunk, next.slot);
    ++op.num_packed;
    under_way.push_back(next);
    next_slot = (next_slot + 1) % options.num_slots;
  }

  void complete_oldest() {
    const ChunkUnderWay oldest = under_way.front();
    under_way.pop_front();
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
      unfinished.erase(op.sequence);
      op_finishes.notify_all();
    }
  }

  void wait_for_op() {
    std::unique_lock lock(mutex);
    op_arrives.wait(lock, [this] { return failure || !queue.empty(); });
  }

  const std::unique_ptr<LaneTransport> transport;
  const LaneOptions options;

  mutable std::mutex mutex;  // guards the members up to the next gap
  std::condition_variable op_arrives;
  std::condition_variable op_finishes;
  std::condition_variable thread_ends;
  bool has_ended = false;
  std::deque<QueuedOp> queue;  // launched and not begun
  std::set<std::int64_t> unfinished;
  std::optional<std::int64_t> last_launched;
  std::optional<std::string> failure;

  // Of the lane's thread alone.
  std::deque<BegunOp> begun;            // in order; all but the last have been packed
  std::deque<ChunkUnderWay> under_way;  // packed and not waited for, oldest first
  std::size_t next_slot = 0;
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

void Lane::wait(std::int64_t sequence) { state_->wait(sequence); }

bool Lane::is_finished(std::int64_t sequence) const { return state_->is_finished(sequence); }

void Lane::abort(const std::string& reason) { state_->fail(reason); }

}  // namespace dreamddp
