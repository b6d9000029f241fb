#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/decimal.h"
#include "dreamddp/error.h"
#include "dreamddp/plan.h"
#include "dreamddp/policy.h"

namespace dreamddp {
namespace {

/// Iterations that are looked at where the periods' common multiple is longer.
constexpr std::int64_t longest_calendar = 4096;

std::int64_t calendar_length(std::span<const std::int64_t> periods) {
  std::int64_t length = 1;
  for (const std::int64_t period : periods) {
    length = std::max(period, std::lcm(length, period));
    if (length >= longest_calendar) return std::max(longest_calendar, *std::ranges::max_element(periods));
  }
  return length;
}

void check(std::span<const std::int64_t> periods, std::span<const double> num_bytes) {
  if (periods.size() != num_bytes.size())
    reject({.field = "num_bytes",
            .value = std::to_string(num_bytes.size()) + " sizes",
            .allowed = "one for each of " + std::to_string(periods.size()) + " layers",
            .remedy = "Give the size of each layer."});
  for (const double bytes : num_bytes) {
    if (std::isfinite(bytes) && bytes >= 0) continue;
    reject({.field = "num_bytes",
            .value = shortest_text(bytes),
            .allowed = "a finite number of at least 0",
            .remedy = "Give the size of the layer."});
  }
  for (const std::int64_t period : periods) fixed_period(period);
}

}  // namespace

std::vector<std::int64_t> staggered_phases(std::span<const std::int64_t> periods,
                                           std::span<const double> num_bytes) {
  check(periods, num_bytes);
  std::vector<std::size_t> layers(periods.size());
  std::iota(layers.begin(), layers.end(), std::size_t{0});
  std::ranges::stable_sort(layers, std::ranges::greater{}, [&](std::size_t l) { return num_bytes[l]; });
  std::vector<double> sent(static_cast<std::size_t>(calendar_length(periods)), 0);
  std::vector<std::int64_t> phases(periods.size(), 0);
  for (const std::size_t layer : layers) {
    const auto period = static_cast<std::size_t>(periods[layer]);
    std::size_t best = 0;  // the place of the calendar with the layer's first average
    double best_load = 0;
    for (std::size_t first = 0; first < period; ++first) {
      double load = 0;
      for (std::size_t place = first; place < sent.size(); place += period)
        load = std::max(load, sent[place]);
      if (first == 0 || load < best_load) {
        best = first;
        best_load = load;
      }
    }
    for (std::size_t place = best; place < sent.size(); place += period) sent[place] += num_bytes[layer];
    phases[layer] = static_cast<std::int64_t>(period - 1 - best);
  }
  return phases;
}

}  // namespace dreamddp
