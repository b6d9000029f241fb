// Each rule of the policies on sequences worked out by hand.
#include "dreamddp/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "core/expect_rejected.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

constexpr double unseen = std::numeric_limits<double>::quiet_NaN();

PolicyRule rule(std::string pattern, std::unique_ptr<Policy> policy) {
  return {std::move(pattern), std::shared_ptr<const Policy>(std::move(policy))};
}

LayerPolicies one_layer(std::unique_ptr<Policy> policy) {
  return LayerPolicies({"h"}, std::vector{rule("*", std::move(policy))});
}

/// For each iteration from the first on, whether the layer is due, given what is seen in each.
std::vector<bool> due(LayerPolicies policies, const std::vector<double>& similarities) {
  std::vector<bool> due;
  for (const double similarity : similarities) {
    due.push_back(policies.decisions()[0].is_due);
    policies.iteration_ends(std::vector<LayerSignal>{{similarity}});
  }
  return due;
}

TEST(FixedPeriod, IsDueInTheLastIterationOfEveryPeriod) {
  EXPECT_EQ(due(one_layer(fixed_period(3)), std::vector(7, unseen)),
            (std::vector{false, false, true, false, false, true, false}));
  EXPECT_EQ(due(one_layer(fixed_period(1)), std::vector(2, unseen)), (std::vector{true, true}));
}

TEST(FixedPeriod, PhaseIsSoManyIterationsBeforeTheEndOfThePeriod) {
  EXPECT_EQ(due(one_layer(fixed_period(3, 1)), std::vector(7, unseen)),
            (std::vector{false, true, false, false, true, false, false}));
  EXPECT_EQ(due(one_layer(fixed_period(3, 2)), std::vector(4, unseen)),
            (std::vector{true, false, false, true}));
}

TEST(StaggeredPhases, LargestLayersFirstWhereLeastIsSent) {
  // Of the calendar of 4: 8 at place 0; 6 at place 1; 5 at places 0 or 1 of 2, both loaded: 1 has less.
  EXPECT_EQ(staggered_phases(std::vector<std::int64_t>{4, 4, 2, 4}, std::vector<double>{6, 8, 5, 1}),
            (std::vector<std::int64_t>{2, 3, 0, 1}));
  EXPECT_EQ(staggered_phases(std::vector<std::int64_t>{1, 1}, std::vector<double>{1, 2}),
            (std::vector<std::int64_t>{0, 0}));
  EXPECT_TRUE(staggered_phases({}, {}).empty());
}

TEST(StaggeredPhases, EqualLayersWithOnePeriodTakeTurns) {
  const auto phases = staggered_phases(std::vector<std::int64_t>(12, 4), std::vector<double>(12, 10));
  for (std::int64_t phase = 0; phase < 4; ++phase) EXPECT_EQ(std::ranges::count(phases, phase), 3);
}

TEST(StaggeredPhases, IterationsDifferByTheLargestLayerAtMost) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const auto period = 1 + static_cast<std::int64_t>(random() % 9);
    std::vector<double> num_bytes(1 + random() % 20);
    for (double& bytes : num_bytes) bytes = static_cast<double>(random() % 100);
    const auto phases = staggered_phases(std::vector(num_bytes.size(), period), num_bytes);
    std::vector<double> sent(static_cast<std::size_t>(period), 0);
    for (std::int64_t iteration = 0; iteration < period; ++iteration) {
      for (std::size_t layer = 0; layer < phases.size(); ++layer) {
        if (fixed_period(period, phases[layer])->decide({.iteration = iteration}).is_due)
          sent[static_cast<std::size_t>(iteration)] += num_bytes[layer];
      }
    }
    EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), 0.0),
              std::accumulate(num_bytes.begin(), num_bytes.end(), 0.0));
    EXPECT_LE(std::ranges::max(sent) - std::ranges::min(sent), std::ranges::max(num_bytes));
  }
}

TEST(StaggeredPhases, BadInputIsNamed) {
  const std::vector<std::int64_t> one{2};
  expect_rejected([&] { staggered_phases(one, {}); }, {"num_bytes", "0 sizes", "1 layers"});
  expect_rejected([&] { staggered_phases(one, std::vector<double>{-1}); }, {"num_bytes", "-1"});
  expect_rejected([&] { staggered_phases(std::vector<std::int64_t>{0}, std::vector<double>{1}); },
                  {"period", "got 0"});
}

