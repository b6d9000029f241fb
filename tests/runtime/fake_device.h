// A device for tests of the lane: work given to a stream is done later, by a thread that picks among the
// streams at random.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device_stream.h"

namespace dreamddp::testing {

/// Streams are known by their names; a thread's current one is "training" unless it is inside a Scope.
/// Time passes by one second with each piece of work that is done.
class FakeDevice final : public DeviceStream {
 public:
  class Event final : public DeviceEvent, public std::enable_shared_from_this<Event> {
   public:
    std::atomic<bool> is_over = false;
    double seconds = 0;
  };

  /// @param is_held nothing is done before go_on()
  explicit FakeDevice(unsigned seed, bool is_held = false)
      : random_(seed), is_held_(is_held), thread_([this] { run(); }) {}
  ~FakeDevice() override {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      changes_.notify_all();
    }
    thread_.join();
  }

  std::unique_ptr<Scope> enter() override { return enter("lane"); }
  std::unique_ptr<Scope> enter(const std::string& stream) {
    return std::make_unique<CurrentStream>(std::exchange(current(), stream));
  }
  EventPointer record(bool /*is_timed*/ = false) override {
    auto event = std::make_shared<Event>();
    give(current(), [this, event] {
      event->seconds = seconds_;
      event->is_over = true;
    });
    return event;
  }
  void wait(const DeviceEvent& event) override {
    const auto awaited = static_cast<const Event&>(event).shared_from_this();
    give(
        current(), [] {}, [awaited] { return awaited->is_over.load(); });
  }
  bool is_over(const DeviceEvent& event) override { return static_cast<const Event&>(event).is_over; }
  void synchronise(const DeviceEvent& event) override {
    is_waited_for = true;
    while (!is_over(event)) std::this_thread::yield();
    ++num_synchronised;
  }
  double seconds_between(const DeviceEvent& begin, const DeviceEvent& end) override {
    return static_cast<const Event&>(end).seconds - static_cast<const Event&>(begin).seconds;
  }

  /// Work for the calling thread's current stream.
  void give(std::function<void()> work) {
    give(current(), [this, work = std::move(work)] {
      seconds_ += 1;
      work();
    });
  }
  /// From now on no work of the stream is done.
  void hold(const std::string& stream) {
    const std::lock_guard lock(mutex_);
    held_streams_.insert(stream);
  }
  /// Lets the device do all its work.
  void go_on() {
    const std::lock_guard lock(mutex_);
    is_held_ = false;
    held_streams_.clear();
    changes_.notify_all();
  }
  /// Blocks until all that has been given is done.
  void drain() {
    std::unique_lock lock(mutex_);
    changes_.wait(lock, [this] { return num_left_ == 0; });
  }

  std::atomic<int> num_synchronised = 0;
  std::atomic<bool> is_waited_for = false;  ///< somebody has called synchronise()

 private:
  struct Work {
    std::function<void()> action;
    std::function<bool()> may_begin;  ///< null: always
  };
  class CurrentStream final : public Scope {
   public:
    explicit CurrentStream(std::string before) : before_(std::move(before)) {}
    ~CurrentStream() override { current() = before_; }

   private:
    std::string before_;
  };

  static std::string& current() {
    thread_local std::string stream = "training";
    return stream;
  }

  void give(const std::string& stream, std::function<void()> action,
            std::function<bool()> may_begin = nullptr) {
    const std::lock_guard lock(mutex_);
    streams_[stream].push_back({std::move(action), std::move(may_begin)});
    ++num_left_;
    changes_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      std::vector<std::deque<Work>*> ready;
      for (auto& [name, works] : streams_) {
        if (is_held_ || held_streams_.contains(name) || works.empty()) continue;
        if (!works.front().may_begin || works.front().may_begin()) ready.push_back(&works);
      }
      if (ready.empty()) {
        if (is_closed_) return;
        changes_.wait(lock);
        continue;
      }
      std::deque<Work>& chosen = *ready[random_() % ready.size()];
      const Work work = std::move(chosen.front());
      chosen.pop_front();
      const bool pauses = random_() % 4 == 0;
      lock.unlock();
      if (pauses) std::this_thread::sleep_for(std::chrono::microseconds(300));
      work.action();
      lock.lock();
      --num_left_;
      changes_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changes_;
  std::map<std::string, std::deque<Work>> streams_;
  std::size_t num_left_ = 0;  // given and not done
  std::minstd_rand random_;
  bool is_held_;
  std::set<std::string> held_streams_;
  bool is_closed_ = false;
  double seconds_ = 0;  // of the device's thread
  std::thread thread_;
};

}  // namespace dreamddp::testing
