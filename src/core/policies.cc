#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/decimal.h"
#include "dreamddp/error.h"
#include "dreamddp/plan.h"
#include "dreamddp/policy.h"

namespace dreamddp {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void reject_number(const std::string& field, double value, const std::string& allowed,
                                const std::string& remedy) {
  reject({.field = field, .value = shortest_text(value), .allowed = allowed, .remedy = remedy});
}

void check_count(const std::string& field, std::int64_t value, const std::string& remedy) {
  if (value >= 1 && value <= longest_period) return;
  reject({.field = field,
          .value = std::to_string(value),
          .allowed = "a whole number from 1 to " + std::to_string(longest_period),
          .remedy = remedy});
}

class FixedPeriod final : public Policy {
 public:
  FixedPeriod(std::int64_t period, std::int64_t phase) : period_(period), phase_(phase) {
    check_count("fixed-period: period", period, "Use 1 to average in every iteration.");
    if (phase >= 0 && phase < period) return;
    reject({.field = "fixed-period: phase",
            .value = std::to_string(phase),
            .allowed = "a whole number from 0 to period - 1 = " + std::to_string(period - 1),
            .remedy = "Use 0 for the last iteration of every period."});
  }

  Decision decide(const LayerMoment& moment) const override {
    const std::int64_t place = (moment.iteration % period_ + phase_) % period_;
    return {place == period_ - 1, Rule::fixed_period, static_cast<double>(place),
            static_cast<double>(period_)};
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<FixedPeriod>(*this); }
  std::string to_json() const override {
    return Json{{"policy", "fixed-period"}, {"period", period_}, {"phase", phase_}}.dump();
  }

 private:
  std::int64_t period_;
  std::int64_t phase_;
};

class BoundedStaleness final : public Policy {
 public:
  explicit BoundedStaleness(std::int64_t most) : most_(most) {
    check_count("bounded-staleness: most", most, "Use 1 to average in every iteration.");
  }

  Decision decide(const LayerMoment& moment) const override {
    return {moment.staleness >= most_, Rule::bounded_staleness, static_cast<double>(moment.staleness),
            static_cast<double>(most_)};
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<BoundedStaleness>(*this); }
  std::string to_json() const override {
    return Json{{"policy", "bounded-staleness"}, {"most", most_}}.dump();
  }

 private:
  std::int64_t most_;
};

/// m := smoothing m + (1 - smoothing) value.
double smoothed(double before, double value, double smoothing) {
  return smoothing * before + (1 - smoothing) * value;
}

void check_smoothing(const std::string& field, double smoothing) {
  if (smoothing >= 0 && smoothing < 1) return;
  reject_number(field, smoothing, "a number of at least 0 and below 1",
                "It is the weight of what was before: use 0 to look at the last iteration alone.");
}

class Direction final : public Policy {
 public:
  explicit Direction(const DirectionOptions& options) : options_(options) {
    if (!(options.threshold >= -1 && options.threshold <= 1))
      reject_number("direction: threshold", options.threshold, "a number from -1 to 1",
                    "It is a cosine: 1 averages whenever the direction changes at all.");
    check_smoothing("direction: smoothing", options.smoothing);
  }

  Decision decide(const LayerMoment& /*moment*/) const override {
    return {mean_ < options_.threshold, Rule::direction, mean_, options_.threshold};
  }
  void observe(const LayerSignal& signal) override {
    if (!std::isnan(signal.similarity)) mean_ = smoothed(mean_, signal.similarity, options_.smoothing);
  }
  void synchronised() override { mean_ = 1; }
  bool needs_similarity() const override { return true; }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<Direction>(*this); }
  std::vector<double> state() const override { return {mean_}; }
  void set_state(std::span<const double> state) override {
    if (state.size() != 1) return Policy::set_state(state);
    mean_ = state[0];
  }
  std::string to_json() const override {
    return Json{{"policy", "direction"}, {"threshold", options_.threshold}, {"smoothing", options_.smoothing}}
        .dump();
  }

 private:
  DirectionOptions options_;
  double mean_ = 1;  ///< of the similarity, since the last average
};

class AdaptiveDirection final : public Policy {
 public:
  explicit AdaptiveDirection(const DirectionOptions& options) : options_(options) {
    if (!(options.threshold > 0 && options.threshold <= 1))
      reject_number("adaptive-direction: threshold", options.threshold, "a number above 0 and at most 1",
                    "It is a fraction of the layer's usual similarity.");
    check_smoothing("adaptive-direction: smoothing", options.smoothing);
    check_smoothing("adaptive-direction: history_smoothing", options.history_smoothing);
  }

