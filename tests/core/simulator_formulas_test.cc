// Formulas of the literature (design section 4) that must come out of the simulator for the right plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/random_plans.h"
#include "core/small_plans.h"
#include "dreamddp/simulator.h"

namespace dreamddp::testing {
namespace {

constexpr int num_profiles = 300;

Profile plain_profile(Random& random) {
  return random_profile(
      random,
      {.max_layers = 12, .special_reads = false, .any_backward_order = false, .layers_without_bytes = false});
}

std::vector<Segment> whole_layers(std::size_t begin, std::size_t end) {
  std::vector<Segment> segments;
  for (std::size_t l = end; l-- > begin;) segments.push_back({l});
  return segments;
}

double total_transfer(const Profile& profile) {
  double seconds = 0;
  for (const Layer& layer : profile.layers) seconds += *layer.transfer_seconds;
  return seconds;
}

TEST(Formulas, SynchronousSgd) {
  Random random(11);
  for (int i = 0; i < num_profiles; ++i) {
    const Profile profile = plain_profile(random);
    const Plan plan =
        valid_plan(profile, 1,
                   {gradients(whole_layers(0, profile.layers.size()), after_backward(0, 0), before_step(0))});
    const Simulation simulation = simulate(plan, profile, {});
    EXPECT_NEAR(simulation.iteration_seconds, compute_seconds(profile) + total_transfer(profile), 1e-12);
  }
}

TEST(Formulas, LocalSgd) {
  Random random(12);
  for (int i = 0; i < num_profiles; ++i) {
    const Profile profile = plain_profile(random);
    const std::int64_t period = random_integer(random, 1, 20);
    const Plan plan = valid_plan(profile, period,
                                 {parameters(whole_layers(0, profile.layers.size()), after_step(period - 1),
                                             before_forward(period, 0))});
    const Simulation simulation = simulate(plan, profile, {});
    EXPECT_NEAR(simulation.iteration_seconds,
                compute_seconds(profile) + total_transfer(profile) / static_cast<double>(period), 1e-12);
  }
}

/// Layers end .. begin of a sequential partition, in one iteration, with the start times
/// tau_j = max(backward end of layer j, end of the transfer before it).
double partial_iteration_seconds(const Profile& profile, std::size_t begin, std::size_t end) {
  double backward_end = 0;  // from the beginning of the backward
  for (std::size_t l = profile.layers.size(); l-- > end;) backward_end += profile.layers[l].backward_seconds;
  const double reached = backward_end + (end > begin ? profile.layers[end - 1].backward_seconds : 0);
  double tau = 0;
  for (std::size_t l = end; l-- > begin;) {
    backward_end += profile.layers[l].backward_seconds;
    tau = std::max(backward_end, tau) + *profile.layers[l].transfer_seconds;
  }
  double forward = 0;
  double backward = 0;
  for (const Layer& layer : profile.layers) {
    forward += layer.forward_seconds;
    backward += layer.backward_seconds;
  }
  return forward + reached + std::max(backward - reached, tau - reached) + profile.step_seconds;
}

TEST(Formulas, PartialSynchronisationOverASequentialPartition) {
  Random random(13);
  for (int i = 0; i < num_profiles; ++i) {
    const Profile profile = plain_profile(random);
    const std::size_t num_layers = profile.layers.size();
    const std::int64_t period = random_integer(random, 1, 6);
    std::vector<std::size_t> cuts{num_layers, 0};
    for (std::int64_t h = 1; h < period; ++h) cuts.push_back(random() % (num_layers + 1));
    std::ranges::sort(cuts, std::greater());
    std::vector<Op> ops;
    double expected = 0;
    for (std::int64_t h = 0; h < period; ++h) {
      const std::size_t end = cuts[static_cast<std::size_t>(h)];
      const std::size_t begin = cuts[static_cast<std::size_t>(h) + 1];
      for (std::size_t l = end; l-- > begin;)
        ops.push_back(parameters({{l}}, after_backward(h, l), before_step(h)));
      expected += partial_iteration_seconds(profile, begin, end);
    }
    const Simulation simulation = simulate(valid_plan(profile, period, ops), profile, {});
    EXPECT_NEAR(simulation.iteration_seconds, expected / static_cast<double>(period), 1e-12);
  }
}

TEST(Formulas, BandwidthGivesRingTransferTimes) {
  const Profile profile = uniform_profile(2);
  const Plan plan = valid_plan(profile, 1, {gradients({{0}, {1}}, after_backward(0, 0), before_step(0))});
  const Link link{.bandwidth_bytes_per_second = 500, .latency_seconds = 0.25, .workers = 4};
  const Simulation simulation = simulate(plan, profile, link);
  EXPECT_DOUBLE_EQ(simulation.link_seconds, 2 * 3 / 4.0 * 2000 / 500);
  EXPECT_DOUBLE_EQ(simulation.iteration_seconds, 7 + 6 + 0.25);
}

}  // namespace
}  // namespace dreamddp::testing
