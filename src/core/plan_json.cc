#include <unordered_map>

#include "core/json_reading.h"
#include "core/plan_checks.h"
#include "dreamddp/error.h"
#include "dreamddp/plan.h"

namespace dreamddp {
namespace {

constexpr std::string_view plan_format = "dreamddp-plan/1";

using LayerIndex = std::unordered_map<std::string, std::size_t>;

std::size_t read_layer(const Json& object, const LayerIndex& index_of, const std::string& where) {
  const std::string& name = read_string(required(object, "layer", where), where + ": layer");
  const auto found = index_of.find(name);
  if (found == index_of.end()) {
    reject({where + ": layer", "\"" + name + "\"", "one of the plan's layers", "Is the name complete?"});
  }
  return found->second;
}

double read_fraction(const Json& object, const char* key, double otherwise, const std::string& where) {
  const Json* value = optional(object, key);
  return value == nullptr ? otherwise : read_number(*value, where + ": " + key);
}

EventKind read_kind(const std::string& name, bool is_launch, const std::string& where) {
  if (name == "forward") {
    return is_launch ? EventKind::after_forward : EventKind::before_forward;
  }
  if (name == "step") {
    return is_launch ? EventKind::after_step : EventKind::before_step;
  }
  if (name == "backward" && is_launch) {
    return EventKind::after_backward;
  }
  reject({where, "\"" + name + "\"",
          is_launch ? "\"forward\", \"backward\" or \"step\"" : "\"forward\" or \"step\"",
          is_launch ? "Launch the op where a computation has ended"
                    : "Let the computation wait that needs the result"});
}

/// A launch is {"iteration", "after", "layer"}, a deadline {"iteration", "before", "layer"}.
Event read_event(const Json& value, bool is_launch, const LayerIndex& index_of, const std::string& where) {
  const char* when = is_launch ? "after" : "before";
  expect_object(value, where, {"iteration", when, "layer"});
  Event event;
  event.iteration = read_count(required(value, "iteration", where), where + ": iteration");
  const std::string when_place = where + ": " + when;
  event.kind = read_kind(read_string(required(value, when, where), when_place), is_launch, when_place);
  const bool is_step = event.kind == EventKind::before_step || event.kind == EventKind::after_step;
  if (!is_step) {
    event.layer = read_layer(value, index_of, where);
  } else if (value.contains("layer")) {
    reject({where, "a layer with a step", "no layer", "The step is one for all layers: remove the key"});
  }
  return event;
}

Op read_op(const Json& value, const LayerIndex& index_of, const std::string& where) {
  expect_object(value, where, {"quantity", "segments", "launch", "deadline"});
  Op op;
  const std::string& quantity = read_string(required(value, "quantity", where), where + ": quantity");
  if (quantity != "parameters" && quantity != "gradients") {
    reject({where + ": quantity", "\"" + quantity + "\"", "\"parameters\" or \"gradients\"",
            "Say which of them the op averages"});
  }
  op.quantity = quantity == "gradients" ? Quantity::gradients : Quantity::parameters;
  const Json& segments = required(value, "segments", where);
  expect_array(segments, where + ": segments");
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::string segment_place = where + ": segments[" + std::to_string(s) + "]";
    expect_object(segments[s], segment_place, {"layer", "begin", "end"});
    op.segments.push_back({read_layer(segments[s], index_of, segment_place),
                           read_fraction(segments[s], "begin", 0, segment_place),
                           read_fraction(segments[s], "end", 1, segment_place)});
  }
  op.launch = read_event(required(value, "launch", where), true, index_of, where + ": launch");
  op.deadline = read_event(required(value, "deadline", where), false, index_of, where + ": deadline");
  return op;
}

Update read_update(const Json& value) {
  const std::string& name = read_string(value, "update");
  if (name != "step" && name != "fused") {
    reject({"update", "\"" + name + "\"", "\"step\" or \"fused\"",
            "Leave it out where the optimizer steps all layers behind the backward"});
  }
  return name == "fused" ? Update::fused : Update::step;
}

nlohmann::ordered_json event_json(const Plan& plan, const Event& event) {
  nlohmann::ordered_json json = {{"iteration", event.iteration}};
  switch (event.kind) {
    case EventKind::before_forward:
      json["before"] = "forward";
      break;
    case EventKind::after_forward:
      json["after"] = "forward";
      break;
    case EventKind::after_backward:
      json["after"] = "backward";
      break;
    case EventKind::before_step:
      json["before"] = "step";
      return json;
    case EventKind::after_step:
      json["after"] = "step";
      return json;
  }
  json["layer"] = plan.layers[event.layer];
  return json;
}

}  // namespace

Plan parse_plan(std::string_view json) {
  const Json root = read_json(json, "plan").root;
  expect_format(root, plan_format, "plan");
  expect_object(root, "plan", {"format", "planner", "period", "update", "layers", "ops"});
  Plan plan;
  if (const Json* planner = optional(root, "planner")) {
    plan.planner = read_string(*planner, "plan: planner");
  }
  plan.period = read_count(required(root, "period", "plan"), "period");
  if (const Json* update = optional(root, "update")) {
    plan.update = read_update(*update);
  }
  const Json& layers = required(root, "layers", "plan");
  expect_array(layers, "layers");
  LayerIndex index_of;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    plan.layers.push_back(read_string(layers[l], "layers[" + std::to_string(l) + "]"));
    index_of.emplace(plan.layers.back(), l);
  }
  validate_layer_names(plan);
  const Json& ops = required(root, "ops", "plan");
  expect_array(ops, "ops");
  plan.ops.reserve(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    plan.ops.push_back(read_op(ops[i], index_of, "ops[" + std::to_string(i) + "]"));
  }
  validate_alone(plan);
  return plan;
}

std::string to_json(const Plan& plan) {
  validate_alone(plan);
  nlohmann::ordered_json root;
  root["format"] = plan_format;
  root["planner"] = plan.planner;
  root["period"] = plan.period;
  if (plan.update == Update::fused) {
    root["update"] = "fused";
  }
  root["layers"] = plan.layers;
  root["ops"] = nlohmann::ordered_json::array();
  for (const Op& op : plan.ops) {
    nlohmann::ordered_json item;
    item["quantity"] = op.quantity == Quantity::gradients ? "gradients" : "parameters";
    item["segments"] = nlohmann::ordered_json::array();
    for (const Segment& segment : op.segments) {
      nlohmann::ordered_json& part = item["segments"].emplace_back();
      part["layer"] = plan.layers[segment.layer];
      if (segment.begin != 0) {
        part["begin"] = segment.begin;
      }
      if (segment.end != 1) {
        part["end"] = segment.end;
      }
    }
    item["launch"] = event_json(plan, op.launch);
    item["deadline"] = event_json(plan, op.deadline);
    root["ops"].push_back(std::move(item));
  }
  return root.dump(2) + "\n";
}

}  // namespace dreamddp
