#include "runtime/emulated_link.h"

#include <utility>

namespace dreamddp {
namespace {

constexpr const char* close_reason = "the emulated link was closed";

}  // namespace

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

void EmulatedLink::add_user(const std::shared_ptr<LinkUser>& user) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closed_) {
      std::erase_if(users_, [](const auto& known) { return known.expired(); });
      users_.push_back(user);
      return;
    }
  }
  user->close(close_reason);
}

void EmulatedLink::close() {
  std::vector<std::weak_ptr<LinkUser>> users;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    users = std::exchange(users_, {});
  }
  for (const auto& weak : users) {
    if (const auto user = weak.lock()) user->close(close_reason);
  }
  timer_.close();
}

}  // namespace dreamddp
