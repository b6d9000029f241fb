// The emulated link of a process: one clock for all process groups that run over it. Design section 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
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

/// What runs over a link and must end before the link does.
class LinkUser {
 public:
  virtual ~LinkUser() = default;
  /// Fails all that is under way, and all that is launched later. Thread-safe.
  virtual void close(const std::string& reason) = 0;
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

  /// Closes the user when the link is closed, or at once where that has happened.
  void add_user(const std::shared_ptr<LinkUser>& user);
  /// Closes the users, then ends the timer's thread. Afterwards no thread of the link, or of the process
  /// groups under it, completes a work of the link. Blocks for callbacks that are running.
  void close();

 private:
  const EmulatedLinkOptions options_;
  mutable std::mutex mutex_;
  LinkClock clock_;
  LinkStatistics statistics_;
  std::deque<LinkBooking> recent_;
  std::vector<std::weak_ptr<LinkUser>> users_;
  bool is_closed_ = false;
  Timer timer_;
};

}  // namespace dreamddp
