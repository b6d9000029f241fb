#include "core/prefix_bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace dreamddp {
namespace {

// Note [Weighted prefixes]
//
// Take one iteration that exposes E = E_f + E_b seconds, E_f in front of or within the forward and E_b behind
// that. Its forward window averages something of the layers 1 .. l only in ops that are due before the
// forward of a layer p <= l. Say these are k ops, and p is the last of their layers. They start after the
// step, one at a time, and each takes its link time and a latency, so together they average at most
// D_p + E_f - k a. The same holds for the backward window with the largest G_j, j <= p, and E_b, as these ops
// start after the last read of a layer up to p and end before the step.
//
// So what ops in one window can do for the prefixes is a staircase S(l) with steps p_1 < p_2 < ..:
// S(l) = cover(p_i) + E - i a for the last p_i <= l, and 0 in front of p_1. For weights w_l >= 0,
// W_i = sum of w_l over l >= p_i, it does sum w_l S(l) <= E + value, where
//
//     value = sum_i W_i (cover(p_i) - cover(p_{i-1}) - a)   with cover(p_0) = 0,
//
// as W_1 <= 1. The best staircase is found by dynamic programming. And with k ops in the iteration, all
// layers together have at most C - s + E - k a: with a weight w_T of its own, sum w_l + w_T <= 1, this takes
// another w_T a off every step of both staircases.
//
// In the mean over a period the prefixes need P_l = sum of c_j / H, and all layers P_T. So
//
//     E >= sum w_l P_l + w_T (P_T - (C - s)) - value_forward - value_backward
//
// for all weights. The right side is concave in them: it is raised along its slope.

constexpr std::size_t most_prefixes = 48;
constexpr int num_rounds = 160;

/// What a window can do for the prefixes.
struct Staircase {
  double value = 0;
  std::size_t num_steps = 0;
  std::vector<double> seconds;  ///< S(l) with E = 0
};

class StaircaseSearch {
 public:
  StaircaseSearch(std::vector<double> cover, double latency)
      : cover_(std::move(cover)), latency_(latency), best_(cover_.size()), previous_(cover_.size()) {
    staircase_.seconds.resize(cover_.size());
  }

