#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "core/expect_rejected.h"
#include "core/random_plans.h"
#include "core/test_data.h"
#include "dreamddp/plan.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

const std::string plan_text = R"({"format": "dreamddp-plan/1", "planner": "balanced", "period": 5,
  "layers": ["wte", "h.1", "h.2"],
  "ops": [{"quantity": "parameters", "segments": [{"layer": "h.2"}, {"layer": "h.1", "begin": 0, "end": 0.5}],
           "launch": {"iteration": 0, "after": "backward", "layer": "h.1"}, "deadline": {"iteration": 0, "before": "step"}},
          {"quantity": "gradients", "segments": [{"layer": "wte"}],
           "launch": {"iteration": 4, "after": "step"}, "deadline": {"iteration": 5, "before": "forward", "layer": "wte"}},
          {"quantity": "parameters", "segments": [{"layer": "wte"}],
           "launch": {"iteration": 4, "after": "forward", "layer": "wte"}, "deadline": {"iteration": 4, "before": "step"}}]})";

TEST(ParsePlan, ReadsEveryField) {
  const Plan expected{
      "balanced",
      5,
      {"wte", "h.1", "h.2"},
      {{Quantity::parameters,
        {{2, 0, 1}, {1, 0, 0.5}},
        {0, EventKind::after_backward, 1},
        {0, EventKind::before_step, 0}},
       {Quantity::gradients, {{0, 0, 1}}, {4, EventKind::after_step, 0}, {5, EventKind::before_forward, 0}},
       {Quantity::parameters,
        {{0, 0, 1}},
        {4, EventKind::after_forward, 0},
        {4, EventKind::before_step, 0}}}};
  EXPECT_EQ(parse_plan(plan_text), expected);
}

TEST(ParsePlan, RoundTripsRandomPlans) {
  testing::Random random(3);
  for (int round = 0; round < 300; ++round) {
    const Profile profile = testing::random_profile(random, {.max_layers = 12});
    const Plan plan = testing::random_plan(random, profile, {.max_period = 8, .gradients = 0.2});
    ASSERT_EQ(parse_plan(to_json(plan)), plan);
    ASSERT_EQ(parse_profile(to_json(profile)), profile);
  }
}

TEST(OpLabel, NamesTheSegments) {
  Plan plan = parse_plan(plan_text);
  EXPECT_EQ(op_label(plan, 0), "op 0: h.2, h.1[0:0.5]");
  plan.ops[1].segments.assign(10, {1, 0, 1});
  EXPECT_EQ(op_label(plan, 1), "op 1: h.1, h.1, h.1, h.1, h.1, h.1, h.1, h.1 and 2 more");
}

/// The plan above with the value at a JSON pointer replaced, or removed where `value` is empty.
std::string edited(const std::string& pointer, const std::string& value) {
  nlohmann::json plan = nlohmann::json::parse(plan_text);
  const nlohmann::json::json_pointer place(pointer);
  if (value.empty()) {
    plan[place.parent_pointer()].erase(place.back());
  } else {
    plan[place] = nlohmann::json::parse(value);
  }
  return plan.dump();
}