TEST(FixedPeriod, GoesByTheCalendarWhateverElseAverages) {
  LayerPolicies policies = one_layer(fixed_period(3));
  policies.iteration_ends(std::vector<LayerSignal>(1), std::vector<std::size_t>{0});
  policies.iteration_ends(std::vector<LayerSignal>(1));
  EXPECT_EQ(policies.staleness(0), 2);
  EXPECT_EQ(policies.decisions()[0], (Decision{true, Rule::fixed_period, 2, 3}));
}

TEST(BoundedStaleness, CountsFromTheLastAverage) {
  LayerPolicies policies = one_layer(bounded_staleness(3));
  const auto next = [&](std::vector<std::size_t> out_of_turn = {}) {
    policies.iteration_ends(std::vector<LayerSignal>(1), out_of_turn);
    return policies.decisions()[0];
  };
  EXPECT_EQ(policies.decisions()[0], (Decision{false, Rule::bounded_staleness, 0, 3}));
  EXPECT_EQ(next(), (Decision{false, Rule::bounded_staleness, 1, 3}));
  EXPECT_EQ(next({0}), (Decision{false, Rule::bounded_staleness, 1, 3}));  // averaged out of turn
  EXPECT_EQ(next(), (Decision{false, Rule::bounded_staleness, 2, 3}));
  EXPECT_EQ(next(), (Decision{true, Rule::bounded_staleness, 3, 3}));
  EXPECT_EQ(next(), (Decision{false, Rule::bounded_staleness, 1, 3}));
}

TEST(Direction, IsDueWhenTheMovingAverageFallsBelowTheThreshold) {
  // m: 1, 0.5 * 1 + 0.5 * 0.6 = 0.8, 0.5 * 0.8 + 0.5 * 0 = 0.4 < 0.5; due, so 1 again.
  LayerPolicies policies = one_layer(direction_threshold({.threshold = 0.5, .smoothing = 0.5}));
  const auto next = [&](double similarity) {
    policies.iteration_ends(std::vector<LayerSignal>{{similarity}});
    return policies.decisions()[0];
  };
  EXPECT_EQ(policies.decisions()[0], (Decision{false, Rule::direction, 1, 0.5}));
  EXPECT_EQ(next(0.6), (Decision{false, Rule::direction, 0.8, 0.5}));
  EXPECT_EQ(next(unseen), (Decision{false, Rule::direction, 0.8, 0.5}));
  EXPECT_EQ(next(0), (Decision{true, Rule::direction, 0.4, 0.5}));
  // What is seen in the iteration of the average is of the old reference.
  EXPECT_EQ(next(-1), (Decision{false, Rule::direction, 1, 0.5}));
  EXPECT_EQ(next(-0.5), (Decision{true, Rule::direction, 0.25, 0.5}));
}

TEST(Direction, IsNotDueAtTheThreshold) {
  EXPECT_EQ(due(one_layer(direction_threshold({.threshold = 0.5, .smoothing = 0})), {0.5, 0.25, 0.5, 0.5}),
            (std::vector{false, false, true, false}));
}

TEST(AdaptiveDirection, TakesItsThresholdFromTheHistoryOfTheLayer) {
  LayerPolicies policies =
      one_layer(adaptive_threshold({.threshold = 0.5, .smoothing = 0, .history_smoothing = 0.5}));
  const auto next = [&](double similarity) {
    policies.iteration_ends(std::vector<LayerSignal>{{similarity}});
    return policies.decisions()[0];
  };
  EXPECT_EQ(policies.decisions()[0].is_due, false);
  EXPECT_EQ(next(unseen).is_due, false);
  EXPECT_EQ(next(0.5), (Decision{false, Rule::adaptive_direction, 0.5, 0.25}));  // h = 0.5
  EXPECT_EQ(next(0), (Decision{true, Rule::adaptive_direction, 0, 0.125}));      // h = 0.25
  EXPECT_EQ(next(1), (Decision{false, Rule::adaptive_direction, 1, 0.125}));     // averaged; h stays
  EXPECT_EQ(next(-1), (Decision{true, Rule::adaptive_direction, -1, -0.375}));   // h = -0.375
}

