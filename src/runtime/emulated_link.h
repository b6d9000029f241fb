// The emulated link of a process: one clock for all process groups that run over it. Design section 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "runtime/link_clock.h"
#include "runtime/timer.h"

namespace dreamddp {

struct LinkStatistics {
  std::int64_t num_ops = 0;
  std::int64_t num_bytes =
      0;                    ///< sum of n over the ops: what was averaged or sent, not the traffic of a ring
  double busy_seconds = 0;  ///< sum of x: time in which the link was taken
};

/// Thread-safe.
class EmulatedLink {
 public:
  /// @throws std::invalid_argument as validate()
  explicit EmulatedLink(const EmulatedLinkOptions& options) : options_(options), clock_(options) {}

  const EmulatedLinkOptions& options() const { return options_; }

  /// LinkClock::book() and earliest_start() of the process's clock.
  LinkBooking book(const LinkRequest& request);
  Nanoseconds earliest_start() const;

  /// Since the link was made.
  LinkStatistics statistics() const;
  /// The latest `max_recent` bookings, oldest first.
  std::vector<LinkBooking> recent() const;
  static constexpr std::size_t max_recent = 4096;

  Timer& timer() { return timer_; }

 private:
  const EmulatedLinkOptions options_;
  mutable std::mutex mutex_;
  LinkClock clock_;
  LinkStatistics statistics_;
  std::deque<LinkBooking> recent_;
  Timer timer_;
};

}  // namespace dreamddp
