#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_reading.h"
#include "dreamddp/error.h"
#include "dreamddp/policy.h"

namespace dreamddp {
namespace {

constexpr std::string_view state_format = "dreamddp-policies/1";

std::string patterns_of(std::span<const PolicyRule> rules) {
  std::string patterns;
  for (const PolicyRule& rule : rules) patterns += (patterns.empty() ? "'" : ", '") + rule.first + "'";
  return patterns;
}

}  // namespace

LayerPolicies::LayerPolicies(const std::vector<std::string>& layers, std::span<const PolicyRule> rules,
                             std::int64_t first_iteration)
    : layers_(layers), staleness_(layers.size(), 0), iteration_(first_iteration) {
  if (first_iteration < 0)
    reject({.field = "first_iteration",
            .value = std::to_string(first_iteration),
            .allowed = "a whole number of at least 0",
            .remedy = "Use 0 for a training that begins."});
  for (const std::string& layer : layers) {
    const auto rule = std::ranges::find_if(rules, [&](const auto& r) { return matches(r.first, layer); });
    if (rule == rules.end())
      reject({.field = "policies",
              .value = rules.empty() ? "no patterns" : patterns_of(rules),
              .allowed = "a pattern that matches layer '" + layer + "'",
              .remedy = "Add the pattern '*' as the last one."});
    policies_.push_back(rule->second->clone());
  }
  for (const PolicyRule& rule : rules) {
    if (std::ranges::any_of(layers, [&](const auto& layer) { return matches(rule.first, layer); })) continue;
    reject({.field = "policies",
            .value = "the pattern '" + rule.first + "'",
            .allowed = "a pattern that matches a layer",
            .remedy = "Layers are called like '" + (layers.empty() ? std::string() : layers.front()) +
                      "'; correct the pattern or remove it."});
  }
  decide();
}

LayerPolicies::LayerPolicies(const LayerPolicies& other)
    : layers_(other.layers_),
      staleness_(other.staleness_),
      decisions_(other.decisions_),
      iteration_(other.iteration_) {
  for (const auto& policy : other.policies_) policies_.push_back(policy->clone());
}

std::vector<bool> LayerPolicies::need_similarity() const {
  std::vector<bool> need;
  for (const auto& policy : policies_) need.push_back(policy->needs_similarity());
  return need;
}

void LayerPolicies::iteration_ends(std::span<const LayerSignal> signals,
                                   std::span<const std::size_t> out_of_turn) {
  if (signals.size() != layers_.size())
    reject({.field = "signals",
            .value = std::to_string(signals.size()),
            .allowed = "one for each of " + std::to_string(layers_.size()) + " layers",
            .remedy = "Give NaN where nothing was seen."});
  std::vector<bool> is_fresh;
  for (const Decision& decision : decisions_) is_fresh.push_back(decision.is_due);
  for (const std::size_t layer : out_of_turn) is_fresh.at(layer) = true;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    if (is_fresh[layer]) {
      policies_[layer]->synchronised();
      staleness_[layer] = 0;
    } else {
      policies_[layer]->observe(signals[layer]);
    }
    ++staleness_[layer];
  }
  ++iteration_;
  decide();
}

void LayerPolicies::decide() {
  decisions_.clear();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    decisions_.push_back(policies_[layer]->decide({.iteration = iteration_, .staleness = staleness_[layer]}));
}

std::string LayerPolicies::state() const {
  auto layers = nlohmann::ordered_json::object();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    layers[layers_[layer]] = {{"staleness", staleness_[layer]}, {"policy", policies_[layer]->state()}};
  return nlohmann::ordered_json{{"format", state_format}, {"iteration", iteration_}, {"layers", layers}}
      .dump();
}

void LayerPolicies::set_state(std::string_view state) {
  const JsonDocument document = read_json(state, "state of policies");
  expect_object(document.root, "state of policies", {"format", "iteration", "layers"});
  expect_format(document.root, state_format, "state of policies");
  const Json& layers = required(document.root, "layers", "state of policies");
  if (!layers.is_object() || layers.size() != layers_.size())
    reject({.field = "state of policies: layers",
            .value = std::to_string(layers.size()),
            .allowed = "the " + std::to_string(layers_.size()) + " layers of the model",
            .remedy = "Load it into the model that it was saved with."});
  LayerPolicies loaded(*this);  // nothing changes where the state is not valid
  loaded.iteration_ = read_count(required(document.root, "iteration", "state of policies"), "iteration");
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::string where = "state of policies: layer '" + layers_[layer] + "'";
    const Json& saved = required(layers, layers_[layer].c_str(), where);
    expect_object(saved, where, {"staleness", "policy"});
    loaded.staleness_[layer] = read_count(required(saved, "staleness", where), where + ": staleness");
    const Json& numbers = required(saved, "policy", where);
    expect_array(numbers, where + ": policy");
    std::vector<double> values;
    for (const Json& number : numbers) {
      if (!number.is_number())
        reject({where + ": policy", text_of(number), "numbers", "Save the state again"});
      values.push_back(number.get<double>());
    }
    loaded.policies_[layer]->set_state(values);
  }
  loaded.decide();
  policies_ = std::move(loaded.policies_);
  staleness_ = std::move(loaded.staleness_);
  decisions_ = std::move(loaded.decisions_);
  iteration_ = loaded.iteration_;
}

}  // namespace dreamddp