TEST(Combined, StalenessComesBeforeTheDirection) {
  LayerPolicies policies = one_layer(combined(direction_threshold({.threshold = 0.5, .smoothing = 0}), 2));
  const auto next = [&](double similarity) {
    policies.iteration_ends(std::vector<LayerSignal>{{similarity}});
    return policies.decisions()[0];
  };
  EXPECT_EQ(next(0.25), (Decision{true, Rule::direction, 0.25, 0.5}));  // before the limit
  EXPECT_EQ(next(0), (Decision{false, Rule::direction, 1, 0.5}));
  EXPECT_EQ(next(0), (Decision{true, Rule::bounded_staleness, 2, 2}));  // both say so
  EXPECT_EQ(next(0), (Decision{false, Rule::direction, 1, 0.5}));
  EXPECT_EQ(next(1), (Decision{true, Rule::bounded_staleness, 2, 2}));  // the limit alone
}

TEST(LayerPolicies, OutOfTurnResetsThatLayerAlone) {
  LayerPolicies policies({"a", "b"}, std::vector{rule("*", combined(direction_threshold(), 4))});
  const std::vector<LayerSignal> seen{{0.75}, {0.75}};
  policies.iteration_ends(seen);
  policies.iteration_ends(seen, std::vector<std::size_t>{1});
  EXPECT_EQ(policies.staleness(0), 2);
  EXPECT_EQ(policies.staleness(1), 1);
  EXPECT_EQ(policies.decisions()[0].value, 0.8125);
  EXPECT_EQ(policies.decisions()[1].value, 1);
}

TEST(LayerPolicies, TheFirstPatternThatMatchesDecides) {
  const std::vector<PolicyRule> rules{rule("*.wte", fixed_period(8)), rule("h.?.*", fixed_period(4)),
                                      rule("*", fixed_period(1))};
  const LayerPolicies policies({"transformer.wte", "h.1.attn", "h.10.attn", "lm_head"}, rules);
  std::vector<double> periods;
  for (const Decision& decision : policies.decisions()) periods.push_back(decision.limit);
  EXPECT_EQ(periods, (std::vector<double>{8, 4, 1, 1}));
}

TEST(LayerPolicies, RejectsPatternsThatDoNotFit) {
  expect_rejected(
      [] {
        LayerPolicies({"a", "b"}, std::vector{rule("a", fixed_period(2))});
      },
      {"policies", "'a'", "layer 'b'"});
  expect_rejected(
      [] {
        LayerPolicies({"a"}, std::vector{rule("*", fixed_period(2)), rule("c*", fixed_period(2))});
      },
      {"policies", "'c*'", "matches a layer"});
}

TEST(LayerPolicies, GoesOnFromAStateExactly) {
  const std::vector<PolicyRule> rules = parse_policies(R"({"a": {"policy": "adaptive-direction"},
                         "b": {"policy": "combined", "most_staleness": 5},
                         "*": {"policy": "fixed-period", "period": 3}})");
  const std::vector<std::string> layers{"a", "b", "c"};
  LayerPolicies whole(layers, rules);
  const auto iterate = [](LayerPolicies& policies, int iteration) {
    const double similarity = std::cos(iteration * 0.7);
    policies.iteration_ends(std::vector<LayerSignal>{{similarity}, {similarity / 3}, {unseen}});
  };
  for (int i = 0; i < 17; ++i) iterate(whole, i);
  LayerPolicies resumed(layers, rules);
  resumed.set_state(whole.state());
  for (int i = 17; i < 60; ++i) {
    EXPECT_EQ(resumed.iteration(), whole.iteration());
    EXPECT_EQ(resumed.decisions(), whole.decisions());
    iterate(whole, i);
    iterate(resumed, i);
  }
  EXPECT_EQ(resumed.state(), whole.state());
}

