#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "dreamddp/error.h"
#include "scripted_transport.h"

namespace dreamddp {
namespace {

using testing::Call;
using testing::Script;
using testing::scripted_lane;

TEST(LaneThreads, ManyLaunchAndWait) {
  Script script{.num_chunks = {0, 1, 2, 3}};
  std::mutex launching;
  std::int64_t next_sequence = 0;
  std::atomic<int> num_finished = 0;
  {
    Lane lane = scripted_lane(script, 3);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 8; ++seed) {
      threads.emplace_back([&, seed] {
        std::mt19937 random(seed);
        for (int i = 0; i < 100; ++i) {
          std::int64_t sequence = 0;
          {
            const std::lock_guard lock(launching);
            sequence = next_sequence++;
            lane.launch(sequence, random() % 4);
          }
          if (random() % 2 == 0) lane.wait(sequence / 2);
          lane.wait(sequence);
          num_finished += lane.is_finished(sequence) ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(num_finished, 800);
  EXPECT_EQ(script.calls_of("end").size(), 800u);
}

TEST(LaneThreads, AllSeeTheSameFailure) {
  for (unsigned round = 0; round < 20; ++round) {
    Script script{.num_chunks = {2}};
    script.before = [](const Call& call) {
      if (call == Call{"wait", 50, 1}) throw std::runtime_error("timed out");
    };
    std::mutex launching;
    std::int64_t next_sequence = 0;
    std::atomic<int> num_failed = 0;
    Lane lane = scripted_lane(script);
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&] {
        try {
          while (true) {
            std::int64_t sequence = 0;
            {
              const std::lock_guard lock(launching);
              sequence = next_sequence++;
              lane.launch(sequence, 0);
            }
            lane.wait(sequence);
          }
        } catch (const SyncError& error) {
          num_failed += std::string(error.what()) == "timed out" ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(num_failed, 6);
    EXPECT_TRUE(lane.is_finished(49));
    EXPECT_FALSE(lane.is_finished(50));
  }
}

TEST(LaneThreads, AbortAmongLaunches) {
  for (unsigned round = 0; round < 50; ++round) {
    Script script{.num_chunks = {3}};
    Lane lane = scripted_lane(script, 2);
    std::thread launcher([&lane] {
      try {
        for (std::int64_t sequence = 0;; ++sequence) {
          lane.launch(sequence, 0);
          if (sequence % 7 == 0) lane.wait(sequence);
        }
      } catch (const SyncError& error) {
        EXPECT_STREQ(error.what(), "stop");
      }
    });
    std::thread aborter([&lane] { lane.abort("stop"); });
    launcher.join();
    aborter.join();
  }
}

}  // namespace
}  // namespace dreamddp
