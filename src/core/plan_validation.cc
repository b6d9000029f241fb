#include <algorithm>
#include <unordered_set>

#include "core/decimal.h"
#include "core/plan_checks.h"
#include "core/plan_text.h"
#include "core/utf8.h"
#include "dreamddp/error.h"
#include "dreamddp/plan.h"

namespace dreamddp {
namespace {

bool is_launch(EventKind kind) {
  return kind == EventKind::after_forward || kind == EventKind::after_backward ||
         kind == EventKind::after_step;
}

bool is_step(EventKind kind) { return kind == EventKind::before_step || kind == EventKind::after_step; }

std::string layer_range(const Plan& plan) {
  return "a layer from 0 to " + std::to_string(plan.layers.size() - 1);
}

void validate_segments(const Plan& plan, std::size_t i) {
  const Op& op = plan.ops[i];
  if (op.segments.empty()) {
    reject({op_place(plan, i) + ": segments", "none", "at least one", "Remove the op or give it a segment"});
  }
  for (const Segment& segment : op.segments) {
    if (segment.layer >= plan.layers.size()) {
      reject({op_place(plan, i) + ": segments", "layer " + std::to_string(segment.layer), layer_range(plan),
              "Give the index of a layer of the plan"});
    }
    if (!(segment.begin >= 0 && segment.begin < segment.end && segment.end <= 1)) {  // false for NaN
      reject({op_place(plan, i) + ": segments",
              "begin " + shortest_text(segment.begin) + " and end " + shortest_text(segment.end) + " for '" +
                  plan.layers[segment.layer] + "'",
              "fractions with 0 <= begin < end <= 1", "Give 0 and 1 for the whole layer"});
    }
  }
}

void validate_events(const Plan& plan, std::size_t i) {
  const Op& op = plan.ops[i];
  for (const auto& [event, name] : {std::pair{op.launch, ": launch"}, std::pair{op.deadline, ": deadline"}}) {
    if (!is_step(event.kind) && event.layer >= plan.layers.size()) {
      reject({op_place(plan, i) + name, event_text(plan, event), layer_range(plan),
              "Give the index of a layer of the plan"});
    }
  }
  if (!is_launch(op.launch.kind)) {
    reject({op_place(plan, i) + ": launch", event_text(plan, op.launch),
            "after forward, after backward or after step", "Launch the op where a computation has ended"});
  }
  if (is_launch(op.deadline.kind)) {
    reject({op_place(plan, i) + ": deadline", event_text(plan, op.deadline), "before forward or before step",
            "Let the computation wait that needs the result"});
  }
  if (op.launch.iteration < 0 || op.launch.iteration >= plan.period) {
    reject({op_place(plan, i) + ": launch: iteration", std::to_string(op.launch.iteration),
            "0 to " + std::to_string(plan.period - 1) + ", as the period is " + std::to_string(plan.period),
            "Move the launch, or choose a longer period"});
  }
  const std::int64_t last =
      op.launch.iteration + plan.period + (op.launch.kind == EventKind::after_step ? 1 : 0);
  if (op.deadline.iteration < op.launch.iteration || op.deadline.iteration > last) {
    reject({op_place(plan, i) + ": deadline: iteration", std::to_string(op.deadline.iteration),
            std::to_string(op.launch.iteration) + " to " + std::to_string(last) +
                ", from the launch to at most one period of optimizer steps (" + std::to_string(plan.period) +
                ") later",
            "Move the deadline, or choose a longer period"});
  }
}

void validate_layers(const Plan& plan, const Profile& profile) {
  const std::size_t shorter = std::min(plan.layers.size(), profile.layers.size());
  for (std::size_t l = 0; l < shorter; ++l) {
    if (plan.layers[l] != profile.layers[l].name) {
      reject({"layers[" + std::to_string(l) + "]", "'" + plan.layers[l] + "'",
              "'" + profile.layers[l].name + "', the layer of the profile",
              "Make the plan anew for this profile"});
    }
  }
  if (plan.layers.size() != profile.layers.size()) {
    const bool is_longer = plan.layers.size() > shorter;
    reject({"layers",
            std::to_string(plan.layers.size()) + " layers, " + (is_longer ? "with" : "without") + " '" +
                (is_longer ? plan.layers[shorter] : profile.layers[shorter].name) + "'",
            "the " + std::to_string(profile.layers.size()) + " layers of the profile",
            "Make the plan anew for this profile"});
  }
}

/// Rejects an op of gradients that is not in flight between the last of its backwards and the step.
void validate_gradients(const Plan& plan, std::size_t i, const EventOrder& order) {
  const Op& op = plan.ops[i];
  const Event step{op.launch.iteration, EventKind::before_step, 0};
  if (order.position(op.deadline) != order.position(step)) {
    reject({op_place(plan, i) + ": deadline", event_text(plan, op.deadline),
            event_text(plan, step) + ", as the op averages gradients",
            "Let the op end before the optimizer of that iteration needs them"});
  }
  for (const Segment& segment : op.segments) {
    const Event backward{op.launch.iteration, EventKind::after_backward, segment.layer};
    const Event last_read = order.last_read(segment.layer, op.launch.iteration);
    // A tensor tied to another layer has its whole gradient when both backwards have ended.
    const Event ready = order.position(backward) < order.position(last_read) ? last_read : backward;
    if (order.position(op.launch) < order.position(ready)) {
      reject({op_place(plan, i) + ": launch", event_text(plan, op.launch),
              event_text(plan, ready) + " or later: until then the gradient of '" +
                  plan.layers[segment.layer] + "' is not complete",
              "Launch the op after the last backward of its layers"});
    }
  }
}

/// Rejects a deadline before which a layer of the op has been read in the same iteration: the layer would be
/// written between two of its reads, or too late for the first.
void validate_deadline(const Plan& plan, std::size_t i) {
  const Op& op = plan.ops[i];
  if (op.deadline.kind != EventKind::before_forward) {
    return;
  }
  const auto first = std::min_element(op.segments.begin(), op.segments.end(),
                                      [](const Segment& a, const Segment& b) { return a.layer < b.layer; });
  if (first->layer < op.deadline.layer) {
    const Event needed{op.deadline.iteration, EventKind::before_forward, first->layer};
    reject({op_place(plan, i) + ": deadline", event_text(plan, op.deadline),
            event_text(plan, needed) + " at the latest, or before step: '" + plan.layers[first->layer] +
                "' is read from there on",
            "Move the deadline, or carry '" + plan.layers[first->layer] + "' in an op of its own"});
  }
}

/// Rejects what is in flight while a layer that it carries is read or stepped inside the backward. There is
/// no later step of all layers in front of which it could be held, and none that it could be carried over.
void validate_fused(const Plan& plan, std::size_t i, const EventOrder& order) {
  const Op& op = plan.ops[i];
  const std::string remedy = "Launch the op later, or leave out \"update\": \"fused\"";
  if (op.quantity == Quantity::gradients) {
    reject(
        {op_place(plan, i) + ": quantity", "gradients",
         "parameters, as the updates of the plan are fused: a layer is stepped before its gradient could be "
         "averaged",
         "Average parameters, or leave out \"update\": \"fused\""});
  }
  // The update that opens the window is the last one in front of the deadline.
  const bool is_before_reads = op.deadline.kind == EventKind::before_forward;
  const std::int64_t iteration = op.deadline.iteration - (is_before_reads ? 1 : 0);
  for (const Segment& segment : op.segments) {
    const Event update = order.last_read(segment.layer, iteration);
    if (order.position(op.launch) >= order.position(update)) continue;
    reject({op_place(plan, i) + ": launch", event_text(plan, op.launch),
            event_text(plan, update) + " or later, as the deadline is " + event_text(plan, op.deadline) +
                ": until then '" + plan.layers[segment.layer] + "' is read, and stepped there",
            remedy});
  }
}

}  // namespace

void validate_layer_names(const Plan& plan) {
  if (plan.layers.empty()) {
    reject({"layers", "none", "the names of the profile's layers",
            "List the layers of the profile that the plan is for"});
  }
  std::unordered_set<std::string_view> seen;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const std::string& name = plan.layers[l];
    const std::string where = "layers[" + std::to_string(l) + "]";
    if (name.empty() || !is_utf8(name)) {
      reject({where, "\"" + name + "\"", "a name of at least one character, in UTF-8",
              "Name the layer as the profile does"});
    }
    if (!seen.insert(name).second) {
      reject({where, "\"" + name + "\" for the second time", "a name of its own for every layer",
              "Remove one of the two"});
    }
  }
}

