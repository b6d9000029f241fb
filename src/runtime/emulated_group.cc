#include "runtime/emulated_group.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dreamddp/units.h"

namespace dreamddp {
namespace {

using std::chrono::milliseconds;

Nanoseconds to_nanoseconds(milliseconds time) {
  constexpr milliseconds year = std::chrono::hours(24 * 365);
  return std::chrono::nanoseconds(std::min(time, year)).count();
}

std::exception_ptr timeout_error(const EmulatedOp& op, const LinkBooking& booking, const Link& link) {
  const double needed = static_cast<double>(booking.finish - op.launched) * 1e-9;
  return std::make_exception_ptr(std::runtime_error(
      "timed out after " + std::to_string(op.timeout.count()) + " ms: over the emulated link of " +
      format_bytes_per_second(*link.bandwidth_bytes_per_second) + " this collective of " +
      format_num_bytes(static_cast<double>(booking.request.num_bytes)) + " ends " + format_seconds(needed) +
      " after its launch, also as it waits for those before it. Raise the timeout of the process group, "
      "or the bandwidth"));
}

}  // namespace

EmulatedGroup::EmulatedGroup(std::shared_ptr<EmulatedLink> link, std::string name)
    : link_(std::move(link)), name_(std::move(name)) {}

void EmulatedGroup::require_open() const {
  const std::lock_guard lock(mutex_);
  if (closed_) std::rethrow_exception(closed_);
}

std::shared_ptr<EmulatedOp> EmulatedGroup::launch(EmulatedOp op) {
  const auto launched = std::make_shared<EmulatedOp>(std::move(op));
  std::exception_ptr closed;
  {
    const std::lock_guard lock(mutex_);
    launched->request.jitter = draw_jitter(link_->options(), name_, sequence_++);
    closed = closed_;
    if (!closed) {
      waiting_.push_back(launched);
      while (!under_way_.empty()) {  // forget those that have ended
        const auto oldest = under_way_.front().lock();
        if (oldest && !oldest->isCompleted()) break;
        under_way_.pop_front();
      }
      under_way_.emplace_back(launched->work);
    }
  }
  if (closed) launched->work->fail(closed);
  return launched;
}

void EmulatedGroup::agree(EmulatedOp& op, Nanoseconds ready, std::int64_t num_bytes) {
  {
    const std::lock_guard lock(mutex_);
    op.request.ready = ready;
    op.request.num_bytes = num_bytes;
    op.is_agreed = true;
  }
  book_agreed();
}

void EmulatedGroup::fail(EmulatedOp& op, const std::exception_ptr& error) {
  op.work->fail(error);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [&op](const auto& waiting) { return waiting.get() == &op; });
  }
  book_agreed();
}

// Agreements may end in another order than they were begun, as the wrapped group has several threads. The
// bookings, and with them all times, must not depend on that.
void EmulatedGroup::book_agreed() {
  std::vector<std::pair<std::shared_ptr<EmulatedOp>, LinkBooking>> booked;
  {
    const std::lock_guard lock(mutex_);
    while (!waiting_.empty() && waiting_.front()->is_agreed) {
      booked.emplace_back(waiting_.front(), link_->book(waiting_.front()->request));
      waiting_.pop_front();
    }
  }
  for (const auto& [op, booking] : booked) {
    const Nanoseconds timeout = to_nanoseconds(op->timeout);
    if (timeout > 0 && booking.finish - op->launched > timeout) {
      link_->timer().at(op->launched + timeout,
                        [work = op->work, error = timeout_error(*op, booking, link_->options().link)] {
                          work->fail(error);
                        });
    } else {
      link_->timer().at(booking.finish, [work = op->work] { work->link_ends(); });
    }
  }
}

void EmulatedGroup::close(const std::string& reason) {
  std::deque<c10::weak_intrusive_ptr<EmulatedWork>> under_way;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) closed_ = std::make_exception_ptr(std::runtime_error(reason));
    error = closed_;
    waiting_.clear();
    under_way.swap(under_way_);
  }
  for (const auto& weak : under_way) {
    if (const auto work = weak.lock()) work->fail(error);
  }
}

}  // namespace dreamddp
