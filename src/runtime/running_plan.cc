#include "runtime/running_plan.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

std::string name_layers(const Op& op, const Plan& plan) {
  std::string text = "'" + plan.layers[op.segments.front().layer] + "'";
  if (op.segments.size() > 1) {
    text += " and " + std::to_string(op.segments.size() - 1) + " more";
  }
  return text;
}

/// For each of the model's layers, its index in the profile.
std::vector<std::size_t> find_layers(const Profile& profile, const std::vector<LayerParameters>& layers) {
  std::unordered_map<std::string, std::size_t> index_of;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    index_of.emplace(profile.layers[i].name, i);
  }
  std::vector<std::size_t> found;
  for (const LayerParameters& layer : layers) {
    const auto index = index_of.find(layer.name);
    if (index == index_of.end()) {
      reject({.field = "layers of the profile",
              .value = "none named '" + layer.name + "'",
              .allowed = "all layers of the model that have trainable parameters",
              .remedy = "Measure the profile with this model."});
    }
    found.push_back(index->second);
  }
  return found;
}

}  // namespace

std::int64_t RunningPlan::iteration_of(std::int64_t sequence) const {
  const auto num_ops = static_cast<std::int64_t>(plan.ops.size());
  const std::size_t op = op_of(sequence);
  const std::int64_t launches_of_periods =
      sequence + static_cast<std::int64_t>(first_op) - static_cast<std::int64_t>(op);
  return first_period_begin + launches_of_periods / num_ops * plan.period + plan.ops[op].launch.iteration;
}

std::size_t RunningPlan::op_of(std::int64_t sequence) const {
  const auto num_ops = static_cast<std::int64_t>(plan.ops.size());
  const std::int64_t op = (sequence + static_cast<std::int64_t>(first_op)) % num_ops;
  return static_cast<std::size_t>(op < 0 ? op + num_ops : op);  // below 0: launched before the first one
}

std::int64_t RunningPlan::sequence_of(std::size_t op, std::int64_t iteration) const {
  const std::int64_t periods = (iteration - plan.ops[op].launch.iteration - first_period_begin) / plan.period;
  return periods * static_cast<std::int64_t>(plan.ops.size()) + static_cast<std::int64_t>(op) -
         static_cast<std::int64_t>(first_op);
}

std::string RunningPlan::describe(const Chunk& chunk) const {
  const bool is_gradient = plan.ops[chunk.op].quantity == Quantity::gradients;
  return (is_gradient ? "averaging the gradients of " : "averaging ") +
         name_layers(plan.ops[chunk.op], plan) + " (op " + std::to_string(chunk.op) + " of the plan, step " +
         std::to_string(iteration_of(chunk.sequence)) + ")";
}

std::shared_ptr<const RunningPlan> make_running_plan(const Plan& plan, const Profile& profile,
                                                     const std::vector<LayerParameters>& layers,
                                                     std::int64_t first_iteration) {
  validate(plan, profile);
  auto running = std::make_shared<RunningPlan>();
  running->plan = plan;
  running->plan_layer = find_layers(profile, layers);
  std::vector<const LayerParameters*> parameters_of(profile.layers.size(), nullptr);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    parameters_of[running->plan_layer[i]] = &layers[i];
  }
  const EventOrder order(profile, plan.update);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    TransportOp op{.slices = {}, .quantity = plan.ops[i].quantity, .statistics = {}};
    for (const Segment& segment : plan.ops[i].segments) {
      const LayerParameters* layer = parameters_of[segment.layer];
      if (layer == nullptr) continue;
      const auto part = segment_slices(*layer, segment.begin, segment.end);
      op.slices.insert(op.slices.end(), part.begin(), part.end());
      if (segment.end < 1) continue;  // statistics go with the layer's last element
      const auto statistics = whole_slices(layer->statistics);
      op.statistics.insert(op.statistics.end(), statistics.begin(), statistics.end());
    }
    running->op_bytes.push_back(num_bytes(op.slices) + num_bytes(op.statistics));
    if (op.quantity == Quantity::gradients) {
      running->has_gradients = true;
    } else {
      op.mode = op_mode(plan.ops[i], order);
      running->keeps_back |= op.mode != OpMode::in_place;
    }
    running->ops.push_back(std::move(op));
    running->labels.push_back("op " + std::to_string(i) + ": " + name_layers(plan.ops[i], plan));
  }
  const std::int64_t place = first_iteration % plan.period;
  running->first_period_begin = first_iteration - place;
  const auto first =
      std::ranges::find_if(plan.ops, [&](const Op& op) { return op.launch.iteration >= place; });
  if (first == plan.ops.end()) {
    running->first_period_begin += plan.period;
  } else {
    running->first_op = static_cast<std::size_t>(first - plan.ops.begin());
  }
  return running;
}

}  // namespace dreamddp
