#include "dreamddp/bubbles.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/simulation_run.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr std::size_t max_misfits = 4;  // layers in a row that do not fit before a window counts as full

void check(const Plan& plan, const Profile& profile, const std::vector<std::size_t>& drift_order) {
  if (std::ranges::any_of(plan.ops, [](const Op& op) { return op.quantity == Quantity::gradients; })) {
    reject({.field = "fill_bubbles",
            .value = "a plan of gradients by '" + plan.planner + "'",
            .allowed = "a plan of parameters",
            .remedy = "Workers that average all gradients do not drift: leave the plan as it is."});
  }
  std::vector<bool> is_seen(profile.layers.size(), false);
  for (const std::size_t layer : drift_order) {
    if (layer < is_seen.size() && !is_seen[layer]) {
      is_seen[layer] = true;
      continue;
    }
    reject({.field = "drift_order",
            .value = std::to_string(layer),
            .allowed = "every layer at most once, from 0 to " + std::to_string(profile.layers.size() - 1),
            .remedy = "List the numbers of layers, the most drifting first."});
  }
}

class BubbleFilling {
 public:
  BubbleFilling(const Plan& plan, const Profile& profile, const Link& link, std::vector<std::size_t> layers)
      : plan_(plan),
        profile_(profile),
        link_(link),
        layers_(std::move(layers)),
        order_(profile),
        transfers_(layer_transfer_seconds(profile, link)) {
    const double seconds = steady_iteration_seconds(plan_, profile_, link_, transfers_);
    allowed_seconds_ = seconds * (1 + 1e-9);
    std::erase_if(layers_, [&](std::size_t l) { return profile_.layers[l].num_bytes == 0; });
    for (const Op& op : plan_.ops) note(op);
  }

  Plan run() {
    for (std::int64_t iteration = 0; iteration < plan_.period; ++iteration) {
      fill([&](std::size_t l) { return backward_op(l, iteration); });
      fill([&](std::size_t l) { return forward_op(l, iteration); });
    }
    return std::move(plan_);
  }

 private:
  struct Span {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  Op backward_op(std::size_t layer, std::int64_t iteration) const {
    return {.quantity = Quantity::parameters,
            .segments = {{.layer = layer}},
            .launch = order_.last_read(layer, iteration),
            .deadline = {iteration, EventKind::before_step, 0}};
  }

  Op forward_op(std::size_t layer, std::int64_t iteration) const {
    return {.quantity = Quantity::parameters,
            .segments = {{.layer = layer}},
            .launch = {iteration, EventKind::after_step, 0},
            .deadline = {iteration + 1, EventKind::before_forward, layer}};
  }

  /// Adds one window's ops in blocks that double while they fit and are halved where they do not.
  template <typename MakeOp>
  void fill(const MakeOp& make_op) {
    std::vector<Op> candidates;
    for (const std::size_t layer : layers_) {
      Op op = make_op(layer);
      if (is_free(op)) candidates.push_back(std::move(op));
    }
    std::size_t next = 0;
    std::size_t size = candidates.size();
    std::size_t misfits = 0;
    while (next < candidates.size() && misfits < max_misfits) {
      const auto first = candidates.begin() + static_cast<std::ptrdiff_t>(next);
      const std::vector<Op> block(first, first + static_cast<std::ptrdiff_t>(size));
      if (add(block)) {
        next += size;
        misfits = 0;
        size = std::min(2 * size, candidates.size() - next);
      } else if (size > 1) {
        size /= 2;
      } else {
        misfits += add_part(block.front()) ? 0 : 1;
        ++next;
      }
    }
  }

  bool add_part(Op op) {
    for (const double end : {0.5, 0.25}) {
      op.segments.front().end = end;
      if (add({op})) return true;
    }
    return false;
  }

  /// Takes the ops into the plan, unless an iteration would take longer.
  bool add(const std::vector<Op>& ops) {
    Plan larger = plan_;
    for (const Op& op : ops) {
      const auto place =
          std::ranges::upper_bound(larger.ops, order_.position(op.launch), {},
                                   [&](const Op& other) { return order_.position(other.launch); });
      larger.ops.insert(place, op);
    }
    if (steady_iteration_seconds(larger, profile_, link_, transfers_) > allowed_seconds_) return false;
    plan_ = std::move(larger);
    for (const Op& op : ops) note(op);
    return true;
  }

  Span span_of(const Op& op) const { return {order_.position(op.launch), order_.position(op.deadline)}; }

  void note(const Op& op) {
    for (const Segment& segment : op.segments) spans_[segment.layer].push_back(span_of(op));
  }

  /// Whether the layer is not averaged in that iteration, or in flight then from an earlier one.
  bool is_free(const Op& op) const {
    const std::int64_t per_iteration =
        order_.position({1, EventKind::after_step, 0}) - order_.position({0, EventKind::after_step, 0});
    const std::int64_t per_period = per_iteration * plan_.period;
    // From the end of a step to the end of the next: both windows of one iteration.
    const std::int64_t step = order_.position({op.deadline.iteration, EventKind::after_step, 0});
    const Span cycle{step - per_iteration, step};
    return std::ranges::none_of(spans_[op.segments.front().layer], [&](const Span& span) {
      return std::ranges::any_of(std::vector<std::int64_t>{-per_period, 0, per_period},
                                 [&](std::int64_t shift) {
                                   return span.begin + shift < cycle.end && span.end + shift > cycle.begin;
                                 });
    });
  }

  Plan plan_;
  const Profile& profile_;
  const Link& link_;
  std::vector<std::size_t> layers_;
  const EventOrder order_;
  const std::vector<double> transfers_;
  double allowed_seconds_ = 0;
  std::vector<std::vector<Span>> spans_ = std::vector<std::vector<Span>>(profile_.layers.size());  // by layer
};

}  // namespace

Plan fill_bubbles(const Plan& plan, const Profile& profile, const Link& link,
                  const std::vector<std::size_t>& drift_order) {
  validate(profile);
  validate(plan, profile);
  validate(link);
  check(plan, profile, drift_order);
  std::vector<std::size_t> layers = drift_order;
  if (layers.empty()) {
    for (std::size_t l = profile.layers.size(); l > 0; --l) layers.push_back(l - 1);
  }
  return BubbleFilling(plan, profile, link, std::move(layers)).run();
}

}  // namespace dreamddp
