// Profiles of sizes at which comparable libraries broke, through every planner, validation and simulator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "dreamddp/plan.h"
#include "dreamddp/planner.h"
#include "dreamddp/profile.h"
#include "dreamddp/simulator.h"

namespace dreamddp::testing {
namespace {

struct OddProfile {
  const char* name;
  std::size_t num_layers;
  std::int64_t num_bytes;  ///< of every layer
  std::int64_t period;
};

constexpr std::int64_t float32_bytes = 4;
const OddProfile odd_profiles[] = {
    {"no_layers", 0, 0, 5},
    {"one_layer", 1, 4096, 1},
    {"more_iterations_than_layers", 3, 4096, 50},
    {"a_layer_of_3e9_elements", 2, 3'000'000'000 * float32_bytes, 4},
    {"ten_thousand_layers", 10'000, 4096, 5},
    {"a_layer_of_1e12_bytes", 2, 1'000'000'000'000, 5},
    {"layers_without_bytes", 4, 0, 5},
};

Profile make(const OddProfile& odd) {
  Profile profile;
  for (std::size_t l = 0; l < odd.num_layers; ++l) {
    profile.layers.push_back({.name = "layer " + std::to_string(l),
                              .forward_seconds = 1e-3,
                              .backward_seconds = 2e-3,
                              .num_bytes = odd.num_bytes});
  }
  profile.step_seconds = 1e-3;
  return profile;
}

class G3 : public ::testing::TestWithParam<std::tuple<Planner, OddProfile>> {};

TEST_P(G3, EveryPlannerMakesAPlanOrSaysWhatItNeeds) {
  const auto& [planner, odd] = GetParam();
  const Profile profile = make(odd);
  const Link link{.bandwidth_bytes_per_second = 1e8, .latency_seconds = 1e-3, .workers = 4};
  const PlanOptions options{.period = odd.period, .search = {.max_nodes = 100'000}};
  const bool is_too_large = planner.name == "brute-force" && odd.num_layers > 20;
  if (odd.num_layers == 0 || is_too_large) {
    EXPECT_THROW(make_plan(planner.name, profile, link, options), std::invalid_argument);
    return;
  }
  const Plan plan = make_plan(planner.name, profile, link, options);
  validate(plan, profile);
  const Simulation simulation = simulate(plan, profile, link);
  const double compute = 3e-3 * static_cast<double>(odd.num_layers) + 1e-3;
  EXPECT_TRUE(std::isfinite(simulation.iteration_seconds));
  EXPECT_GE(simulation.iteration_seconds, compute * (1 - 1e-9));
  EXPECT_GE(simulation.gap, -1e-9);
  EXPECT_EQ(simulation.link_seconds > 0, !plan.ops.empty());
}

INSTANTIATE_TEST_SUITE_P(Sizes, G3,
                         ::testing::Combine(::testing::ValuesIn(planners().begin(), planners().end()),
                                            ::testing::ValuesIn(odd_profiles)),
                         [](const auto& info) {
                           std::string name(std::get<0>(info.param).name);
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name + "_" + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace dreamddp::testing
