#include "dreamddp/plan.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace dreamddp {
namespace {

double op_bytes(const Op& op, const Profile& profile) {
  double num_bytes = 0;
  for (const Segment& segment : op.segments) {
    const auto size = static_cast<double>(profile.layers[segment.layer].num_bytes.value_or(0));
    num_bytes += std::floor(segment.end * size) - std::floor(segment.begin * size);
  }
  return num_bytes;
}

int copies_booked(OpMode mode) {
  switch (mode) {
    case OpMode::held:
      return 1;  // the result
    case OpMode::carried:
      return 2;  // snapshot and result
    case OpMode::in_place:
      break;
  }
  return 0;
}

}  // namespace

std::int64_t num_steps_crossed(const Op& op) {
  const std::int64_t next_step = op.launch.iteration + (op.launch.kind == EventKind::after_step ? 1 : 0);
  return op.deadline.iteration - next_step;
}

OpMode op_mode(const Op& op, const EventOrder& order) {
  if (op.quantity == Quantity::gradients || order.update() == Update::fused) {
    return OpMode::in_place;
  }
  if (num_steps_crossed(op) > 0) {
    return OpMode::carried;
  }
  // No step between launch and deadline: only the reads of the deadline's own iteration can lie in the
  // window.
  const std::int64_t iteration = op.deadline.iteration;
  const std::int64_t launch = order.position(op.launch);
  const std::int64_t deadline = order.position(op.deadline);
  const bool is_read = std::any_of(op.segments.begin(), op.segments.end(), [&](const Segment& segment) {
    return order.position({iteration, EventKind::before_forward, segment.layer}) < deadline &&
           order.position(order.last_read(segment.layer, iteration)) > launch;
  });
  return is_read ? OpMode::held : OpMode::in_place;
}

std::int64_t booked_bytes(const Plan& plan, const Profile& profile) {
  const EventOrder order(profile, plan.update);
  const std::int64_t period = order.position({plan.period, EventKind::before_forward, 0});
  double always = 0;                       // booked at every moment of a period
  std::map<std::int64_t, double> changes;  // by position within a period
  for (const Op& op : plan.ops) {
    const double num_bytes = copies_booked(op_mode(op, order)) * op_bytes(op, profile);
    if (num_bytes == 0) {
      continue;
    }
    const std::int64_t begin = order.position(op.launch);
    const std::int64_t length = order.position(op.deadline) - begin;
    const std::int64_t num_whole_periods = length / period;
    always += static_cast<double>(num_whole_periods) * num_bytes;
    const std::int64_t end = begin + length % period;
    changes[begin % period] += num_bytes;
    changes[end % period] -= num_bytes;
    if (end / period > begin / period) {
      always += num_bytes;  // in flight where the period begins
    }
  }
  double now = always;
  double most = always;
  for (const auto& [position, change] : changes) {
    now += change;
    most = std::max(most, now);
  }
  return most < 0x1p63 ? static_cast<std::int64_t>(most) : INT64_MAX;
}

}  // namespace dreamddp