  /// The most valuable staircase for these weights.
  /// @param seconds_per_op what every step costs beside
  const Staircase& find(const std::vector<double>& weights, double seconds_per_op) {
    const std::size_t num_prefixes = cover_.size();
    double weight_behind = 0;
    tail_.resize(num_prefixes);
    for (std::size_t l = num_prefixes; l-- > 0;) tail_[l] = weight_behind += weights[l];
    std::size_t last = none;
    double most = 0;  // of no step at all
    for (std::size_t i = 0; i < num_prefixes; ++i) {
      double value = tail_[i] * (cover_[i] - latency_);
      previous_[i] = none;
      for (std::size_t j = 0; j < i; ++j) {
        const double with_step = best_[j] + tail_[i] * (cover_[i] - cover_[j] - latency_);
        if (with_step > value) {
          value = with_step;
          previous_[i] = j;
        }
      }
      best_[i] = value - seconds_per_op;
      if (best_[i] > most) {
        most = best_[i];
        last = i;
      }
    }
    staircase_.value = most;
    trace(last);
    return staircase_;
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  void trace(std::size_t last) {
    steps_.clear();
    for (std::size_t step = last; step != none; step = previous_[step]) steps_.push_back(step);
    std::ranges::reverse(steps_);
    staircase_.num_steps = steps_.size();
    std::size_t passed = 0;
    for (std::size_t l = 0; l < cover_.size(); ++l) {
      while (passed < steps_.size() && steps_[passed] <= l) ++passed;
      staircase_.seconds[l] =
          passed == 0 ? 0 : cover_[steps_[passed - 1]] - static_cast<double>(passed) * latency_;
    }
  }

  std::vector<double> cover_;
  double latency_;
  std::vector<double> best_;  // value of the best staircase that ends with this step
  std::vector<std::size_t> previous_;
  std::vector<double> tail_;
  std::vector<std::size_t> steps_;
  Staircase staircase_;
};

double uncovered(const Prefix& prefix) {
  return prefix.link_seconds - prefix.forward_cover - prefix.backward_cover;
}

/// Of neighbours, those that exceed their cover by most.
std::vector<Prefix> most_exposed(const std::vector<Prefix>& prefixes) {
  if (prefixes.size() <= most_prefixes) return prefixes;
  const Prefix& all = prefixes.back();
  const auto length_up_to = [&](const Prefix& prefix) {
    const double cover = all.forward_cover + all.backward_cover;
    return (all.link_seconds > 0 ? prefix.link_seconds / all.link_seconds : 0) +
           (cover > 0 ? (prefix.forward_cover + prefix.backward_cover) / cover : 0);
  };
  std::vector<Prefix> kept;
  std::size_t last_part = most_prefixes;  // of none
  for (const Prefix& prefix : prefixes) {
    const auto part =
        std::min(static_cast<std::size_t>(length_up_to(prefix) / 2 * static_cast<double>(most_prefixes)),
                 most_prefixes - 1);
    if (part != last_part) {
      kept.push_back(prefix);
    } else if (uncovered(prefix) > uncovered(kept.back())) {
      kept.back() = prefix;
    }
    last_part = part;
  }
  return kept;
}

}  // namespace

double exposed_by_prefixes(std::vector<Prefix> prefixes, const IterationCover& iteration) {
  prefixes = most_exposed(prefixes);
  const std::size_t num_prefixes = prefixes.size();
  std::vector<double> forward, backward;
  for (const Prefix& prefix : prefixes) {
    forward.push_back(prefix.forward_cover);
    backward.push_back(prefix.backward_cover);
  }
  StaircaseSearch forward_search(std::move(forward), iteration.latency);
  StaircaseSearch backward_search(std::move(backward), iteration.latency);
  std::vector<double> weights(num_prefixes, 1 / static_cast<double>(num_prefixes + 1));
  double total_weight = 1 / static_cast<double>(num_prefixes + 1);
  std::vector<double> slope(num_prefixes);
  double most = 0;
  for (int round = 0; round < num_rounds; ++round) {
    const double seconds_per_op = total_weight * iteration.latency;
    const Staircase& before = forward_search.find(weights, seconds_per_op);
    const Staircase& after = backward_search.find(weights, seconds_per_op);
    const double total_slope = iteration.link_seconds - iteration.horizon +
                               static_cast<double>(before.num_steps + after.num_steps) * iteration.latency;
    double exposed = total_weight * (iteration.link_seconds - iteration.horizon) - before.value - after.value;
    double mean_slope = total_weight * total_slope;
    for (std::size_t l = 0; l < num_prefixes; ++l) {
      exposed += weights[l] * prefixes[l].link_seconds;
      slope[l] = prefixes[l].link_seconds - before.seconds[l] - after.seconds[l];
      mean_slope += weights[l] * slope[l];
    }
    most = std::max(most, exposed);
    // Multiplicative weights: those above the mean slope grow, and the sum stays 1.
    double steepest = std::abs(total_slope - mean_slope);
    for (const double s : slope) steepest = std::max(steepest, std::abs(s - mean_slope));
    if (steepest == 0) break;
    const double rate = 0.9 / std::sqrt(round / 4.0 + 1) / steepest;
    total_weight *= 1 + rate * (total_slope - mean_slope);
    double sum = total_weight;
    for (std::size_t l = 0; l < num_prefixes; ++l) {
      weights[l] *= 1 + rate * (slope[l] - mean_slope);
      sum += weights[l];
    }
    total_weight /= sum;
    for (double& weight : weights) weight /= sum;
  }
  return most;
}

}  // namespace dreamddp
