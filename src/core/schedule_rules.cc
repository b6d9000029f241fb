#include "core/schedule_rules.h"

#include <algorithm>
#include <tuple>

namespace dreamddp {
namespace {

using Entries = std::vector<std::pair<std::size_t, std::uint32_t>>;

std::vector<std::uint32_t> carried_layers(const Op& op) {
  std::vector<std::uint32_t> layers;
  for (const Segment& segment : op.segments) layers.push_back(static_cast<std::uint32_t>(segment.layer));
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

OpRules op_rules(const Op& op, const EventOrder& order, std::span<const std::uint32_t> layers) {
  OpRules rules;
  rules.is_gradient = op.quantity == Quantity::gradients;
  rules.mode = rules.is_gradient ? OpMode::in_place : op_mode(op, order);
  rules.launch = op.launch;
  rules.deadline_delay = op.deadline.iteration - op.launch.iteration;
  rules.precedes_reads =
      !rules.is_gradient && rules.mode == OpMode::in_place && op.launch.kind != EventKind::after_step &&
      std::ranges::any_of(layers, [&](auto layer) {
        return order.position(order.last_read(layer, op.launch.iteration)) > order.position(op.launch);
      });
  return rules;
}

struct LingeringSegment {
  std::size_t layer;
  std::int64_t place;  ///< of the iteration of the deadline in the period
  std::uint32_t op;

  auto key() const { return std::pair(layer, place); }
};

/// Segments of parameter ops with a deadline before a forward, by layer and iteration of the deadline.
std::vector<LingeringSegment> lingering_segments(const Plan& plan) {
  std::vector<LingeringSegment> segments;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.quantity != Quantity::parameters || op.deadline.kind != EventKind::before_forward) continue;
    for (const Segment& segment : op.segments)
      segments.push_back({segment.layer, op.deadline.iteration % plan.period, static_cast<std::uint32_t>(i)});
  }
  std::ranges::sort(segments, {}, [](const auto& segment) { return std::tuple(segment.key(), segment.op); });
  return segments;
}

bool share_coordinates(const Op& one, const Op& other, std::size_t layer) {
  for (const Segment& a : one.segments)
    for (const Segment& b : other.segments)
      if (a.layer == layer && b.layer == layer && a.begin < b.end && b.begin < a.end) return true;
  return false;
}

/// Position of an event within its iteration.
std::int64_t rank_in_iteration(const EventOrder& order, Event event) {
  event.iteration = 0;
  return order.position(event);
}

Entries find_predecessors(const Plan& plan, const EventOrder& order, const Lists& layers) {
  const std::vector<LingeringSegment> lingering = lingering_segments(plan);
  Entries entries;
  if (lingering.empty()) return entries;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    // What still lingers at the step is settled there, in front of the ops that follow it.
    if (op.quantity != Quantity::parameters || op.launch.kind == EventKind::after_step) continue;
    for (const std::uint32_t layer : layers[i]) {
      const std::pair key(std::size_t{layer}, op.launch.iteration);
      auto segment = std::ranges::lower_bound(lingering, key, {}, &LingeringSegment::key);
      for (; segment != lingering.end() && segment->key() == key; ++segment) {
        const Op& other = plan.ops[segment->op];
        if (rank_in_iteration(order, other.deadline) < rank_in_iteration(order, op.launch) &&
            share_coordinates(op, other, layer))
          entries.emplace_back(i, segment->op);
      }
    }
  }
  return entries;
}

}  // namespace

Lists::Lists(std::size_t num_keys, const std::vector<std::pair<std::size_t, std::uint32_t>>& entries)
    : begins_(num_keys + 1), values_(entries.size()) {
  for (const auto& [key, value] : entries) ++begins_[key + 1];
  for (std::size_t key = 0; key < num_keys; ++key) begins_[key + 1] += begins_[key];
  std::vector<std::uint32_t> next(begins_.begin(), begins_.end() - 1);
  for (const auto& [key, value] : entries) values_[next[key]++] = value;
}

ScheduleRules::ScheduleRules(const Plan& plan, const Profile& profile) {
  const EventOrder order(profile, plan.update);
  const std::size_t num_layers = profile.layers.size();
  Entries of_op, writing, due;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const std::vector<std::uint32_t> carried = carried_layers(op);
    const auto index = static_cast<std::uint32_t>(i);
    ops.push_back(op_rules(op, order, carried));
    const OpRules& rules = ops.back();
    const bool before_forward = op.deadline.kind == EventKind::before_forward;
    bool carries_deadline_layer = false;
    for (const std::uint32_t layer : carried) {
      of_op.emplace_back(i, layer);
      if (!rules.is_gradient && rules.mode != OpMode::carried) writing.emplace_back(layer, index);
      if (before_forward && (layer == op.deadline.layer || rules.mode == OpMode::carried)) {
        due.emplace_back(layer, index);
        carries_deadline_layer |= layer == op.deadline.layer;
      }
    }
    if (before_forward && !carries_deadline_layer) due.emplace_back(op.deadline.layer, index);
  }
  layers = Lists(plan.ops.size(), of_op);
  writers = Lists(num_layers, writing);
  due_at_forward = Lists(num_layers, due);
  predecessors = Lists(plan.ops.size(), find_predecessors(plan, order, layers));

  Entries last_reads;
  last_read_at_forward.resize(num_layers);
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    const Event last = order.last_read(layer, 0);
    if (last.kind == EventKind::after_forward)
      last_read_at_forward[layer] = true;
    else
      last_reads.emplace_back(last.layer, static_cast<std::uint32_t>(layer));
  }
  last_read_at_backward = Lists(num_layers, last_reads);
}

}  // namespace dreamddp
