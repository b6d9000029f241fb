#include "runtime/timer.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace dreamddp {
namespace {

constexpr Nanoseconds hour = 3'600'000'000'000;

TEST(Timer, CallsInOrderOfTimes) {
  Timer timer;
  std::string calls;  // of the timer's thread, until it has ended
  std::promise<void> all_set;
  timer.at(0, [&] { all_set.get_future().wait(); });
  const Nanoseconds now = now_nanoseconds();
  timer.at(now + 3 * hour, [&] { calls += 'e'; });
  timer.at(now - 1, [&] { calls += 'b'; });
  timer.at(now - 2, [&] { calls += 'a'; });
  timer.at(now + 1 * hour, [&] { calls += 'c'; });
  timer.at(now + 1 * hour, [&] { calls += 'd'; });
  all_set.set_value();
  timer.close();  // does not wait for hours
  EXPECT_EQ(calls, "abcde");
}

TEST(Timer, NeverCallsBeforeTheTime) {
  Timer timer;
  for (int i = 0; i < 20; ++i) {
    const Nanoseconds due = now_nanoseconds() + 200'000 * (i % 5);
    std::promise<Nanoseconds> called;
    timer.at(due, [&] { called.set_value(now_nanoseconds()); });
    EXPECT_GE(called.get_future().get(), due);
  }
}

TEST(Timer, AnEarlierActionOvertakes) {
  bool late_was_called = false;
  std::promise<bool> early;
  Timer timer;
  timer.at(now_nanoseconds() + hour, [&] { late_was_called = true; });
  timer.at(0, [&] { early.set_value(late_was_called); });
  EXPECT_FALSE(early.get_future().get());
}

TEST(Timer, AfterCloseTheCallerCalls) {
  Timer timer;
  timer.close();
  std::optional<std::thread::id> caller;
  timer.at(now_nanoseconds() + hour, [&] { caller = std::this_thread::get_id(); });
  EXPECT_EQ(caller, std::this_thread::get_id());
  timer.close();
}

TEST(Timer, ActionsMaySetActionsAndCloseTheTimer) {
  auto timer = std::make_unique<Timer>();
  std::promise<void> destroyed;
  timer->at(0, [&] {
    timer->at(0, [&] {
      timer.reset();
      destroyed.set_value();
    });
  });
  destroyed.get_future().wait();
}

TEST(Timer, ManyThreads) {
  int num_calls = 0;
  {
    Timer timer;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 200; ++j)
          timer.at(j % 2 == 0 ? 0 : now_nanoseconds() + hour, [&] { ++num_calls; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(num_calls, 800);
}

}  // namespace
}  // namespace dreamddp
