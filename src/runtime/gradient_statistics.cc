#include "runtime/gradient_statistics.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr std::int64_t most_lag = 1000;

/// The sign of a row: the highest bit of splitmix64 of its number.
float sign_of_row(std::uint64_t row) {
  std::uint64_t bits = (row + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return ((bits ^ (bits >> 31)) >> 63) != 0 ? -1.0f : 1.0f;
}

std::int64_t num_elements_of(const std::vector<at::Tensor>& parameters) {
  std::int64_t sum = 0;
  for (const at::Tensor& parameter : parameters) sum += parameter.numel();
  return sum;
}

/// Rows of k that the parameters' gradients fill, each parameter beginning a new one.
std::int64_t num_rows(const std::vector<at::Tensor>& parameters, std::int64_t k) {
  std::int64_t rows = 0;
  for (const at::Tensor& parameter : parameters) rows += (parameter.numel() + k - 1) / k;
  return rows;
}

at::TensorOptions on_device_of(const at::Tensor& parameter) {
  return at::TensorOptions().dtype(at::kFloat).device(parameter.device());
}

at::Tensor signs_of_rows(std::int64_t num_rows, const at::Tensor& like) {
  at::Tensor signs = at::empty({num_rows}, at::kFloat);
  float* const values = signs.mutable_data_ptr<float>();
  for (std::int64_t row = 0; row < num_rows; ++row)
    values[row] = sign_of_row(static_cast<std::uint64_t>(row));
  return signs.to(like.device());
}

at::Tensor flat_gradient(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return at::zeros({parameter.numel()}, on_device_of(parameter));
  return gradient.detach().reshape({-1}).to(at::kFloat);
}

double cosine(double product, double norm, double other_norm) {
  const double cosine = product / (norm * other_norm);  // NaN for a norm that is NaN, and 0 / 0
  return std::isnan(cosine) ? cosine : std::clamp(cosine, -1.0, 1.0);
}

}  // namespace

GradientStatistics::GradientStatistics(std::vector<std::vector<at::Tensor>> layers,
                                       GradientStatisticsOptions options)
    : options_(std::move(options)) {
  std::int64_t before = 0;
  for (const std::int64_t lag : options_.lags) {
    if (lag <= before || lag > most_lag) {
      reject({.field = "lags",
              .value = std::to_string(lag),
              .allowed = "ascending whole numbers from 1 to " + std::to_string(most_lag),
              .remedy = "Give each once: memory is kept for the longest."});
    }
    before = lag;
  }
  if (options_.sketch_size < 0) {
    reject({.field = "sketch_size",
            .value = std::to_string(options_.sketch_size),
            .allowed = "a whole number of at least 0",
            .remedy = "Use 0 to copy gradients whole."});
  }
  ring_size_ = before;
  const std::int64_t kept = ring_size_ + (options_.with_last_average ? 1 : 0);
  const at::NoGradGuard no_grad;
  for (std::vector<at::Tensor>& parameters : layers) {
    Layer layer;
    layer.num_elements = num_elements_of(parameters);
    layer.parameters = std::move(parameters);
    if (!layer.parameters.empty()) {
      const std::int64_t k = options_.sketch_size;
      const bool is_sketched = k > 0 && layer.num_elements > k;
      const at::Tensor& first = layer.parameters.front();
      if (is_sketched) layer.signs = signs_of_rows(num_rows(layer.parameters, k), first);
      layer.rows = at::zeros({kept, is_sketched ? k : layer.num_elements}, on_device_of(first));
      layer.norms.assign(static_cast<std::size_t>(kept), GradientStatistic::unknown);
    }
    forget_statistic(layer);
    layers_.push_back(std::move(layer));
  }
}

/// The gradient as one vector, or its sketch: see Note [Sketches of gradients].
at::Tensor GradientStatistics::condensed(const Layer& layer) const {
  if (!layer.signs.defined()) {
    if (layer.parameters.size() == 1) return flat_gradient(layer.parameters.front());
    std::vector<at::Tensor> parts;
    for (const at::Tensor& parameter : layer.parameters) parts.push_back(flat_gradient(parameter));
    return at::cat(parts);
  }
  const std::int64_t k = options_.sketch_size;
  at::Tensor sketch = at::zeros({k}, layer.signs.options());
  std::int64_t row = 0;
  for (const at::Tensor& parameter : layer.parameters) {
    const std::int64_t rows = parameter.numel() / k;
    const std::int64_t rest = parameter.numel() % k;
    if (parameter.grad().defined()) {
      const at::Tensor gradient = flat_gradient(parameter);
      if (rows > 0) {
        const at::Tensor signs = layer.signs.narrow(0, row, rows);
        sketch.add_(at::mv(gradient.narrow(0, 0, rows * k).view({rows, k}).t(), signs));
      }
      if (rest > 0) {
        const at::Tensor sign = layer.signs.narrow(0, row + rows, 1);
        sketch.narrow(0, 0, rest).add_(gradient.narrow(0, rows * k, rest) * sign);
      }
    }
    row += rows + (rest > 0 ? 1 : 0);
  }
  return sketch;
}

