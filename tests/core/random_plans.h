// Random profiles and random plans that are valid by construction, for property tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp::testing {

using Random = std::mt19937_64;

/// A whole number in [low, high]. The same on every platform, unlike std::uniform_int_distribution.
inline std::int64_t random_integer(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

inline bool random_chance(Random& random, double probability) {
  return static_cast<double>(random() >> 11) * 0x1p-53 < probability;
}

template <typename T>
const T& random_element(Random& random, const std::vector<T>& elements) {
  return elements[random() % elements.size()];
}

template <typename T>
void random_shuffle(Random& random, std::vector<T>& elements) {
  for (std::size_t i = elements.size(); i > 1; --i) std::swap(elements[i - 1], elements[random() % i]);
}

struct RandomProfileOptions {
  std::size_t max_layers = 6;
  bool special_reads = true;         ///< layers with a last read in their forward or in another backward
  bool any_backward_order = true;    ///< now and then, backwards that are not the reverse of the forwards
  bool layers_without_bytes = true;  ///< now and then, a layer that has no parameters
};

/// Times are multiples of 1/8 s, so sums of them are exact.
inline Profile random_profile(Random& random, const RandomProfileOptions& options = {}) {
  Profile profile;
  const auto num_layers =
      static_cast<std::size_t>(random_integer(random, 1, static_cast<std::int64_t>(options.max_layers)));
  for (std::size_t l = 0; l < num_layers; ++l) {
    Layer layer;
    layer.name = "layer" + std::to_string(l);
    layer.forward_seconds = static_cast<double>(random_integer(random, 0, 16)) / 8;
    layer.backward_seconds = static_cast<double>(random_integer(random, 0, 32)) / 8;
    layer.num_bytes =
        options.layers_without_bytes && random_chance(random, 0.1) ? 0 : random_integer(random, 1, 64);
    layer.transfer_seconds = static_cast<double>(*layer.num_bytes) / 8;
    if (options.special_reads && random_chance(random, 0.2)) layer.last_read.kind = LastReadKind::forward;
    if (options.special_reads && num_layers > 1 && random_chance(random, 0.15))
      layer.last_read = {LastReadKind::other_backward,
                         (l + static_cast<std::size_t>(
                                  random_integer(random, 1, static_cast<std::int64_t>(num_layers) - 1))) %
                             num_layers};
    profile.layers.push_back(std::move(layer));
  }
  profile.step_seconds = static_cast<double>(random_integer(random, 0, 8)) / 8;
  if (options.any_backward_order && random_chance(random, 0.2)) {
    profile.backward_order = backward_sequence(profile);
    random_shuffle(random, profile.backward_order);
  }
  return profile;
}

struct RandomPlanOptions {
  std::int64_t max_period = 4;
  OpMode most_permissive = OpMode::carried;  ///< modes that may occur: this one and those before it
  double gradients = 0;  ///< probability that a layer averages gradients in every iteration, not parameters
  double merges = 0.5;   ///< merges tried, as a part of the ops
  Update update = Update::step;  ///< fused plans have no gradients and no modes
};

/// Makes a plan op by op: cuts layers into segments, gives each one or more windows that do not meet, and
/// merges some of the ops.
class RandomPlanMaker {
 public:
  RandomPlanMaker(Random& random, const Profile& profile, const RandomPlanOptions& options)
      : random_(random), profile_(profile), options_(options), order_(profile, options.update) {}

  Plan make() {
    plan_.planner = "random";
    plan_.update = options_.update;
    plan_.period = random_integer(random_, 1, options_.max_period);
    for (const Layer& layer : profile_.layers) plan_.layers.push_back(layer.name);
    for (std::size_t layer = 0; layer < profile_.layers.size(); ++layer) {
      if (profile_.layers[layer].num_bytes == 0 && random_chance(random_, 0.5)) continue;
      const bool is_gradient = random_chance(random_, options_.gradients);
      for (const Segment& segment : cut(layer)) {
        if (is_gradient)
          add_gradients(segment);
        else
          add_parameters(segment);
      }
    }
    merge();
    std::ranges::stable_sort(plan_.ops, {}, [&](const Op& op) { return order_.position(op.launch); });
    return plan_;
  }

 private:
  /// Cuts at multiples of 1/8.
  std::vector<Segment> cut(std::size_t layer) {
    std::vector<Segment> segments{{layer, 0, 1}};
    while (random_chance(random_, 0.3) && segments.back().begin < 0.875) {
      Segment& last = segments.back();
      const double middle =
          static_cast<double>(random_integer(random_, static_cast<std::int64_t>(last.begin * 8) + 1, 7)) / 8;
      last.end = middle;
      segments.push_back({layer, middle, 1});
    }
    return segments;
  }

  void add_gradients(const Segment& segment) {
    for (std::int64_t iteration = 0; iteration < plan_.period; ++iteration) {
      const Event own{iteration, EventKind::after_backward, segment.layer};
      const Event last_read = order_.last_read(segment.layer, iteration);
      const std::int64_t ready = std::max(order_.position(own), order_.position(last_read));
      std::vector<Event> launches;
      for (std::size_t layer = 0; layer < order_.num_layers(); ++layer) {
        const Event event{iteration, EventKind::after_backward, layer};
        if (order_.position(event) >= ready) launches.push_back(event);
      }
      plan_.ops.push_back({Quantity::gradients,
                           {segment},
                           random_element(random_, launches),
                           {iteration, EventKind::before_step, 0}});
    }
  }

  void add_parameters(const Segment& segment) {
    std::vector<Op> ops;
    const std::int64_t num_wanted = random_integer(random_, 1, 3);
    for (int tries = 0; ops.empty() || tries < num_wanted; ++tries) {
      const Op op = random_op(segment);
      if (!is_allowed(op)) continue;
      const bool is_alone = ops.empty() && num_wanted == 1;
      if (!is_alone && length(op) > period_length()) continue;
      if (std::ranges::none_of(ops, [&](const Op& other) { return windows_meet(op, other); }))
        ops.push_back(op);
    }
    plan_.ops.insert(plan_.ops.end(), ops.begin(), ops.end());
  }

  Op random_op(const Segment& segment) {
    const std::int64_t iteration = random_integer(random_, 0, plan_.period - 1);
    const auto random_layer = [&] {
      return static_cast<std::size_t>(
          random_integer(random_, 0, static_cast<std::int64_t>(order_.num_layers()) - 1));
    };
    Op op{Quantity::parameters, {segment}, {iteration, EventKind::after_step, 0}, {}};
    switch (random_integer(random_, 0, 5)) {
      case 0:
      case 1:
        op.launch = order_.last_read(segment.layer, iteration);
        break;
      case 2:
        op.launch = {iteration, EventKind::after_backward, random_layer()};
        break;
      case 3:
        op.launch = {iteration, EventKind::after_forward, random_layer()};
        break;
      default:
        break;  // after the step
    }
    const std::int64_t first = iteration + (op.launch.kind == EventKind::after_step ? 1 : 0);
    const std::int64_t most = options_.update == Update::fused ? 1 : plan_.period;
    const std::int64_t delay = random_chance(random_, 0.7) ? 0 : random_integer(random_, 0, most);
    op.deadline = {first + delay, EventKind::before_step, 0};
    if (random_chance(random_, 0.5)) {
      const auto layer =
          static_cast<std::size_t>(random_integer(random_, 0, static_cast<std::int64_t>(segment.layer)));
      const Event forward{first + delay, EventKind::before_forward, layer};
      if (order_.position(forward) > order_.position(op.launch)) op.deadline = forward;
    }
    return op;
  }

  bool is_allowed(const Op& op) const {
    if (options_.update == Update::step) return op_mode(op, order_) <= options_.most_permissive;
    return std::ranges::all_of(op.segments,
                               [&](const Segment& segment) { return is_at_rest(op, segment.layer); });
  }

  /// Whether a layer is neither read nor stepped while the op is in flight.
  bool is_at_rest(const Op& op, std::size_t layer) const {
    for (std::int64_t i = op.launch.iteration; i <= op.deadline.iteration; ++i) {
      const std::int64_t first_read = order_.position({i, EventKind::before_forward, layer});
      const std::int64_t update = order_.position(order_.last_read(layer, i));
      if (order_.position(op.launch) < update && first_read < order_.position(op.deadline)) return false;
    }
    return true;
  }

  std::int64_t period_length() const { return order_.position({plan_.period, EventKind::before_forward, 0}); }
  std::int64_t length(const Op& op) const {
    return order_.position(op.deadline) - order_.position(op.launch);
  }

  /// Whether two windows of at most a period have a moment in common, in any of the periods.
  bool windows_meet(const Op& one, const Op& other) const {
    const std::int64_t period = period_length();
    const std::int64_t lead = order_.position(other.launch) - order_.position(one.launch);
    const std::int64_t other_after_one = (lead % period + period) % period;
    return other_after_one < length(one) || other_after_one + length(other) > period;
  }

  void merge() {
    const auto num_tries = static_cast<std::int64_t>(options_.merges * static_cast<double>(plan_.ops.size()));
    for (std::int64_t i = 0; i < num_tries && plan_.ops.size() > 1; ++i) {
      const std::size_t from = random_() % plan_.ops.size();
      const std::size_t into = random_() % plan_.ops.size();
      if (from != into && merge_into(plan_.ops[into], plan_.ops[from]))
        plan_.ops.erase(plan_.ops.begin() + static_cast<std::ptrdiff_t>(from));
    }
  }

  /// The merged op is launched with the later of the two and ends with the earlier.
  bool merge_into(Op& op, const Op& other) const {
    if (op.quantity != other.quantity) return false;
    Op merged = op;
    merged.segments.insert(merged.segments.end(), other.segments.begin(), other.segments.end());
    if (order_.position(other.launch) > order_.position(op.launch)) merged.launch = other.launch;
    if (order_.position(other.deadline) < order_.position(op.deadline)) merged.deadline = other.deadline;
    if (length(merged) <= 0 || !is_allowed(merged)) return false;
    for (const Segment& a : op.segments)
      for (const Segment& b : other.segments)
        if (a.layer == b.layer && a.begin < b.end && b.begin < a.end) return false;
    if (merged.deadline.kind == EventKind::before_forward &&
        std::ranges::any_of(merged.segments,
                            [&](const Segment& s) { return s.layer < merged.deadline.layer; }))
      return false;
    op = std::move(merged);
    return true;
  }

  Random& random_;
  const Profile& profile_;
  const RandomPlanOptions& options_;
  EventOrder order_;
  Plan plan_;
};

inline Plan random_plan(Random& random, const Profile& profile, const RandomPlanOptions& options = {}) {
  return RandomPlanMaker(random, profile, options).make();
}

}  // namespace dreamddp::testing