  Decision decide(const LayerMoment& /*moment*/) const override {
    const double limit = threshold();
    return {has_history_ && mean_ < limit, Rule::adaptive_direction, mean_, limit};
  }
  void observe(const LayerSignal& signal) override {
    if (std::isnan(signal.similarity)) return;
    mean_ = smoothed(mean_, signal.similarity, options_.smoothing);
    history_ =
        has_history_ ? smoothed(history_, signal.similarity, options_.history_smoothing) : signal.similarity;
    has_history_ = true;
  }
  void synchronised() override { mean_ = 1; }
  bool needs_similarity() const override { return true; }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<AdaptiveDirection>(*this); }
  std::vector<double> state() const override { return {mean_, history_, has_history_ ? 1.0 : 0.0}; }
  void set_state(std::span<const double> state) override {
    if (state.size() != 3) return Policy::set_state(state);
    mean_ = state[0];
    history_ = state[1];
    has_history_ = state[2] != 0;
  }
  std::string to_json() const override {
    return Json{{"policy", "adaptive-direction"},
                {"threshold", options_.threshold},
                {"smoothing", options_.smoothing},
                {"history_smoothing", options_.history_smoothing}}
        .dump();
  }

 private:
  double threshold() const { return history_ > 0 ? options_.threshold * history_ : history_; }

  DirectionOptions options_;
  double mean_ = 1;  ///< of the similarity, since the last average
  double history_ = 0;
  bool has_history_ = false;
};

class Combined final : public Policy {
 public:
  Combined(std::unique_ptr<Policy> policy, std::int64_t most_staleness)
      : policy_(std::move(policy)), most_staleness_(most_staleness) {
    if (policy_ == nullptr)
      reject({.field = "combined: under",
              .value = "no policy",
              .allowed = "a policy",
              .remedy = "Use `bounded-staleness` for the limit alone."});
    check_count("combined: most_staleness", most_staleness, "Use 1 to average in every iteration.");
  }
  Combined(const Combined& other) : policy_(other.policy_->clone()), most_staleness_(other.most_staleness_) {}

  Decision decide(const LayerMoment& moment) const override {
    if (moment.staleness >= most_staleness_)
      return {true, Rule::bounded_staleness, static_cast<double>(moment.staleness),
              static_cast<double>(most_staleness_)};
    return policy_->decide(moment);
  }
  void observe(const LayerSignal& signal) override { policy_->observe(signal); }
  void synchronised() override { policy_->synchronised(); }
  bool needs_similarity() const override { return policy_->needs_similarity(); }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<Combined>(*this); }
  std::vector<double> state() const override { return policy_->state(); }
  void set_state(std::span<const double> state) override { policy_->set_state(state); }
  std::string to_json() const override {
    return Json{{"policy", "combined"},
                {"most_staleness", most_staleness_},
                {"under", Json::parse(policy_->to_json())}}
        .dump();
  }

 private:
  std::unique_ptr<Policy> policy_;
  std::int64_t most_staleness_;
};

}  // namespace

std::string_view rule_name(Rule rule) {
  switch (rule) {
    case Rule::fixed_period:
      return "fixed-period";
    case Rule::bounded_staleness:
      return "bounded-staleness";
    case Rule::direction:
      return "direction";
    case Rule::adaptive_direction:
      return "adaptive-direction";
  }
  return "";
}

void Policy::set_state(std::span<const double> state) {
  if (state.empty()) return;
  reject({.field = "state of a policy",
          .value = std::to_string(state.size()) + " numbers",
          .allowed = "the state of " + to_json(),
          .remedy = "Go on with the policies that the state was saved with."});
}

std::unique_ptr<Policy> fixed_period(std::int64_t period, std::int64_t phase) {
  return std::make_unique<FixedPeriod>(period, phase);
}

std::unique_ptr<Policy> bounded_staleness(std::int64_t most) {
  return std::make_unique<BoundedStaleness>(most);
}

std::unique_ptr<Policy> direction_threshold(const DirectionOptions& options) {
  return std::make_unique<Direction>(options);
}

std::unique_ptr<Policy> adaptive_threshold(const DirectionOptions& options) {
  return std::make_unique<AdaptiveDirection>(options);
}

std::unique_ptr<Policy> combined(std::unique_ptr<Policy> policy, std::int64_t most_staleness) {
  return std::make_unique<Combined>(std::move(policy), most_staleness);
}

}  // namespace dreamddp
