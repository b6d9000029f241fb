#include "runtime/policy_run.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr std::size_t most_recent = 4096;
constexpr double similarity_unit = 0x1p-30;  // see Note [Signals are whole numbers]

// Columns of the signals. Means over ranks; where a sum is wanted, the ratio of two of them will do.
enum Column { similarity_column, num_similarities_column, squared_norm_column, num_columns };

std::vector<std::string> names_of(const std::vector<LayerParameters>& layers) {
  std::vector<std::string> names;
  for (const LayerParameters& layer : layers) names.push_back(layer.name);
  return names;
}

std::vector<std::vector<at::Tensor>> parameters_of(const std::vector<LayerParameters>& layers) {
  std::vector<std::vector<at::Tensor>> parameters;
  for (const LayerParameters& layer : layers) parameters.push_back(layer.parameters);
  return parameters;
}

at::Tensor signals_for(const std::vector<LayerParameters>& layers) {
  const c10::Device device =
      layers.empty() ? c10::Device(c10::kCPU) : layers.front().parameters.front().device();
  return at::zeros({static_cast<std::int64_t>(layers.size()), num_columns},
                   at::TensorOptions().dtype(at::kDouble).device(device));
}

}  // namespace

PolicyRun::PolicyRun(const std::vector<LayerParameters>& layers, Profile profile, Link link,
                     PolicyRunOptions options)
    : layers_(layers),
      profile_(std::move(profile)),
      link_(std::move(link)),
      options_(std::move(options)),
      policies_(names_of(layers), options_.rules, options_.first_iteration),
      profile_layer_(layers_in(profile_, layers)),
      needs_similarity_(policies_.need_similarity()),
      statistics_(parameters_of(layers), {.lags = {}, .sketch_size = options_.sketch_size}),
      signals_(signals_for(layers)) {}

void PolicyRun::gradient_is_complete(std::size_t layer) {
  if (needs_similarity_[layer]) statistics_.observe(layer, policies_.decisions()[layer].is_due);
}

void PolicyRun::backward_ends() {
  const at::Tensor signals = at::zeros_like(signals_, at::kCPU);
  double* row = signals.mutable_data_ptr<double>();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer, row += num_columns) {
    const GradientStatistic& seen = statistics_[layer];
    if (std::isfinite(seen.last_average_similarity)) {
      row[similarity_column] = std::round(seen.last_average_similarity / similarity_unit);
      row[num_similarities_column] = 1;
    }
    if (std::isfinite(seen.norm)) row[squared_norm_column] = seen.norm * seen.norm;
  }
  signals_.copy_(signals);
  has_signals_ = true;
  statistics_.iteration_ends();
}

std::vector<LayerSignal> PolicyRun::agreed_signals(IterationDecisions& shown) const {
  const at::Tensor signals = signals_.to(at::kCPU);
  const double* row = signals.const_data_ptr<double>();
  std::vector<LayerSignal> agreed(layers_.size());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer, row += num_columns) {
    if (row[num_similarities_column] > 0)
      agreed[layer].similarity = row[similarity_column] / row[num_similarities_column] * similarity_unit;
    shown.similarities.push_back(agreed[layer].similarity);
    shown.gradient_norms.push_back(std::sqrt(row[squared_norm_column]));
  }
  return agreed;
}

DueOps& PolicyRun::begin_backward(bool is_averaged_out_of_turn) {
  IterationDecisions shown;
  if (has_signals_) {
    has_signals_ = false;
    std::vector<std::size_t> out_of_turn;
    for (std::size_t layer = 0; is_averaged_out_of_turn && layer < layers_.size(); ++layer)
      out_of_turn.push_back(layer);
    policies_.iteration_ends(agreed_signals(shown), out_of_turn);
  }
  DueOps& due = ops_for(policies_.decisions());
  shown.iteration = policies_.iteration();
  shown.decisions = policies_.decisions();
  for (const std::size_t index : due.running->plan_layer) shown.treatments.push_back(due.treatments[index]);
  recent_.push_back(std::move(shown));
  if (recent_.size() > most_recent) recent_.pop_front();
  return due;
}

std::vector<std::int64_t> PolicyRun::staleness() const {
  std::vector<std::int64_t> staleness;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    staleness.push_back(policies_.decisions()[layer].is_due ? 0 : policies_.staleness(layer));
  return staleness;
}

DueOps& PolicyRun::ops_for(const std::vector<Decision>& decisions) {
  std::vector<bool> is_due(profile_.layers.size(), false);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    is_due[profile_layer_[layer]] = decisions[layer].is_due;
  const auto found = plans_.find(is_due);
  if (found != plans_.end()) return found->second;
  const Profile profile = with_due_layers(profile_, is_due);
  const auto plan = plan_due_layers(profile_, link_, is_due, options_.slack);
  auto running = make_running_plan(plan, profile, layers_, 0);
  const std::shared_ptr<const Plan> shared(running, &running->plan);
  DueOps ops{.running = running, .scheduler = SyncScheduler(shared, profile), .treatments = treatments(plan)};
  return plans_.emplace(std::move(is_due), std::move(ops)).first->second;
}

PolicyState PolicyRun::state() const {
  PolicyState state{.policies = policies_.state(), .statistics = {}, .signals = {}};
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    state.statistics.push_back(statistics_.state(layer));
  if (has_signals_) state.signals = signals_.clone();
  return state;
}

void PolicyRun::set_state(const PolicyState& state) {
  const bool fits = state.statistics.size() == layers_.size() &&
                    (!state.signals.defined() || state.signals.sizes() == signals_.sizes());
  if (!fits) {
    reject({.field = "state of policies",
            .value = "that of " + std::to_string(state.statistics.size()) + " layers",
            .allowed = "that of the model's " + std::to_string(layers_.size()) + " layers",
            .remedy = "Load it into the model that it was saved with."});
  }
  policies_.set_state(state.policies);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    statistics_.set_state(layer, state.statistics[layer]);
  has_signals_ = state.signals.defined();
  if (has_signals_) signals_.copy_(state.signals);
}

}  // namespace dreamddp