void GradientStatistics::observe(std::size_t index, bool is_averaged) {
  Layer& layer = layers_.at(index);
  const bool has_gradient =
      std::ranges::any_of(layer.parameters, [](const at::Tensor& p) { return p.grad().defined(); });
  if (!has_gradient || layer.is_observed) return;
  const at::NoGradGuard no_grad;
  layer.is_observed = true;
  const at::Tensor gradient = condensed(layer);
  const double norm = std::sqrt(at::dot(gradient, gradient).item<double>());
  layer.statistic.norm = norm;
  if (layer.rows.size(0) == 0) return;
  const at::Tensor products = at::mv(layer.rows, gradient).to(at::kCPU, at::kDouble);
  const double* const product = products.const_data_ptr<double>();
  const auto similarity = [&](std::int64_t row) {
    return cosine(product[row], norm, layer.norms[static_cast<std::size_t>(row)]);
  };
  for (std::size_t i = 0; i < options_.lags.size(); ++i) {
    const std::int64_t iteration = layer.num_iterations - options_.lags[i];
    if (iteration >= 0) layer.statistic.lag_similarities[i] = similarity(iteration % ring_size_);
  }
  if (options_.with_last_average) layer.statistic.last_average_similarity = similarity(ring_size_);
  const auto keep = [&](std::int64_t row) {
    layer.rows[row].copy_(gradient);
    layer.norms[static_cast<std::size_t>(row)] = norm;
  };
  if (ring_size_ > 0) keep(layer.num_iterations % ring_size_);
  const auto reference = static_cast<std::size_t>(ring_size_);
  if (options_.with_last_average && (is_averaged || std::isnan(layer.norms[reference]))) keep(ring_size_);
}

void GradientStatistics::iteration_ends() {
  for (Layer& layer : layers_) {
    if (ring_size_ > 0 && !layer.is_observed && !layer.norms.empty())
      layer.norms[static_cast<std::size_t>(layer.num_iterations % ring_size_)] = GradientStatistic::unknown;
    ++layer.num_iterations;
    forget_statistic(layer);
  }
}

void GradientStatistics::forget_statistic(Layer& layer) const {
  layer.is_observed = false;
  layer.statistic = {};
  layer.statistic.lag_similarities.assign(options_.lags.size(), GradientStatistic::unknown);
}

std::int64_t GradientStatistics::memory_bytes() const {
  std::int64_t bytes = 0;
  for (const Layer& layer : layers_)
    if (layer.rows.defined()) bytes += static_cast<std::int64_t>(layer.rows.nbytes());
  return bytes;
}

GradientStatistics::LayerState GradientStatistics::state(std::size_t index) const {
  const Layer& layer = layers_.at(index);
  return {layer.rows.defined() ? layer.rows.clone() : at::Tensor(), layer.norms, layer.num_iterations};
}

void GradientStatistics::set_state(std::size_t index, const LayerState& state) {
  Layer& layer = layers_.at(index);
  const auto shape_of = [](const at::Tensor& rows) {
    return rows.defined() ? std::to_string(rows.size(0)) + " x " + std::to_string(rows.size(1))
                          : std::string("nothing");
  };
  const bool fits = state.rows.defined() == layer.rows.defined() &&
                    state.norms.size() == layer.norms.size() && state.num_iterations >= 0 &&
                    (!layer.rows.defined() || state.rows.sizes() == layer.rows.sizes());
  if (!fits) {
    reject({.field = "state of gradient statistics, layer " + std::to_string(index),
            .value = shape_of(state.rows) + " numbers",
            .allowed = shape_of(layer.rows) + " numbers",
            .remedy = "Load it with the options and the model that it was saved with."});
  }
  const at::NoGradGuard no_grad;
  if (layer.rows.defined()) layer.rows.copy_(state.rows);
  layer.norms = state.norms;
  layer.num_iterations = state.num_iterations;
  forget_statistic(layer);
}

}  // namespace dreamddp
