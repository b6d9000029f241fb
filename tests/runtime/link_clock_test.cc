#include "runtime/link_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace dreamddp {
namespace {

// 1 GB/s: one byte per nanosecond.
EmulatedLinkOptions gigabyte_link(double latency_seconds, int in_flight) {
  EmulatedLinkOptions options;
  options.link.bandwidth_bytes_per_second = 1e9;
  options.link.latency_seconds = latency_seconds;
  options.link.in_flight = in_flight;
  return options;
}

LinkRequest broadcast_of(std::int64_t num_bytes, Nanoseconds ready, Nanoseconds jitter = 0) {
  return {.collective = Collective::broadcast,
          .num_bytes = num_bytes,
          .workers = 2,
          .ready = ready,
          .jitter = jitter};
}

struct Times {
  Nanoseconds start;
  Nanoseconds finish;
  bool operator==(const Times&) const = default;
};

Times book(LinkClock& clock, const LinkRequest& request) {
  const LinkBooking booking = clock.book(request);
  return {booking.start, booking.finish};
}

TEST(LinkClock, OneInFlight) {
  LinkClock clock(gigabyte_link(50e-9, 1));
  EXPECT_EQ(book(clock, broadcast_of(100, 1000)), (Times{1000, 1150}));
  EXPECT_EQ(clock.earliest_start(), 1150);
  EXPECT_EQ(book(clock, broadcast_of(10, 1001)), (Times{1150, 1210}));  // behind the latency, too
  EXPECT_EQ(book(clock, broadcast_of(10, 5000)), (Times{5000, 5060}));  // an idle link
}

TEST(LinkClock, TwoInFlightHideTheLatency) {
  LinkClock clock(gigabyte_link(500e-9, 2));
  EXPECT_EQ(book(clock, broadcast_of(100, 0)), (Times{0, 600}));
  EXPECT_EQ(book(clock, broadcast_of(100, 0)), (Times{100, 700}));   // the link is free after the transfer
  EXPECT_EQ(book(clock, broadcast_of(100, 0)), (Times{600, 1200}));  // the first must have arrived
  EXPECT_EQ(book(clock, broadcast_of(100, 0)), (Times{700, 1300}));
  EXPECT_EQ(clock.earliest_start(), 1200);
}

TEST(LinkClock, JitterDelaysTheFinishAndWhatWaitsForIt) {
  LinkClock clock(gigabyte_link(0, 1));
  EXPECT_EQ(book(clock, broadcast_of(100, 0, 7)), (Times{0, 107}));
  EXPECT_EQ(book(clock, broadcast_of(100, 0, 3)), (Times{107, 210}));
}

TEST(LinkClock, TransferOfEachCollective) {
  Link link;
  link.bandwidth_bytes_per_second = 1e9;
  const auto transfer = [&](Collective collective, int workers) {
    return transfer_nanoseconds({.collective = collective, .num_bytes = 1200, .workers = workers}, link);
  };
  EXPECT_EQ(transfer(Collective::all_reduce, 2), 1200);  // 2 * 1/2
  EXPECT_EQ(transfer(Collective::all_reduce, 4), 1800);  // 2 * 3/4
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::gather, Collective::scatter}) {
    EXPECT_EQ(transfer(collective, 2), 600);
    EXPECT_EQ(transfer(collective, 4), 900);
    EXPECT_EQ(transfer(collective, 1), 0);
  }
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    EXPECT_EQ(transfer(collective, 2), 1200);
    EXPECT_EQ(transfer(collective, 4), 1200);
    EXPECT_EQ(transfer(collective, 1), 0);
  }
  EXPECT_EQ(transfer(Collective::all_reduce, 1), 0);
  EXPECT_EQ(transfer(Collective::barrier, 4), 0);
}

