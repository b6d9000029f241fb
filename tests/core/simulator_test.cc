// The simulator against a direct computation of the time model, and what it reports.
#include "dreamddp/simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>

#include "core/random_plans.h"
#include "core/small_plans.h"

namespace dreamddp::testing {
namespace {

/// The time model of design section 4 written down directly, without a scheduler: runs the plan from rest,
/// an event after the other, and returns the mean iteration of the second half of the periods.
double directly_simulated_iteration(const Plan& plan, const Profile& profile, const Link& link,
                                    int num_periods) {
  const EventOrder order(profile);
  const std::vector<double> transfers = layer_transfer_seconds(profile, link);
  std::multimap<std::int64_t, double> finish_by_deadline;
  std::vector<double> finishes;
  double now = 0, link_free = 0, half = 0;
  std::size_t next_op = 0;
  std::int64_t period_begin = 0;
  const auto pass = [&](const Event& event) {
    const std::int64_t position = order.position(event);
    const auto due = finish_by_deadline.equal_range(position);
    for (auto it = due.first; it != due.second; ++it) now = std::max(now, it->second);
    for (;;) {
      const Op& op = plan.ops[next_op];
      Event launch = op.launch;
      launch.iteration += period_begin;
      if (order.position(launch) != position) return;
      double start = std::max(now, link_free);
      const auto in_flight = static_cast<std::size_t>(link.in_flight);
      if (finishes.size() >= in_flight) start = std::max(start, finishes[finishes.size() - in_flight]);
      link_free = start;
      for (const Segment& segment : op.segments)
        link_free += (segment.end - segment.begin) * transfers[segment.layer];
      finishes.push_back(link_free + link.latency_seconds);
      Event deadline = op.deadline;
      deadline.iteration += period_begin;
      finish_by_deadline.emplace(order.position(deadline), finishes.back());
      if (++next_op == plan.ops.size()) {
        next_op = 0;
        period_begin += plan.period;
      }
    }
  };
  const std::int64_t num_iterations = num_periods * plan.period;
  for (std::int64_t i = 0; i < num_iterations; ++i) {
    if (i == num_iterations / 2) half = now;
    for (std::size_t l = 0; l < profile.layers.size(); ++l) {
      pass(before_forward(i, l));
      now += profile.layers[l].forward_seconds;
      pass(after_forward(i, l));
    }
    for (const std::size_t l : backward_sequence(profile)) {
      now += profile.layers[l].backward_seconds;
      pass(after_backward(i, l));
    }
    pass(before_step(i));
    now += profile.step_seconds;
    pass(after_step(i));
  }
  return (now - half) / (static_cast<double>(num_iterations) / 2);
}

Link random_link(Random& random) {
  const double latency =
      random_chance(random, 0.3) ? 0 : static_cast<double>(random_integer(random, 0, 80)) / 8;
  return measured_link(latency, static_cast<int>(random_integer(random, 1, 4)));
}

TEST(Simulator, AgreesWithTheModelComputedDirectly) {
  Random random(5);
  for (int i = 0; i < 3000; ++i) {
    const Profile profile = random_profile(random);
    const Plan plan = i % 3 == 0 ? random_plan(random, profile, {.update = Update::fused})
                                 : random_plan(random, profile, {.gradients = 0.1});
    if (plan.ops.empty()) continue;
    const Link link = random_link(random);
    const double direct = directly_simulated_iteration(plan, profile, link, 240);
    ASSERT_NEAR(simulate(plan, profile, link).iteration_seconds, direct, 1e-9)
        << i << " in flight " << link.in_flight << " latency " << link.latency_seconds << to_json(profile)
        << to_json(plan);
  }
}

TEST(Simulator, IsNeverBelowTheBoundOrTheLimit) {
  Random random(6);
  int num_reaching_the_bound = 0;
  for (int i = 0; i < 6000; ++i) {
    const Profile profile = random_profile(random);
    const auto most_permissive = static_cast<OpMode>(random_integer(random, 0, 2));
    const Update update = i % 3 == 0 ? Update::fused : Update::step;
    const Plan plan = random_plan(random, profile, {.most_permissive = most_permissive, .update = update});
    const Link link = random_link(random);
    const Simulation simulation = simulate(plan, profile, link);
    ASSERT_GE(simulation.iteration_seconds, simulation.bound_seconds - 1e-9)
        << to_json(profile) << to_json(plan);
    ASSERT_GE(simulation.iteration_seconds, simulation.limit_seconds - 1e-9)
        << to_json(profile) << to_json(plan);
    ASSERT_NEAR(simulation.iteration_seconds, simulation.compute_seconds + simulation.exposed_seconds, 1e-12);
    num_reaching_the_bound += simulation.gap < 1e-12;
  }
  EXPECT_GT(num_reaching_the_bound, 100);
}

TEST(Simulator, GradientPlansAreNeverBelowTheBound) {
  Random random(7);
  for (int i = 0; i < 1000; ++i) {
    const Profile profile = random_profile(random);
    const Plan plan = random_plan(random, profile, {.gradients = 1});
    const Simulation simulation = simulate(plan, profile, random_link(random));
    ASSERT_GE(simulation.iteration_seconds, simulation.bound_seconds - 1e-9)
        << to_json(profile) << to_json(plan);
  }
}

TEST(Simulator, LinkThatFallsBehindSlowlyIsFollowedToTheEnd) {
  // A period's transfers take 1e-7 s longer than its compute: about 40 million periods pass until the link is
  // as far behind as the deadline allows.
  Profile profile = uniform_profile(2);
  profile.layers[0].transfer_seconds = 7 + 1e-7;
  profile.layers[1].transfer_seconds = 0;
  const Plan plan = valid_plan(profile, 1, {parameters({{0}, {1}}, after_step(0), before_step(2))});
  const Simulation simulation = simulate(plan, profile, {});
  EXPECT_NEAR(simulation.iteration_seconds, 7 + 1e-7, 1e-12);
  EXPECT_NEAR(simulation.exposed_seconds, 1e-7, 1e-12);
}

TEST(Simulator, PeriodsMayRepeatInACycle) {
  // An op takes 2 + 14 s and may cross one step, so step i+2 ends at least 17 s after step i, whose op it
  // waits for, and 7 s after step i+1. From rest, periods of 7 and of 10 s alternate.
  const Profile profile = uniform_profile(2);
  const Plan plan = valid_plan(profile, 1, {parameters({{0}, {1}}, after_step(0), before_step(2))});
  EXPECT_DOUBLE_EQ(simulate(plan, profile, measured_link(14, 2)).iteration_seconds, 8.5);
}

TEST(Simulator, LatencyOfAnIterationAgreesWithTheModelComputedDirectly) {
  Random random(8);
  for (int i = 0; i < 200; ++i) {
    const Profile profile = random_profile(random, {.max_layers = 3, .special_reads = false});
    const Plan plan = random_plan(random, profile, {.max_period = 1});
    if (plan.ops.empty()) continue;
    for (int in_flight = 1; in_flight <= 4; ++in_flight) {
      const Link link = measured_link(compute_seconds(profile), in_flight);
      ASSERT_NEAR(simulate(plan, profile, link).iteration_seconds,
                  directly_simulated_iteration(plan, profile, link, 240), 1e-9);
    }
  }
}

TEST(Simulator, Reports) {
  Profile profile = uniform_profile(2);
  const Plan plan = valid_plan(profile, 2,
                               {parameters({{1, 0, 0.5}}, after_step(0), before_step(1)),
                                parameters({{1, 0.5, 1}}, after_backward(1, 1), before_step(1)),
                                parameters({{0}}, after_step(1), before_forward(2, 0))});
  const Simulation simulation = simulate(plan, profile, measured_link(0.125), {.staging_bytes = 100});
  EXPECT_EQ(simulation.compute_seconds, 7);
  EXPECT_EQ(simulation.link_seconds, 1);
  EXPECT_EQ(simulation.exposed_seconds, 1.125 / 2);
  EXPECT_EQ(simulation.iteration_seconds, 7 + 1.125 / 2);
  EXPECT_EQ(simulation.limit_seconds, 7);
  EXPECT_EQ(simulation.bound_seconds, 7);  // held
  EXPECT_NEAR(simulation.gap, 1.125 / 2 / 7, 1e-12);
  EXPECT_EQ(simulation.ops_per_iteration, 1.5);
  EXPECT_EQ(simulation.staging_bytes, 100 + 500);
  EXPECT_EQ(simulation.bytes_per_iteration, 1000);
  profile.layers[1].num_bytes.reset();
  EXPECT_EQ(simulate(plan, profile, {}).bytes_per_iteration, std::nullopt);
}

TEST(Simulator, NothingToDoTakesNoTime) {
  Profile profile = uniform_profile(1);
  profile.layers[0] = {.name = "0",
                       .forward_seconds = 0,
                       .backward_seconds = 0,
                       .num_bytes = 0,
                       .transfer_seconds = 0,
                       .last_read = {}};
  profile.step_seconds = 0;
  const Simulation idle = simulate(valid_plan(profile, 3, {}), profile, {});
  EXPECT_EQ(idle.iteration_seconds, 0);
  EXPECT_EQ(idle.gap, 0);
  const Plan plan = valid_plan(profile, 1, {parameters({{0}}, after_step(0), before_forward(1, 0))});
  const Simulation latency = simulate(plan, profile, measured_link(1));
  EXPECT_EQ(latency.iteration_seconds, 1);
  EXPECT_TRUE(std::isinf(latency.gap));
}

TEST(Simulator, RejectsWhatDoesNotFitTogether) {
  const Profile profile = uniform_profile(2);
  const Plan plan = valid_plan(profile, 1, {gradients({{0}, {1}}, after_backward(0, 0), before_step(0))});
  EXPECT_THROW(simulate(plan, uniform_profile(3), {}), std::invalid_argument);
  EXPECT_THROW(simulate(plan, profile, measured_link(0, 0)), std::invalid_argument);
  Profile unmeasured = profile;
  unmeasured.layers[1].transfer_seconds.reset();
  EXPECT_THROW(simulate(plan, unmeasured, {}), std::invalid_argument);
  Plan broken = plan;
  broken.ops[0].deadline = before_forward(1, 0);
  EXPECT_THROW(simulate(broken, profile, {}), std::invalid_argument);
}

TEST(Simulator, TimelineShowsThePeriodFromTheStepBeforeIt) {
  const Profile profile = uniform_profile(2);
  const Plan plan = valid_plan(profile, 1,
                               {parameters({{1}}, after_backward(0, 1), before_step(0)),
                                parameters({{0}}, after_step(0), before_forward(1, 0))});
  Timeline timeline;
  simulate(plan, profile, measured_link(1.5), {.timeline = &timeline});
  std::vector<std::string> spans;
  for (const Span& span : timeline.spans) {
    constexpr const char* kinds[] = {"forward", "backward", "step", "wait", "link"};
    EXPECT_EQ(span.iteration, 0);
    spans.push_back(std::string(kinds[static_cast<int>(span.kind)]) + " " + span.name + " " +
                    std::to_string(span.begin_seconds).substr(0, 4) + " " +
                    std::to_string(span.end_seconds).substr(0, 4));
  }
  EXPECT_EQ(spans, (std::vector<std::string>{
                       "link op 1: 0 0.00 2.50", "wait op 1: 0 0.00 2.50", "forward 0 2.50 3.50",
                       "forward 1 3.50 4.50", "backward 1 4.50 6.50", "link op 0: 1 6.50 9.00",
                       "backward 0 6.50 8.50", "wait op 0: 1 8.50 9.00", "step step 9.00 10.0"}));
}

TEST(Simulator, TakesLargeModels) {
  Profile profile = uniform_profile(10000);
  std::vector<Op> ops;
  for (std::size_t l = 10000; l > 0; l -= 10) {
    Op op = parameters({}, after_backward(0, l - 10), before_step(0));
    for (std::size_t carried = l; carried-- > l - 10;) op.segments.push_back({carried});
    ops.push_back(op);
  }
  const Simulation simulation = simulate(valid_plan(profile, 1, ops), profile, {});
  // One op of 10 s in each 20 s of backward; the last one is exposed.
  EXPECT_EQ(simulation.iteration_seconds, 30001 + 10);
}

}  // namespace
}  // namespace dreamddp::testing
