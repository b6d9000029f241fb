// Lanes of several ranks, each with threads of its own, over an all-reduce in shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "dreamddp/error.h"
#include "runtime/lane.h"

namespace dreamddp {
namespace {

constexpr std::size_t chunk_size = 4;

/// Sums of all chunks, by sequence number and index; a chunk is there when every rank has added to it.
class SharedSums {
 public:
  explicit SharedSums(int num_ranks) : num_ranks_(num_ranks) {}

  void add(const Chunk& chunk, const std::vector<double>& values) {
    const std::lock_guard lock(mutex_);
    Sum& sum = sums_[{chunk.sequence, chunk.index}];
    sum.values.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) sum.values[i] += values[i];
    ++sum.num_ranks;
    changes_.notify_all();
  }

  std::vector<double> wait(const Chunk& chunk) {
    std::unique_lock lock(mutex_);
    const Sum& sum = sums_[{chunk.sequence, chunk.index}];
    changes_.wait(lock, [&] { return sum.num_ranks == num_ranks_ || is_dead_; });
    if (sum.num_ranks != num_ranks_) throw std::runtime_error("a peer is gone");
    return sum.values;
  }

  void peer_dies() {
    const std::lock_guard lock(mutex_);
    is_dead_ = true;
    changes_.notify_all();
  }

 private:
  struct Sum {
    std::vector<double> values;
    int num_ranks = 0;
  };
  const int num_ranks_;
  std::mutex mutex_;
  std::condition_variable changes_;
  std::map<std::pair<std::int64_t, std::size_t>, Sum> sums_;
  bool is_dead_ = false;
};

/// Op i averages parameters[i].
class SharedMemoryTransport final : public LaneTransport {
 public:
  SharedMemoryTransport(SharedSums& sums, int num_ranks, std::vector<std::vector<double>>& parameters,
                        std::size_t num_slots)
      : sums_(sums), num_ranks_(num_ranks), parameters_(parameters), staging_(num_slots) {}

  std::size_t num_chunks(std::size_t op) override {
    return (parameters_[op].size() + chunk_size - 1) / chunk_size;
  }
  void pack(const Chunk& chunk, std::size_t slot) override {
    const auto [begin, end] = range(chunk);
    staging_[slot].assign(begin, end);
  }
  void reduce(const Chunk& chunk, std::size_t slot) override { sums_.add(chunk, staging_[slot]); }
  void wait(const Chunk& chunk, std::size_t slot) override { staging_[slot] = sums_.wait(chunk); }
  void unpack(const Chunk& chunk, std::size_t slot) override {
    auto [target, end] = range(chunk);
    for (const double sum : staging_[slot]) *target++ = sum / num_ranks_;
  }

 private:
  using Iterator = std::vector<double>::iterator;
  std::pair<Iterator, Iterator> range(const Chunk& chunk) {
    std::vector<double>& values = parameters_[chunk.op];
    const std::size_t begin = chunk.index * chunk_size;
    const std::size_t end = std::min(begin + chunk_size, values.size());
    return {values.begin() + begin, values.begin() + end};
  }

  SharedSums& sums_;
  const int num_ranks_;
  std::vector<std::vector<double>>& parameters_;
  std::vector<std::vector<double>> staging_;
};

class LaneAllReduce : public ::testing::TestWithParam<int> {};

TEST_P(LaneAllReduce, AllRanksGetTheExactMean) {
  const int num_ranks = GetParam();
  std::mt19937 random(num_ranks);
  const std::vector<std::size_t> sizes = {1, 0, 17, 4, 5, 64, 3};
  using Parameters = std::vector<std::vector<double>>;
  std::vector<Parameters> parameters(num_ranks);
  Parameters expected;
  for (const std::size_t size : sizes) {
    std::vector<double> sums(size);
    for (Parameters& of_rank : parameters) {
      std::vector<double>& values = of_rank.emplace_back(size);
      for (std::size_t i = 0; i < size; ++i) sums[i] += values[i] = random() % 1000;  // sums are exact
    }
    for (double& sum : sums) sum /= num_ranks;
    expected.push_back(sums);
  }

  SharedSums shared(num_ranks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::size_t num_slots = 1 + rank;  // ranks need not be alike
      LaneOptions options;
      options.num_slots = num_slots;
      Lane lane(std::make_unique<SharedMemoryTransport>(shared, num_ranks, parameters[rank], num_slots),
                std::move(options));
      for (std::size_t op = 0; op < sizes.size(); ++op) lane.launch(static_cast<std::int64_t>(op), op);
      for (std::size_t op = 0; op < sizes.size(); ++op) {
        lane.wait(static_cast<std::int64_t>(op));
        EXPECT_EQ(parameters[rank][op], expected[op]);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Parameters& of_rank : parameters) EXPECT_EQ(of_rank, expected);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LaneAllReduce, ::testing::Values(1, 2, 3));

// Rank 1 takes part in the first three chunks only: rank 0 then holds the mean in exactly those.
TEST(LaneAllReduce, DeadPeerLeavesMeanOrLocalValue) {
  SharedSums shared(2);
  std::vector<std::vector<double>> parameters = {std::vector<double>(5 * chunk_size, 1.0)};
  for (std::size_t index = 0; index < 3; ++index)
    shared.add({0, 0, index}, std::vector<double>(chunk_size, 3.0));
  LaneOptions options;
  options.num_slots = 2;
  Lane lane(std::make_unique<SharedMemoryTransport>(shared, 2, parameters, 2), std::move(options));
  lane.launch(0, 0);
  shared.peer_dies();
  EXPECT_THROW(lane.wait(0), SyncError);
  for (std::size_t i = 0; i < parameters[0].size(); ++i) {
    EXPECT_EQ(parameters[0][i], i < 3 * chunk_size ? 2.0 : 1.0) << "element " << i;
  }
}

}  // namespace
}  // namespace dreamddp
