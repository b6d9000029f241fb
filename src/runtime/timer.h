// A thread that calls functions at given times.
#pragma once

#include <functional>
#include <memory>

#include "runtime/link_clock.h"

namespace dreamddp {

/// Now, on the clock of all times here.
Nanoseconds now_nanoseconds();

/// Thread-safe. The thread starts with the first call of at() and sleeps between actions.
class Timer {
 public:
  Timer();
  /// close()
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Has `action` called on the timer's thread at `time` (at once where that has passed), in order of times,
  /// then of calls. Actions must not throw. After close() `action` is called before at() returns.
  void at(Nanoseconds time, std::function<void()> action);

  /// Ends the thread and waits for its end. Actions that are still to come are called now, before their
  /// time, so nobody is left waiting for them. From an action it does not wait.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which outlives a timer that its own action closes
};

}  // namespace dreamddp
