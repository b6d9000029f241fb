#include "dreamddp/bubbles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "core/decimal.h"
#include "core/planners/fused.h"
#include "core/profile_text.h"
#include "core/simulation_run.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

// Ops and reads of layers timed in all trials together: some seconds.
constexpr std::int64_t most_work = 20'000'000;

void check_drift(const std::vector<double>& drift, const Profile& profile) {
  if (!drift.empty() && drift.size() != profile.layers.size()) {
    reject({.field = "drift",
            .value = std::to_string(drift.size()) + " entries",
            .allowed = "one for each layer, " + std::to_string(profile.layers.size()),
            .remedy = "Leave it out to take the output side first."});
  }
  for (std::size_t l = 0; l < drift.size(); ++l) {
    if (std::isfinite(drift[l]) && drift[l] >= 0) continue;
    reject({.field = layer_place(profile, l) + ": drift",
            .value = shortest_text(drift[l]),
            .allowed = "a finite number of at least 0",
            .remedy = "Give 0 for a layer that does not drift"});
  }
}

/// Layers with parameters, those that drift most first; else in the order of their last reads.
std::vector<std::size_t> by_drift(const Profile& profile, const EventOrder& order,
                                  const std::vector<double>& drift) {
  std::vector<std::size_t> layers;
  for (std::size_t l = profile.layers.size(); l-- > 0;) {
    if (profile.layers[l].num_bytes != 0) layers.push_back(l);
  }
  std::ranges::stable_sort(layers, {},
                           [&](std::size_t layer) { return order.position(order.last_read(layer, 0)); });
  if (!drift.empty())
    std::ranges::stable_sort(layers, std::ranges::greater{}, [&](std::size_t layer) { return drift[layer]; });
  return layers;
}

Op backward_window_op(std::size_t layer, std::int64_t iteration, const EventOrder& order) {
  return {.quantity = Quantity::parameters,
          .segments = {{.layer = layer}},
          .launch = order.last_read(layer, iteration),
          .deadline = end_of_window(layer, iteration, order.update())};
}

class BubbleFilling {
 public:
  BubbleFilling(const Plan& plan, const Profile& profile, const Link& link)
      : profile_(profile),
        link_(link),
        order_(profile, plan.update),
        period_positions_(order_.position({plan.period, EventKind::before_forward, 0})),
        transfers_(layer_transfer_seconds(profile, link)),
        plan_(plan),
        windows_(profile.layers.size()) {
    for (const Op& op : plan.ops) add_windows(op);
    const double seconds = time(plan_);
    allowed_seconds_ = seconds + 1e-9 * seconds;
  }

  /// Adds as many of these layers as fit. Where several in a row fit at once, more are tried next.
  void fill(std::int64_t iteration, const std::vector<std::size_t>& layers) {
    std::vector<Op> candidates;
    for (const std::size_t layer : layers) {
      Op op = backward_window_op(layer, iteration, order_);
      if (!is_in_flight(op)) candidates.push_back(std::move(op));
    }
    std::ranges::reverse(candidates);  // the next one last
    std::size_t count = 1;
    while (!candidates.empty() && has_work_left()) {
      count = std::min(count, candidates.size());
      Plan filled = with_ops({candidates.end() - static_cast<std::ptrdiff_t>(count), candidates.end()});
      if (time(filled) <= allowed_seconds_) {
        plan_ = std::move(filled);
        candidates.resize(candidates.size() - count);
        count *= 2;
      } else if (count > 1) {
        count /= 2;
      } else {
        const Op failed = std::move(candidates.back());
        candidates.pop_back();
        std::erase_if(candidates, [&](const Op& op) { return delays_more(op, failed); });
      }
    }
  }

  bool has_work_left() const { return work_left_ > 0; }
  const Plan& plan() const { return plan_; }

 private:
  struct PositionsInFlight {
    std::int64_t begin;
    std::int64_t end;
  };

  /// A deadline may lie in one of the next two periods, where it meets their launches.
  void add_windows(const Op& op) {
    const std::int64_t begin = order_.position(op.launch);
    const std::int64_t end = order_.position(op.deadline);
    for (const Segment& segment : op.segments) {
      for (std::int64_t earlier = 0; earlier < end; earlier += period_positions_)
        windows_[segment.layer].push_back({begin - earlier, end - earlier});
    }
  }

  bool is_in_flight(const Op& op) const {
    const std::int64_t begin = order_.position(op.launch);
    const std::int64_t end = order_.position(op.deadline);
    return std::ranges::any_of(windows_[op.segments.front().layer], [&](const PositionsInFlight& window) {
      return window.begin < end && begin < window.end;
    });
  }

  /// Whether an op that is sent no earlier than another one and takes no less makes the last op of an
  /// iteration finish no earlier.
  bool delays_more(const Op& op, const Op& other) const {
    return order_.position(op.launch) >= order_.position(other.launch) &&
           transfers_[op.segments.front().layer] >= transfers_[other.segments.front().layer];
  }

  Plan with_ops(std::vector<Op> added) const {
    const auto launch_position = [&](const Op& op) { return order_.position(op.launch); };
    std::ranges::stable_sort(added, {}, launch_position);
    Plan filled = plan_;
    filled.ops.clear();
    std::ranges::merge(plan_.ops, added, std::back_inserter(filled.ops), {}, launch_position,
                       launch_position);
    return filled;
  }

  double time(const Plan& plan) {
    work_left_ -= static_cast<std::int64_t>(plan.ops.size()) +
                  plan.period * static_cast<std::int64_t>(plan.layers.size());
    return steady_iteration_seconds(plan, profile_, link_, transfers_);
  }

  const Profile& profile_;
  const Link& link_;
  EventOrder order_;
  std::int64_t period_positions_;
  std::vector<double> transfers_;
  Plan plan_;
  std::vector<std::vector<PositionsInFlight>> windows_;  ///< by layer, of the ops of the given plan
  double allowed_seconds_ = 0;
  std::int64_t work_left_ = most_work;
};

}  // namespace

Plan fill_bubbles(const Plan& plan, const Profile& profile, const Link& link,
                  const std::vector<double>& drift) {
  validate(profile);
  validate(plan, profile);
  validate(link);
  check_drift(drift, profile);
  if (std::ranges::any_of(plan.ops, [](const Op& op) { return op.quantity == Quantity::gradients; }))
    return plan;
  const std::vector<std::size_t> layers = by_drift(profile, EventOrder(profile, plan.update), drift);
  BubbleFilling filling(plan, profile, link);
  for (std::int64_t iteration = 0; iteration < plan.period && filling.has_work_left(); ++iteration)
    filling.fill(iteration, layers);
  return filling.plan();
}

}  // namespace dreamddp
