// What the ranks tell each other, beside their collectives, when somebody is late: how far each of them is.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/standing.h"

namespace c10d {
class Store;
}

namespace dreamddp {

/// A rank's entry in the store of its process group, and what it knows of the others'.
///
/// A thread of its own carries out all access to the store, so neither the lane nor the training waits for a
/// store that does not answer. In the steady state nothing is written: a rank writes when it has launched no
/// op for an eighth of the timeout (and again after each further eighth), when it pauses, finishes or fails,
/// and when another one has failed. The others' entries are read only while an op takes longer than that.
/// Once a second (or each eighth of the timeout, where that is shorter) it looks whether a rank has failed.
///
/// Thread-safe. No method throws but meet(). Nothing but ask() and meet() blocks.
class ProgressBoard {
 public:
  /// @param store not used by anybody else at the same time: a clone of the group's. May be null: then nobody
  ///   is known.
  ProgressBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int num_ranks,
                std::chrono::milliseconds timeout);
  /// close()
  ~ProgressBoard();
  ProgressBoard(const ProgressBoard&) = delete;
  ProgressBoard& operator=(const ProgressBoard&) = delete;

  /// From here on ops are those of another lane. All ranks call this at the same places.
  void lane_changes();
  /// This rank has launched an op.
  /// @param step the iteration it belongs to; -1: none
  void op_is_launched(std::int64_t sequence, std::int64_t step);
  void op_begins();
  void op_ends();
  /// From now on this rank is expected to be late, or not any more. Others hear of it at once.
  void set_paused(bool is_paused);
  /// Others hear of it at once. The first text stays.
  void fail(const std::string& text);

  /// Whether a rank has been seen pausing, alive, within the last timeout.
  bool somebody_pauses() const;
  /// Which ranks an op of the lane waits for, and what is known of them; a sentence without its end.
  std::string who_is_missing(std::int64_t sequence) const;
  /// After fail(): gives the others the time to answer, then says who did not. Blocks for about two seconds,
  /// less where the timeout is short.
  std::string ask_who_is_alive();

  /// Blocks until every rank has called this as often. Does not use the process group: a rank that is still
  /// in its training is not disturbed.
  /// @param doing "finish()"
  /// @param check called now and then while it blocks; what it throws ends the call
  /// @throws SyncError where a rank has failed, or does not come within the timeout
  void meet(const std::string& doing, const std::function<void()>& check);
  /// Nobody is expected to come until the next op is launched.
  void rest();

  /// Ends the thread; where the store does not answer, the thread outlives the board.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dreamddp
