#include "runtime/progress_board.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds tick_limit{1000};
// How often entries are read while somebody waits for an answer.
constexpr Milliseconds answer_interval{20};
constexpr Milliseconds check_interval{100};
// How long close() waits for the store.
constexpr Milliseconds grace{250};
const char* const failed_key = "failed";

std::string key_of(int rank) { return "standing/" + std::to_string(rank); }

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

std::string seconds_text(Clock::duration duration) {
  std::ostringstream text;
  text.precision(2);
  text << std::chrono::duration<double>(duration).count() << " s";
  return text.str();
}

}  // namespace

struct ProgressBoard::State {
  /// What is known of another rank.
  struct Peer {
    std::optional<Standing> standing;
    Time heard;  // when its beat last changed, here
    std::optional<Time> seen_paused;
  };

  State(c10::intrusive_ptr<c10d::Store> the_store, int the_rank, int num_ranks, Milliseconds the_timeout)
      : store(std::move(the_store)),
        rank(the_rank),
        timeout(the_timeout),
        beat(the_timeout / 8),
        tick(std::clamp(Milliseconds(the_timeout / 8), Milliseconds(1), tick_limit)),
        peers(static_cast<std::size_t>(num_ranks)) {}

  // -- On the board's thread.

  void run() {
    std::unique_lock lock(mutex);
    while (!is_closed && !is_lost) {
      const bool is_hasty = answers_awaited > 0;
      changes.wait_for(lock, is_hasty ? answer_interval : tick, [this] { return is_closed || must_tell; });
      if (!is_closed) look(lock);
    }
    has_ended = true;
    changes.notify_all();
  }

  /// One round: tells, looks for failures, reads. The mutex is released around every access to the store.
  void look(std::unique_lock<std::mutex>& lock) {
    const Time now = Clock::now();
    const bool is_paused = own.activity == Activity::paused;
    const bool is_stalled = now - last_progress >= beat;
    const bool is_waited_for = is_awake && (is_stalled || is_paused);
    if (std::exchange(must_tell, false) || (is_waited_for && now - last_told >= beat)) tell(lock, now);
    if ((is_awake || answers_awaited > 0) && !own.has_heard_of_failure) look_for_failures(lock);
    if (answers_awaited > 0 || (is_stalled && num_ops_under_way > 0 && now - last_read >= beat)) read(lock);
    changes.notify_all();
  }

  void tell(std::unique_lock<std::mutex>& lock, Time now) {
    last_told = now;
    ++own.beat;
    const std::string text = to_text(own);
    const bool is_failed = own.activity == Activity::failed;
    access(lock, [&] {
      store->set(key_of(rank), text);
      if (is_failed) store->set(failed_key, std::to_string(rank));
    });
  }

  void look_for_failures(std::unique_lock<std::mutex>& lock) {
    bool found = false;
    access(lock, [&] { found = store->check({failed_key}); });
    if (!found) return;
    own.has_heard_of_failure = true;
    must_tell = true;  // the one that has failed asks who is alive
  }

