#include "core/plan_text.h"

#include <algorithm>

#include "core/decimal.h"

namespace dreamddp {
namespace {

std::string layer_text(const Plan& plan, std::size_t layer) {
  return layer < plan.layers.size() ? plan.layers[layer] : "layer " + std::to_string(layer);
}

std::string segments_text(const Plan& plan, const Op& op, std::size_t most) {
  std::string text;
  const std::size_t shown = std::min(most, op.segments.size());
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "" : ", ") + segment_text(plan, op.segments[i]);
  }
  if (shown < op.segments.size()) {
    text += " and " + std::to_string(op.segments.size() - shown) + " more";
  }
  return text;
}

}  // namespace

std::string segment_text(const Plan& plan, const Segment& segment) {
  std::string text = layer_text(plan, segment.layer);
  if (segment.begin != 0 || segment.end != 1) {
    text += "[" + shortest_text(segment.begin) + ":" + shortest_text(segment.end) + "]";
  }
  return text;
}

std::string op_place(const Plan& plan, std::size_t op) {
  constexpr std::size_t most = 4;
  return "ops[" + std::to_string(op) + "] (" + segments_text(plan, plan.ops[op], most) + ")";
}

std::string op_label(const Plan& plan, std::size_t op) {
  constexpr std::size_t most = 8;
  return "op " + std::to_string(op) + ": " + segments_text(plan, plan.ops[op], most);
}

std::string event_text(const Plan& plan, const Event& event) {
  const std::string layer = " '" + layer_text(plan, event.layer) + "'";
  const std::string iteration = " of iteration " + std::to_string(event.iteration);
  switch (event.kind) {
    case EventKind::before_forward:
      return "before forward" + layer + iteration;
    case EventKind::after_forward:
      return "after forward" + layer + iteration;
    case EventKind::after_backward:
      return "after backward" + layer + iteration;
    case EventKind::before_step:
      return "before step" + iteration;
    case EventKind::after_step:
      break;
  }
  return "after step" + iteration;
}

}  // namespace dreamddp