TEST(LayerPolicies, RejectsAStateOfOtherLayersAndStaysAsItWas) {
  LayerPolicies saved({"a", "b"}, std::vector{rule("*", direction_threshold())});
  LayerPolicies other({"a", "c"}, std::vector{rule("*", direction_threshold())});
  other.iteration_ends(std::vector<LayerSignal>(2));
  const std::string before = other.state();
  expect_rejected([&] { other.set_state(saved.state()); }, {"'c'"});
  LayerPolicies another({"a", "b"}, std::vector{rule("*", adaptive_threshold())});
  expect_rejected([&] { another.set_state(saved.state()); }, {"state", "1 numbers", "adaptive-direction"});
  EXPECT_EQ(other.state(), before);
}

TEST(Policies, RejectNumbersOutOfRange) {
  expect_rejected([] { fixed_period(0); }, {"period", "got 0", "from 1 to 1000000"});
  expect_rejected([] { bounded_staleness(-1); }, {"most", "got -1"});
  expect_rejected([] { direction_threshold({.threshold = 1.5}); }, {"threshold", "got 1.5", "from -1 to 1"});
  expect_rejected([] { direction_threshold({.threshold = unseen}); }, {"threshold"});
  expect_rejected([] { direction_threshold({.smoothing = 1}); }, {"smoothing", "got 1", "below 1"});
  expect_rejected([] { adaptive_threshold({.threshold = 0}); }, {"threshold", "got 0", "above 0"});
  expect_rejected([] { adaptive_threshold({.history_smoothing = -1}); }, {"history_smoothing", "got -1"});
  expect_rejected([] { combined(nullptr, 3); }, {"under", "no policy"});
  expect_rejected([] { combined(fixed_period(2), 0); }, {"most_staleness", "got 0"});
}

TEST(PolicyJson, ARoundTripKeepsOrderAndValues) {
  const char* text =
      R"({"*.wte":{"policy":"fixed-period","period":8,"phase":3},)"
      R"("b*":{"policy":"bounded-staleness","most":4},)"
      R"("c*":{"policy":"combined","most_staleness":9,"under":{"policy":"direction","threshold":-0.25,"smoothing":0.5}},)"
      R"("*":{"policy":"adaptive-direction","threshold":0.5,"smoothing":0.0,"history_smoothing":0.98}})";
  EXPECT_EQ(to_json(parse_policies(text)), text);
}

TEST(PolicyJson, NamesThePatternAndTheField) {
  const auto rejected = [](const char* text, std::initializer_list<std::string> parts) {
    expect_rejected([&] { parse_policies(text); }, parts);
  };
  rejected("{}", {"policies", "at least one pattern"});
  rejected("[]", {"policies", "at least one pattern"});
  rejected(R"({"*": 3})", {"'*'", "an object"});
  rejected(R"({"*": {}})", {"'*'", "policy"});
  rejected(R"({"*": {"policy": "sometimes"}})", {"'*'", "sometimes", "fixed-period"});
  rejected(R"({"*": {"policy": "fixed-period"}})", {"'*'", "period"});
  rejected(R"({"*": {"policy": "fixed-period", "period": 2, "phase": 2}})", {"phase", "got 2", "0 to", "1"});
  rejected(R"({"*": {"policy": "fixed-period", "period": 1.5}})", {"'*'", "period", "1.5"});
  rejected(R"({"*": {"policy": "fixed-period", "period": 2, "most": 3}})", {"'*'", "most"});
  rejected(R"({"*": {"policy": "direction", "threshold": NaN}})", {"'*'", "threshold", "NaN"});
  rejected(R"({"*": {"policy": "combined", "most_staleness": 2, "under": {"policy": "x"}}})",
           {"'*': under: policy", "\"x\""});
  rejected(R"({"*": {"policy": "direction"}, "*": {"policy": "direction"}})", {"\"*\"", "twice"});
}

TEST(Patterns, MatchWholeNames) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*.wte", "transformer.wte"));
  EXPECT_FALSE(matches("*.wte", "transformer.wte.x"));
  EXPECT_TRUE(matches("h.?.*", "h.1.attn"));
  EXPECT_FALSE(matches("h.?.*", "h.11.attn"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches("a*b*c", "aXcYb"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("**", "anything"));
}

}  // namespace
}  // namespace dreamddp
