#include "runtime/emulated_link.h"

namespace dreamddp {

LinkBooking EmulatedLink::book(const LinkRequest& request) {
  const std::lock_guard lock(mutex_);
  const LinkBooking booking = clock_.book(request);
  ++statistics_.num_ops;
  statistics_.num_bytes += request.num_bytes;
  statistics_.busy_seconds += static_cast<double>(booking.transfer) * 1e-9;
  recent_.push_back(booking);
  if (recent_.size() > max_recent) recent_.pop_front();
  return booking;
}

Nanoseconds EmulatedLink::earliest_start() const {
  const std::lock_guard lock(mutex_);
  return clock_.earliest_start();
}

LinkStatistics EmulatedLink::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

std::vector<LinkBooking> EmulatedLink::recent() const {
  const std::lock_guard lock(mutex_);
  return {recent_.begin(), recent_.end()};
}

}  // namespace dreamddp