TEST(LinkClock, HugeTransfersDoNotOverflow) {
  LinkClock clock(gigabyte_link(0, 1));
  Nanoseconds last = 0;
  for (int i = 0; i < 100; ++i) {
    const LinkBooking booking = clock.book(broadcast_of(std::int64_t{1} << 62, 0));
    EXPECT_GT(booking.finish, last);
    last = booking.finish;
  }
}

// The formula, written down once more for all ops at a time.
TEST(LinkClock, FollowsTheFormulaForRandomOps) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto in_flight = static_cast<std::size_t>(1 + random() % 4);
    const Nanoseconds latency = random() % 300;
    LinkClock clock(gigabyte_link(static_cast<double>(latency) * 1e-9, static_cast<int>(in_flight)));
    std::vector<Nanoseconds> starts;
    std::vector<Nanoseconds> transfers;
    std::vector<Nanoseconds> finishes;
    for (std::size_t i = 0; i < 50; ++i) {
      const Nanoseconds ready = random() % 10'000;
      const Nanoseconds transfer = random() % 400;
      const Nanoseconds jitter = random() % 50;
      Nanoseconds start = ready;
      if (i > 0) start = std::max(start, starts[i - 1] + transfers[i - 1]);
      if (i >= in_flight) start = std::max(start, finishes[i - in_flight]);
      starts.push_back(start);
      transfers.push_back(transfer);
      finishes.push_back(start + transfer + latency + jitter);
      EXPECT_LE(clock.earliest_start(), start);
      EXPECT_EQ(book(clock, broadcast_of(transfer, ready, jitter)), (Times{start, finishes.back()}));
    }
  }
}

TEST(LinkJitter, DependsOnSeedGroupAndPlaceOnly) {
  EmulatedLinkOptions options = gigabyte_link(0, 1);
  options.jitter_seconds = 1e-3;
  options.seed = 7;
  EXPECT_EQ(draw_jitter(options, "0", 3), draw_jitter(options, "0", 3));
  EmulatedLinkOptions other = options;
  other.seed = 8;
  const std::set<Nanoseconds> draws = {draw_jitter(options, "0", 3), draw_jitter(options, "0", 4),
                                       draw_jitter(options, "1", 3), draw_jitter(other, "0", 3)};
  EXPECT_EQ(draws.size(), 4u);
}

TEST(LinkJitter, IsUniformUpToTheLimit) {
  EmulatedLinkOptions options = gigabyte_link(0, 1);
  options.jitter_seconds = 1e-3;
  std::vector<int> per_tenth(10);
  for (std::uint64_t sequence = 0; sequence < 10'000; ++sequence) {
    const Nanoseconds jitter = draw_jitter(options, "default", sequence);
    ASSERT_GE(jitter, 0);
    ASSERT_LE(jitter, 1'000'000);
    ++per_tenth[std::min<Nanoseconds>(jitter / 100'000, 9)];
  }
  for (const int count : per_tenth) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
  options.jitter_seconds = 0;
  EXPECT_EQ(draw_jitter(options, "default", 1), 0);
}

TEST(LinkClock, BadOptionsAreRejected) {
  EXPECT_THROW(LinkClock(EmulatedLinkOptions{}), std::invalid_argument);
  for (const double bandwidth : {0.0, -1.0}) {
    EmulatedLinkOptions options = gigabyte_link(0, 1);
    options.link.bandwidth_bytes_per_second = bandwidth;
    EXPECT_THROW(LinkClock{options}, std::invalid_argument);
  }
  EXPECT_THROW(LinkClock(gigabyte_link(-1e-3, 1)), std::invalid_argument);
  EXPECT_THROW(LinkClock(gigabyte_link(0, 0)), std::invalid_argument);
  for (const double jitter : {-1e-3, std::numeric_limits<double>::quiet_NaN()}) {
    EmulatedLinkOptions options = gigabyte_link(0, 1);
    options.jitter_seconds = jitter;
    EXPECT_THROW(LinkClock{options}, std::invalid_argument);
  }
}

}  // namespace
}  // namespace dreamddp
