#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/plan_checks.h"
#include "core/plan_text.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

/// Where a segment of one layer begins or ends.
struct Edge {
  double coordinate = 0;
  bool is_begin = false;
  std::size_t op = 0;
  std::size_t segment = 0;
};

/// The stretches of one period, [begin, end) in positions, in which one op is in flight.
using Stretches = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::vector<std::vector<Edge>> edges_by_layer(const Plan& plan) {
  std::vector<std::vector<Edge>> edges(plan.layers.size());
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (std::size_t s = 0; s < plan.ops[i].segments.size(); ++s) {
      const Segment& segment = plan.ops[i].segments[s];
      edges[segment.layer].push_back({segment.begin, true, i, s});
      edges[segment.layer].push_back({segment.end, false, i, s});
    }
  }
  for (auto& layer_edges : edges) {
    std::sort(layer_edges.begin(), layer_edges.end(), [](const Edge& a, const Edge& b) {
      return std::tie(a.coordinate, a.is_begin, a.op, a.segment) <
             std::tie(b.coordinate, b.is_begin, b.op, b.segment);  // ends first: segments are half open
    });
  }
  return edges;
}

/// A window may run past the end of the period, where the next period's ops meet it. A carried op may even
/// meet its own next launch: differences add up whatever their order.
Stretches stretches_in_period(std::int64_t launch, std::int64_t deadline, std::int64_t period) {
  if (deadline - launch >= period) {
    return {{0, period}};
  }
  const std::int64_t begin = launch % period;
  const std::int64_t end = begin + (deadline - launch);
  if (end <= period) {
    return {{begin, end}};
  }
  return {{begin, period}, {0, end - period}};
}

[[noreturn]] void reject_overlap(const Plan& plan, std::size_t earlier, std::size_t later,
                                 const Segment& segment) {
  const std::string what = "'" + segment_text(plan, segment) + "'";
  if (earlier == later) {
    reject({op_place(plan, later) + ": segments", what + " and another segment that overlaps it",
            "segments that do not overlap: every coordinate once in an op", "Remove one of the two"});
  }
  const Op& other = plan.ops[earlier];
  reject({op_place(plan, later),
          what + " while " + op_place(plan, earlier) + " has a part of it in flight, from " +
              event_text(plan, other.launch) + " to " + event_text(plan, other.deadline),
          "windows that do not overlap on a coordinate, also where the period of " +
              std::to_string(plan.period) + " repeats",
          "Let one of the two end before the other is launched"});
}

/// Walks along the coordinates of one layer. As long as nothing overlaps, the stretches of the segments at
/// one coordinate are disjoint, so a new one needs comparing with its two neighbours in time only.
void reject_overlaps(const Plan& plan, const std::vector<Edge>& edges,
                     const std::vector<Stretches>& in_flight) {
  struct Stretch {
    std::int64_t end;
    std::size_t op;
  };
  std::map<std::int64_t, Stretch> at_coordinate;  // by begin
  for (const Edge& edge : edges) {
    for (const auto& [begin, end] : in_flight[edge.op]) {
      if (!edge.is_begin) {
        at_coordinate.erase(begin);
        continue;
      }
      const auto next = at_coordinate.lower_bound(begin);
      auto clash = at_coordinate.end();
      if (next != at_coordinate.end() && next->first < end) {
        clash = next;
      } else if (next != at_coordinate.begin() && std::prev(next)->second.end > begin) {
        clash = std::prev(next);
      }
      if (clash != at_coordinate.end()) {
        const auto [first, second] = std::minmax(clash->second.op, edge.op);
        reject_overlap(plan, first, second, plan.ops[edge.op].segments[edge.segment]);
      }
      at_coordinate.emplace_hint(next, begin, Stretch{end, edge.op});
    }
  }
}

/// The first coordinates of a layer that a period leaves out, as "h.1[0.5:1]"; empty where there are none.
///
/// A coordinate is averaged when its parameters are, at least once, or its gradients in every iteration.
/// Ops of gradients that share a coordinate do not overlap, so they belong to different iterations.
std::string first_gap(const Plan& plan, std::size_t layer, const std::vector<Edge>& edges) {
  std::int64_t num_parameters = 0;
  std::int64_t num_gradients = 0;
  double covered = 0;
  const auto is_averaged = [&] { return num_parameters > 0 || num_gradients == plan.period; };
  for (const Edge& edge : edges) {
    if (edge.coordinate > covered) {
      if (!is_averaged()) {
        return segment_text(plan, {layer, covered, edge.coordinate});
      }
      covered = edge.coordinate;
    }
    const bool is_gradient = plan.ops[edge.op].quantity == Quantity::gradients;
    (is_gradient ? num_gradients : num_parameters) += edge.is_begin ? 1 : -1;
  }
  return covered < 1 ? segment_text(plan, {layer, covered, 1}) : "";
}

void reject_gaps(const Plan& plan, const Profile& profile, const std::vector<std::vector<Edge>>& edges) {
  constexpr std::size_t most = 4;
  std::string gaps;
  std::size_t num_gaps = 0;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (profile.layers[l].num_bytes == 0) {
      continue;
    }
    const std::string gap = first_gap(plan, l, edges[l]);
    if (!gap.empty() && ++num_gaps <= most) {
      gaps += (gaps.empty() ? "" : ", ") + gap;
    }
  }
  if (num_gaps > most) {
    gaps += " and " + std::to_string(num_gaps - most) + " more layers";
  }
  if (num_gaps > 0) {
    reject({"ops", "no average of " + gaps,
            "every coordinate averaged in a period of " + std::to_string(plan.period) +
                ": its parameters at least once, or its gradients in every iteration",
            "Add ops for them"});
  }
}

}  // namespace

void validate_coordinates(const Plan& plan, const Profile& profile, const EventOrder& order) {
  const std::int64_t period = order.position({plan.period, EventKind::before_forward, 0});
  std::vector<Stretches> in_flight;
  in_flight.reserve(plan.ops.size());
  for (const Op& op : plan.ops) {
    in_flight.push_back(stretches_in_period(order.position(op.launch), order.position(op.deadline), period));
  }
  const auto edges = edges_by_layer(plan);
  for (const auto& layer_edges : edges) {
    reject_overlaps(plan, layer_edges, in_flight);
  }
  reject_gaps(plan, profile, edges);
}

}  // namespace dreamddp
