// Timelines that were worked out by hand: tests/data/timelines.json.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/test_data.h"
#include "dreamddp/bound.h"
#include "dreamddp/simulator.h"
#include "dreamddp/units.h"

namespace dreamddp {
namespace {

using nlohmann::json;
using testing::read_test_data;

struct WorkedTimeline {
  std::string what;
  Profile profile;
  Plan plan;
  Link link;
  json expected;
  double bound_seconds;
};

std::vector<WorkedTimeline> worked_timelines() {
  std::vector<WorkedTimeline> timelines;
  const json file = json::parse(read_test_data("timelines.json"));
  for (const json& entry : file.at("timelines")) {
    Link link;
    link.latency_seconds = parse_seconds(entry.at("latency").get<std::string>(), "latency");
    link.in_flight = entry.at("in_flight");
    timelines.push_back({entry.at("what"), parse_profile(entry.at("profile").dump()),
                         parse_plan(entry.at("plan").dump()), link, entry.at("expected"),
                         entry.at("bound_seconds")});
  }
  return timelines;
}

double total_seconds(const Timeline& timeline, SpanKind kind) {
  double seconds = 0;
  for (const Span& span : timeline.spans)
    if (span.kind == kind) seconds += span.end_seconds - span.begin_seconds;
  return seconds;
}

TEST(WorkedTimelines, AreSimulatedExactly) {
  const auto timelines = worked_timelines();
  ASSERT_EQ(timelines.size(), 13);
  for (const WorkedTimeline& timeline : timelines) {
    SCOPED_TRACE(timeline.what);
    const Simulation simulation = simulate(timeline.plan, timeline.profile, timeline.link);
    EXPECT_NEAR(simulation.iteration_seconds, timeline.expected.at("iteration_seconds"), 1e-12);
    EXPECT_NEAR(simulation.compute_seconds, timeline.expected.at("compute_seconds"), 1e-12);
    EXPECT_NEAR(simulation.link_seconds, timeline.expected.at("link_seconds"), 1e-12);
    EXPECT_NEAR(simulation.exposed_seconds, timeline.expected.at("exposed_seconds"), 1e-12);
  }
}

TEST(WorkedTimelines, HaveTheBoundOfInPlacePlans) {
  for (const WorkedTimeline& timeline : worked_timelines()) {
    SCOPED_TRACE(timeline.what);
    const auto transfer_seconds = layer_transfer_seconds(timeline.profile, timeline.link);
    EXPECT_NEAR(bound_seconds(timeline.profile, transfer_seconds, {.period = timeline.plan.period}),
                timeline.bound_seconds, 1e-12);
  }
}

TEST(WorkedTimelines, SpansAddUpToThePeriod) {
  for (const WorkedTimeline& worked : worked_timelines()) {
    SCOPED_TRACE(worked.what);
    Timeline timeline;
    const Simulation simulation = simulate(worked.plan, worked.profile, worked.link, {.timeline = &timeline});
    const auto period = static_cast<double>(worked.plan.period);
    const double compute = total_seconds(timeline, SpanKind::forward) +
                           total_seconds(timeline, SpanKind::backward) +
                           total_seconds(timeline, SpanKind::step);
    EXPECT_NEAR(compute, period * simulation.compute_seconds, 1e-12);
    EXPECT_NEAR(total_seconds(timeline, SpanKind::wait), period * simulation.exposed_seconds, 1e-12);
    const double latencies = static_cast<double>(worked.plan.ops.size()) * worked.link.latency_seconds;
    EXPECT_NEAR(total_seconds(timeline, SpanKind::link), period * simulation.link_seconds + latencies, 1e-12);
  }
}

}  // namespace
}  // namespace dreamddp