  void read(std::unique_lock<std::mutex>& lock) {
    last_read = Clock::now();
    std::vector<std::optional<Standing>> found(peers.size());
    access(lock, [&] {
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::string key = key_of(static_cast<int>(i));
        if (static_cast<int>(i) == rank || !store->check({key})) continue;
        found[i] = parse_standing(store->get_to_str(key));
      }
    });
    const Time now = Clock::now();
    for (std::size_t i = 0; i < found.size(); ++i) {
      Peer& peer = peers[i];
      if (!found[i] || (peer.standing && peer.standing->beat == found[i]->beat)) continue;
      peer.standing = found[i];
      peer.heard = now;
      if (found[i]->activity == Activity::paused) peer.seen_paused = now;
    }
    changes.notify_all();
  }

  template <typename Action>
  void access(std::unique_lock<std::mutex>& lock, Action action) {
    if (is_lost) return;
    asked_store = Clock::now();
    lock.unlock();
    bool has_failed = false;
    try {
      action();
    } catch (...) {
      has_failed = true;
    }
    lock.lock();
    asked_store.reset();
    if (has_failed) {
      is_lost = true;
      changes.notify_all();
    }
  }

  // -- With the mutex held.

  bool store_is_silent() const {
    return is_lost || (asked_store && Clock::now() - *asked_store > std::max<Clock::duration>(tick, beat));
  }

  bool is_fresh(const Peer& peer) const { return Clock::now() - peer.heard < beat * 5 / 2; }

  /// Nothing where the peer has launched the op.
  std::optional<std::string> what_holds_up(const Peer& peer, const Position& position) const {
    if (!peer.standing) return "has given no sign of life: it has died, is stopped or is cut off";
    const Standing& standing = *peer.standing;
    const std::string at_step =
        standing.step < 0 ? " before its first step" : " at step " + std::to_string(standing.step);
    switch (standing.activity) {
      case Activity::failed:
        return "has failed" + at_step + " (" + standing.text + ")";
      case Activity::finishing:
        if (standing.launched < position) return "has called " + standing.text + at_step;
        break;
      case Activity::paused:
        if (is_fresh(peer)) return "pauses" + at_step;
        break;
      case Activity::training:
        break;
    }
    if (!is_fresh(peer)) {
      return "has given no sign of life for " + seconds_text(Clock::now() - peer.heard) +
             ": it has died, is stopped or is cut off (last seen" + at_step + ")";
    }
    if (standing.launched < position) return "is alive, but has not come so far: it is" + at_step;
    return std::nullopt;
  }

  template <typename Describe>
  std::string describe_peers(Describe describe, const std::string& otherwise) const {
    std::vector<std::string> parts;
    if (store_is_silent()) {
      parts.push_back(
          "the store of the process group does not answer, so its host (rank 0, or the launcher) has died, is "
          "stopped or is cut off");
    }
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (static_cast<int>(i) == rank) continue;
      if (store_is_silent() && !peers[i].standing) continue;
      if (const std::optional<std::string> text = describe(peers[i])) {
        parts.push_back("rank " + std::to_string(i) + " " + *text);
      }
    }
    return parts.empty() ? otherwise : join(parts);
  }

  bool somebody_pauses() const {
    return std::ranges::any_of(peers, [this](const Peer& peer) {
      return peer.seen_paused && Clock::now() - *peer.seen_paused < timeout;
    });
  }

  const c10::intrusive_ptr<c10d::Store> store;
  const int rank;
  const Milliseconds timeout;
  const Clock::duration beat;
  const Milliseconds tick;

  mutable std::mutex mutex;  // guards all that follows
  std::condition_variable changes;
  std::vector<Peer> peers;  // by rank; this one's stays empty
  Standing own;
  Time last_progress = Clock::now();
  Time last_told;
  Time last_read;
  std::optional<Time> asked_store;  // an access is under way since then
  int num_ops_under_way = 0;
  int answers_awaited = 0;
  bool must_tell = true;
  bool is_awake = false;
  bool is_lost = false;  // the store has failed
  bool is_closed = false;
  bool has_ended = false;
  std::thread thread;
};

ProgressBoard::ProgressBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int num_ranks,
                             Milliseconds timeout)
    : state_(std::make_shared<State>(std::move(store), rank, num_ranks, timeout)) {
  state_->is_lost = !state_->store;
  state_->thread = std::thread([state = state_] { state->run(); });
}

ProgressBoard::~ProgressBoard() { close(); }

void ProgressBoard::lane_changes() {
  const std::lock_guard lock(state_->mutex);
  state_->own.launched = {.lane = state_->own.launched.lane + 1};
}

void ProgressBoard::op_is_launched(std::int64_t sequence, std::int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->own.launched.sequence = sequence;
  if (step >= 0) state_->own.step = step;
  state_->last_progress = Clock::now();
  state_->is_awake = true;
  if (state_->own.activity == Activity::finishing) state_->own.activity = Activity::training;
}

void ProgressBoard::op_begins() {
  const std::lock_guard lock(state_->mutex);
  state_->last_progress = Clock::now();
  ++state_->num_ops_under_way;
}

void ProgressBoard::op_ends() {
  const std::lock_guard lock(state_->mutex);
  state_->last_progress = Clock::now();
  --state_->num_ops_under_way;
}

void ProgressBoard::set_paused(bool is_paused) {
  const std::lock_guard lock(state_->mutex);
  if (state_->own.activity == Activity::failed) return;
  state_->own.activity = is_paused ? Activity::paused : Activity::training;
  state_->is_awake = true;
  state_->must_tell = true;
  state_->last_progress = Clock::now();
  state_->changes.notify_all();
}

void ProgressBoard::fail(const std::string& text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->own.activity == Activity::failed) return;
  state_->own.activity = Activity::failed;
  state_->own.text = text;
  state_->must_tell = true;
  state_->changes.notify_all();
}

bool ProgressBoard::somebody_pauses() const {
  const std::lock_guard lock(state_->mutex);
  return state_->somebody_pauses();
}

