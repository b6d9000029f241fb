#include "runtime/timer.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace dreamddp {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

Nanoseconds now_nanoseconds() {
  return std::chrono::duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

struct Timer::State {
  std::mutex mutex;
  std::condition_variable changes;
  std::multimap<Nanoseconds, std::function<void()>> actions;
  bool is_closed = false;
  std::thread thread;

  void run() {
    while (const std::function<void()> action = next_action()) action();
  }

  /// Blocks until an action is due. Empty after close(), when all have been called.
  std::function<void()> next_action() {
    std::unique_lock lock(mutex);
    while (true) {
      if (actions.empty()) {
        if (is_closed) return {};
        changes.wait(lock);
        continue;
      }
      const Nanoseconds due = actions.begin()->first;
      if (is_closed || due <= now_nanoseconds()) return std::move(actions.extract(actions.begin()).mapped());
      changes.wait_until(lock, steady_clock::time_point(nanoseconds(due)));
    }
  }
};

Timer::Timer() : state_(std::make_shared<State>()) {}

Timer::~Timer() { close(); }

void Timer::at(Nanoseconds time, std::function<void()> action) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->is_closed) {
      state_->actions.emplace(time, std::move(action));
      if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->run(); });
      state_->changes.notify_one();
      return;
    }
  }
  action();
}

void Timer::close() {
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_closed = true;
    state_->changes.notify_one();
    thread = std::move(state_->thread);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace dreamddp