void validate_alone(const Plan& plan) {
  if (plan.period < 1 || plan.period > longest_period) {
    reject({"period", std::to_string(plan.period), "1 to " + std::to_string(longest_period),
            "Give the number of iterations in which every parameter is averaged once"});
  }
  if (!is_utf8(plan.planner)) {
    reject({"planner", "\"" + plan.planner + "\"", "text in UTF-8",
            "Give the name of the algorithm that made the plan"});
  }
  validate_layer_names(plan);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    validate_segments(plan, i);
    validate_events(plan, i);
  }
}

void validate(const Plan& plan, const Profile& profile) {
  validate(profile);
  validate_alone(plan);
  validate_layers(plan, profile);
  const EventOrder order(profile, plan.update);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (order.position(op.launch) >= order.position(op.deadline)) {
      reject({op_place(plan, i) + ": deadline", event_text(plan, op.deadline),
              "an event after the launch, " + event_text(plan, op.launch), "Move one of the two"});
    }
    if (i > 0 && order.position(plan.ops[i - 1].launch) > order.position(op.launch)) {
      reject({op_place(plan, i) + ": launch", event_text(plan, op.launch),
              "an event not before the launch of " + op_place(plan, i - 1) + ", " +
                  event_text(plan, plan.ops[i - 1].launch),
              "Put the ops in the order of their launches"});
    }
    if (op.quantity == Quantity::gradients) {
      validate_gradients(plan, i, order);
    } else {
      validate_deadline(plan, i);
    }
    if (plan.update == Update::fused) validate_fused(plan, i, order);
  }
  validate_coordinates(plan, profile, order);
}

}  // namespace dreamddp