class BadPlanFile : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};
TEST_P(BadPlanFile, NamesThePlace) {
  const auto& [pointer, value, part] = GetParam();
  expect_rejected([&, &pointer = pointer, &value = value] { parse_plan(edited(pointer, value)); }, {part});
}
INSTANTIATE_TEST_SUITE_P(
    ParsePlan, BadPlanFile,
    ::testing::Values(
        std::tuple{"/format", "", "plan: got no \"format\""},
        std::tuple{"/format", "\"dreamddp-profile/1\"", "plan: format: got \"dreamddp-profile/1\""},
        std::tuple{"/planner", "1", "plan: planner: got 1"},
        std::tuple{"/periods", "1", "the unknown key \"periods\""},
        std::tuple{"/period", "", "plan: got no \"period\""}, std::tuple{"/period", "0", "period: got 0"},
        std::tuple{"/period", "-1", "period: got -1"}, std::tuple{"/period", "1.5", "period: got 1.5"},
        std::tuple{"/period", "1000001", "period: got 1000001; expected 1 to 1000000"},
        std::tuple{"/period", "1e19", "period: got 1e+19"}, std::tuple{"/period", "null", "period: got null"},
        std::tuple{"/period", "4", "ops[1] (wte): launch: iteration: got 4; expected 0 to 3"},
        std::tuple{"/layers", "", "plan: got no \"layers\""}, std::tuple{"/layers", "[]", "layers: got none"},
        std::tuple{"/layers", "{}", "layers: got an object"},
        std::tuple{"/layers/1", "7", "layers[1]: got 7"},
        std::tuple{"/layers/1", "\"\"", "layers[1]: got \"\""},
        std::tuple{"/layers/1", "\"wte\"", "layers[1]: got \"wte\" for the second time"},
        std::tuple{"/layers/3", "\"wte\"", "layers[3]: got \"wte\" for the second time"},
        std::tuple{"/ops", "", "plan: got no \"ops\""},
        std::tuple{"/ops", "3", "ops: got 3; expected an array"},
        std::tuple{"/ops/1", "3", "ops[1]: got 3; expected an object"},
        std::tuple{"/ops/1/name", "\"x\"", "ops[1]: got the unknown key \"name\""},
        std::tuple{"/ops/1/quantity", "", "ops[1]: got no \"quantity\""},
        std::tuple{"/ops/1/quantity", "\"weights\"", "ops[1]: quantity: got \"weights\""},
        std::tuple{"/ops/1/segments", "", "ops[1]: got no \"segments\""},
        std::tuple{"/ops/1/segments", "[]", "ops[1] (): segments: got none"},
        std::tuple{"/ops/1/segments", "{}", "ops[1]: segments: got an object"},
        std::tuple{"/ops/1/segments/0", "\"wte\"", "ops[1]: segments[0]: got \"wte\"; expected an object"},
        std::tuple{"/ops/1/segments/0/layer", "", "ops[1]: segments[0]: got no \"layer\""},
        std::tuple{"/ops/1/segments/0/layer", "\"h.9\"", "ops[1]: segments[0]: layer: got \"h.9\""},
        std::tuple{"/ops/1/segments/0/size", "1", "ops[1]: segments[0]: got the unknown key \"size\""},
        std::tuple{"/ops/1/segments/0/begin", "1",
                   "ops[1] (wte[1:1]): segments: got begin 1 and end 1 for 'wte'"},
        std::tuple{"/ops/1/segments/0/begin", "-0.5", "ops[1]: segments[0]: begin: got -0.5"},
        std::tuple{"/ops/1/segments/0/end", "0", "got begin 0 and end 0"},
        std::tuple{"/ops/1/segments/0/end", "1.5", "got begin 0 and end 1.5"},
        std::tuple{"/ops/1/segments/0/end", "null", "ops[1]: segments[0]: end: got null"},
        std::tuple{"/ops/1/launch", "", "ops[1]: got no \"launch\""},
        std::tuple{"/ops/1/launch", "[]", "ops[1]: launch: got an array"},
        std::tuple{"/ops/1/launch/before", "\"step\"",
                   "ops[1]: launch: got the unknown key \"before\"; expected no other keys than iteration, "
                   "after, layer"},
        std::tuple{"/ops/1/launch/after", "", "ops[1]: launch: got no \"after\""},
        std::tuple{"/ops/1/launch/after", "\"epoch\"", "ops[1]: launch: after: got \"epoch\""},
        std::tuple{"/ops/1/launch/layer", "\"wte\"", "ops[1]: launch: got a layer with a step"},
        std::tuple{"/ops/0/launch/layer", "", "ops[0]: launch: got no \"layer\""},
        std::tuple{"/ops/0/launch/layer", "\"h\"", "ops[0]: launch: layer: got \"h\""},
        std::tuple{"/ops/1/launch/iteration", "", "ops[1]: launch: got no \"iteration\""},
        std::tuple{"/ops/1/launch/iteration", "5", "ops[1] (wte): launch: iteration: got 5; expected 0 to 4"},
        std::tuple{"/ops/1/launch/iteration", "-1", "ops[1]: launch: iteration: got -1"},
        std::tuple{"/ops/1/deadline", "", "ops[1]: got no \"deadline\""},
        std::tuple{"/ops/1/deadline/before", "\"backward\"", "ops[1]: deadline: before: got \"backward\""},
        std::tuple{"/ops/1/deadline/after", "\"step\"", "ops[1]: deadline: got the unknown key \"after\""},
        std::tuple{"/ops/1/deadline/iteration", "3",
                   "ops[1] (wte): deadline: iteration: got 3; expected 4 to 10"},
        std::tuple{"/ops/1/deadline/iteration", "11",
                   "ops[1] (wte): deadline: iteration: got 11; expected 4 to 10"},
        std::tuple{"/ops/0/deadline/iteration", "6",
                   "ops[0] (h.2, h.1[0:0.5]): deadline: iteration: got 6"}));

TEST(ParsePlan, SyntaxErrorsHaveAPosition) {
  expect_rejected([] { parse_plan("{\"format\": \"dreamddp-plan/1\",\n"); }, {"plan, line 2, column 1"});
  for (const std::string token : {"NaN", "Infinity", "-Infinity", "1e400"}) {
    std::string text = plan_text;
    text.replace(text.find("0.5"), 3, token);
    expect_rejected([&] { parse_plan(text); }, {"ops[0]: segments[1]: end: got " + token});
  }
}

TEST(PlanToJson, RejectsWhatCouldNotBeReadBack) {
  Plan plan = parse_plan(plan_text);
  plan.ops[0].segments[0].layer = 3;
  expect_rejected([&] { to_json(plan); }, {"ops[0] (layer 3, h.1[0:0.5]): segments: got layer 3", "0 to 2"});
  plan = parse_plan(plan_text);
  plan.planner = "\xff";
  expect_rejected([&] { to_json(plan); }, {"planner", "UTF-8"});
}

TEST(ReferencePlans, AreValidForTheirProfilesAndRoundTrip) {
  const nlohmann::json file = nlohmann::json::parse(testing::read_test_data("timelines.json"));
  ASSERT_EQ(file["timelines"].size(), 13u);
  for (const nlohmann::json& timeline : file["timelines"]) {
    SCOPED_TRACE(timeline["what"].get<std::string>());
    const Profile profile = parse_profile(timeline["profile"].dump());
    const Plan plan = parse_plan(timeline["plan"].dump());
    EXPECT_NO_THROW(validate(plan, profile));
    EXPECT_EQ(parse_plan(to_json(plan)), plan);
    EXPECT_EQ(parse_profile(to_json(profile)), profile);
    EXPECT_DOUBLE_EQ(compute_seconds(profile), timeline["expected"]["compute_seconds"].get<double>());
  }
}

}  // namespace
}  // namespace dreamddp