std::string ProgressBoard::who_is_missing(std::int64_t sequence) const {
  const std::lock_guard lock(state_->mutex);
  const Position position{.lane = state_->own.launched.lane, .sequence = sequence};
  return state_->describe_peers(
      [&](const State::Peer& peer) { return state_->what_holds_up(peer, position); },
      "all ranks have come so far: the link is too slow for the timeout, which can be raised");
}

std::string ProgressBoard::ask_who_is_alive() {
  std::unique_lock lock(state_->mutex);
  const Time asked = Clock::now();
  const auto is_silent = [](const State::Peer& peer) {
    return !peer.standing ||
           !(peer.standing->has_heard_of_failure || peer.standing->activity == Activity::failed);
  };
  const auto num_silent = [&] {
    return std::ranges::count_if(state_->peers, is_silent) - 1;  // this rank's own entry is not read
  };
  ++state_->answers_awaited;
  state_->must_tell = true;
  state_->changes.notify_all();
  state_->changes.wait_until(lock, asked + state_->tick * 5 / 2,
                             [&] { return state_->is_lost || num_silent() == 0; });
  --state_->answers_awaited;
  return state_->describe_peers(
      [&](const State::Peer& peer) -> std::optional<std::string> {
        if (is_silent(peer)) return "does not answer: it has died, is stopped or is cut off";
        if (peer.standing->activity == Activity::failed) return "has failed, too";
        return std::nullopt;
      },
      "all ranks answer: the connection between two of them has failed");
}

void ProgressBoard::meet(const std::string& doing, const std::function<void()>& check) {
  std::unique_lock lock(state_->mutex);
  if (!state_->store) return;
  if (state_->own.activity == Activity::failed) throw SyncError(state_->own.text);
  const std::int64_t number = ++state_->own.num_meetings;
  state_->own.activity = Activity::finishing;
  state_->own.text = doing;
  state_->must_tell = true;
  ++state_->answers_awaited;
  const auto is_there = [&](const State::Peer& peer) {
    return &peer == &state_->peers[static_cast<std::size_t>(state_->rank)] ||
           (peer.standing && peer.standing->num_meetings >= number);
  };
  const auto all_are_there = [&] { return std::ranges::all_of(state_->peers, is_there); };
  const auto somebody_has_failed = [&] {
    return std::ranges::any_of(state_->peers, [](const State::Peer& peer) {
      return peer.standing && peer.standing->activity == Activity::failed;
    });
  };
  const Time began = Clock::now();
  Time deadline = began + state_->timeout;
  std::exception_ptr interruption;
  while (!all_are_there() && !somebody_has_failed() && !state_->is_lost && !interruption) {
    if (Clock::now() >= deadline) {
      if (!state_->somebody_pauses()) break;
      deadline = Clock::now() + state_->timeout;
    }
    state_->changes.notify_all();
    state_->changes.wait_for(lock, check_interval,
                             [&] { return all_are_there() || somebody_has_failed() || state_->is_lost; });
    lock.unlock();
    try {
      if (check) check();
    } catch (...) {
      interruption = std::current_exception();
    }
    lock.lock();
  }
  --state_->answers_awaited;
  if (interruption) std::rethrow_exception(interruption);
  if (all_are_there()) return;
  const std::string missing = state_->describe_peers(
      [&](const State::Peer& peer) -> std::optional<std::string> {
        if (is_there(peer)) return std::nullopt;
        return state_->what_holds_up(peer, {.lane = std::numeric_limits<std::int64_t>::max(),
                                            .sequence = std::numeric_limits<std::int64_t>::max()});
      },
      "a peer is missing");
  state_->own.activity = Activity::failed;
  state_->own.text = "rank " + std::to_string(state_->rank) + ": " + doing + " after step " +
                     std::to_string(state_->own.step) + " failed after " +
                     seconds_text(Clock::now() - began) + " (timeout " + seconds_text(state_->timeout) +
                     "), as a peer is missing: " + missing;
  state_->must_tell = true;
  state_->changes.notify_all();
  throw SyncError(state_->own.text);
}

void ProgressBoard::rest() {
  const std::lock_guard lock(state_->mutex);
  state_->is_awake = false;
}

void ProgressBoard::close() {
  std::unique_lock lock(state_->mutex);
  if (!state_->thread.joinable()) return;
  std::thread thread = std::move(state_->thread);
  state_->changes.wait_for(lock, grace, [this] { return !state_->must_tell || state_->is_lost; });
  state_->is_closed = true;
  state_->changes.notify_all();
  const bool ended = state_->changes.wait_for(lock, grace, [this] { return state_->has_ended; });
  lock.unlock();
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

}  // namespace dreamddp
