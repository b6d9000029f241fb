#include "dreamddp/timeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/expect_rejected.h"

namespace dreamddp {
namespace {

using nlohmann::json;
using testing::expect_rejected;

/// Track names by (rank, track).
std::map<std::pair<int, int>, std::string> tracks_of(const json& trace) {
  std::map<std::pair<int, int>, std::string> tracks;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") {
      tracks[{event["pid"], event["tid"]}] = event["args"]["name"];
    }
  }
  return tracks;
}

/// (name, track, begin, duration) of every span.
std::set<std::tuple<std::string, std::string, double, double>> spans_of(const json& trace) {
  auto tracks = tracks_of(trace);
  std::set<std::tuple<std::string, std::string, double, double>> spans;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      spans.emplace(event["name"], tracks.at({event["pid"], event["tid"]}), event["ts"], event["dur"]);
    }
  }
  return spans;
}

TEST(ChromeTrace, HasNamedTracksAndMicroseconds) {
  const Timeline timeline{{{SpanKind::forward, "a", 0, 3, 0, 0.5},
                           {SpanKind::backward, "a", 0, 3, 0.5, 1},
                           {SpanKind::wait, "op 0: a", 0, 3, 1, 1.25},
                           {SpanKind::step, "", 0, 3, 1.25, 1.5},
                           {SpanKind::link, "op 0: a", 0, 3, 0.75, 1.25}}};
  const json trace = json::parse(to_chrome_trace(timeline));
  EXPECT_EQ(spans_of(trace), (std::set<std::tuple<std::string, std::string, double, double>>{
                                 {"forward a", "compute", 0, 5e5},
                                 {"backward a", "compute", 5e5, 5e5},
                                 {"wait op 0: a", "wait", 1e6, 2.5e5},
                                 {"step", "compute", 1.25e6, 2.5e5},
                                 {"op 0: a", "link", 7.5e5, 5e5}}));
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      EXPECT_EQ(event["args"]["iteration"], 3);
    }
  }
}

TEST(ChromeTrace, GivesOverlappingLinkSpansTracksOfTheirOwn) {
  const Timeline timeline{{{SpanKind::link, "op 0", 0, 0, 0, 2},
                           {SpanKind::link, "op 1", 0, 0, 1, 3},
                           {SpanKind::link, "op 2", 0, 0, 2, 4},
                           {SpanKind::link, "op 3", 0, 0, 2.5, 5},
                           {SpanKind::link, "op 4", 0, 0, 3, 3.5}}};
  const json trace = json::parse(to_chrome_trace(timeline));
  std::map<std::string, std::string> track_of;
  for (const auto& [name, track, begin, duration] : spans_of(trace)) {
    track_of[name] = track;
  }
  EXPECT_EQ(
      track_of,
      (std::map<std::string, std::string>{
          {"op 0", "link"}, {"op 1", "link 2"}, {"op 2", "link"}, {"op 3", "link 3"}, {"op 4", "link 2"}}));
}

TEST(ChromeTrace, MakesEveryRankAProcess) {
  const Timeline timeline{{{SpanKind::forward, "a", 2, 0, 0, 1}, {SpanKind::forward, "a", 0, 0, 0, 1}}};
  const json trace = json::parse(to_chrome_trace(timeline));
  std::map<int, std::string> processes;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") {
      processes[event["pid"]] = event["args"]["name"];
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0"}, {2, "rank 2"}}));
  EXPECT_EQ(tracks_of(trace).size(), 6u);
}

TEST(ChromeTrace, OfNothingIsEmpty) { EXPECT_TRUE(json::parse(to_chrome_trace({}))["traceEvents"].empty()); }

TEST(ChromeTrace, ShowsNamesInAnyEncoding) {
  const json trace = json::parse(to_chrome_trace({{{SpanKind::link, "op 0: \"caf\xe9\"", 0, 0, 0, 1}}}));
  EXPECT_EQ(spans_of(trace).size(), 1u);
}

TEST(ChromeTrace, RejectsSpansThatAreNone) {
  expect_rejected(
      [] {
        to_chrome_trace({{{SpanKind::forward, "a", 0, 0, 1, 0.5}}});
      },
      {"forward a", "1 to 0.5 s"});
  expect_rejected([] { to_chrome_trace({{{SpanKind::link, "op 3", 0, 0, 0, std::nan("")}}}); }, {"op 3"});
}

}  // namespace
}  // namespace dreamddp
