// Random plans, random training loops: what the scheduler guarantees, whatever the events.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "core/random_plans.h"
#include "core/random_training.h"
#include "core/schedule_checker.h"

namespace dreamddp::testing {
namespace {

std::string to_text(const std::vector<TrainingEvent>& events) {
  constexpr std::array names = {"iteration_begins",    "forward_begins",    "forward_ends", "backward_ends",
                                "backward_finishes",   "step_begins",       "step_ends",    "read_begins",
                                "accumulation_begins", "accumulation_ends", "finish"};
  static_assert(names.size() == static_cast<std::size_t>(TrainingEventKind::finish) + 1);
  std::string text;
  for (const TrainingEvent& event : events)
    text +=
        std::string(names[static_cast<std::size_t>(event.kind)]) + " " + std::to_string(event.layer) + "\n";
  return text;
}

class SchedulerProperties : public ::testing::TestWithParam<Update> {
 protected:
  Plan make_plan(Random& random, const Profile& profile) const {
    const double gradients = GetParam() == Update::fused ? 0 : 0.15;
    return random_plan(random, profile, {.gradients = gradients, .update = GetParam()});
  }
};

INSTANTIATE_TEST_SUITE_P(Updates, SchedulerProperties, ::testing::Values(Update::step, Update::fused),
                         [](const auto& info) { return info.param == Update::fused ? "Fused" : "Step"; });

TEST_P(SchedulerProperties, HoldInRandomTraining) {
  constexpr int num_plans = 2500;
  constexpr int trainings_of_each = 40;
  Random random(2024);
  for (int i = 0; i < num_plans; ++i) {
    const Profile profile = random_profile(random);
    const auto plan = std::make_shared<const Plan>(make_plan(random, profile));
    for (int j = 0; j < trainings_of_each; ++j) {
      auto events = random_training(random, profile, random_integer(random, 1, 6));
      events.push_back({TrainingEventKind::finish});
      ScheduleChecker checker(plan, profile, random_integer(random, 0, 2 * plan->period));
      std::size_t num_taken = 0;
      try {
        for (const TrainingEvent& event : events) {
          ++num_taken;
          checker.take(event);
        }
      } catch (const std::logic_error& error) {
        events.resize(num_taken);
        FAIL() << "plan " << i << ", training " << j << ": " << error.what() << "\n"
               << to_json(profile) << to_json(*plan) << to_text(events);
      }
    }
  }
}

TEST_P(SchedulerProperties, RanksLaunchTheSame) {
  Random random(77);
  for (int i = 0; i < 2000; ++i) {
    const Profile profile = random_profile(random);
    const auto plan = std::make_shared<const Plan>(make_plan(random, profile));
    const std::int64_t num_iterations = random_integer(random, 1, 8);
    const std::int64_t first_iteration = random_integer(random, 0, plan->period);
    const auto launches = [&] {
      ScheduleChecker rank(plan, profile, first_iteration);
      for (const TrainingEvent& event : random_training(random, profile, num_iterations)) rank.take(event);
      rank.take({TrainingEventKind::forward_begins, 0});  // makes up for a last step that was skipped
      return rank.launches();
    };
    const auto first = launches();
    for (int rank = 1; rank < 4; ++rank) ASSERT_EQ(launches(), first);
  }
}

}  // namespace
}  // namespace dreamddp::testing
