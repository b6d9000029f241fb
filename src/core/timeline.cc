#include "dreamddp/timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/decimal.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

using Json = nlohmann::ordered_json;

// Tracks of a rank: threads of its process in the trace format. "link 2", .. follow the first link track.
constexpr int compute_track = 0;
constexpr int wait_track = 1;
constexpr int first_link_track = 2;

std::string_view kind_name(SpanKind kind) {
  switch (kind) {
    case SpanKind::forward:
      return "forward";
    case SpanKind::backward:
      return "backward";
    case SpanKind::step:
      return "step";
    case SpanKind::wait:
      return "wait";
    case SpanKind::link:
      break;
  }
  return "link";
}

std::string event_name(const Span& span) {
  if (span.kind == SpanKind::link && !span.name.empty()) {
    return span.name;
  }
  return std::string(kind_name(span.kind)) + (span.name.empty() ? "" : " " + span.name);
}

Json metadata(const char* what, int rank, int track, Json value) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", std::move(value)}};
}

void name_track(Json& events, int rank, int track, const std::string& name) {
  events.push_back(metadata("thread_name", rank, track, {{"name", name}}));
  events.push_back(metadata("thread_sort_index", rank, track, {{"sort_index", track}}));
}

Json span_event(const Span& span, int track) {
  return {{"ph", "X"},
          {"name", event_name(span)},
          {"cat", kind_name(span.kind)},
          {"pid", span.rank},
          {"tid", track},
          {"ts", span.begin_seconds * 1e6},
          {"dur", (span.end_seconds - span.begin_seconds) * 1e6},
          {"args", {{"iteration", span.iteration}}}};
}

void validate_span(const Span& span) {
  if (!std::isfinite(span.begin_seconds) || !std::isfinite(span.end_seconds) ||
      span.end_seconds < span.begin_seconds) {
    reject({"timeline: " + event_name(span),
            shortest_text(span.begin_seconds) + " to " + shortest_text(span.end_seconds) + " s",
            "a finite span that does not end before it begins", "Correct its times, or leave the span out"});
  }
}

/// The events of one rank. Its link spans go to the first link track that is free.
void add_rank(Json& events, int rank, std::vector<const Span*> spans) {
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span* a, const Span* b) { return a->begin_seconds < b->begin_seconds; });
  std::vector<double> link_free_at;
  Json rank_events = Json::array();
  for (const Span* span : spans) {
    int track = span->kind == SpanKind::wait ? wait_track : compute_track;
    if (span->kind == SpanKind::link) {
      const auto free = std::find_if(link_free_at.begin(), link_free_at.end(),
                                     [&](double at) { return at <= span->begin_seconds; });
      track = first_link_track + static_cast<int>(free - link_free_at.begin());
      if (free == link_free_at.end()) {
        link_free_at.push_back(span->end_seconds);
      } else {
        *free = span->end_seconds;
      }
    }
    rank_events.push_back(span_event(*span, track));
  }
  events.push_back(metadata("process_name", rank, 0, {{"name", "rank " + std::to_string(rank)}}));
  events.push_back(metadata("process_sort_index", rank, 0, {{"sort_index", rank}}));
  name_track(events, rank, compute_track, "compute");
  name_track(events, rank, wait_track, "wait");
  for (std::size_t i = 0; i < std::max<std::size_t>(1, link_free_at.size()); ++i) {
    name_track(events, rank, first_link_track + static_cast<int>(i),
               i == 0 ? "link" : "link " + std::to_string(i + 1));
  }
  for (Json& event : rank_events) {
    events.push_back(std::move(event));
  }
}

}  // namespace

std::string to_chrome_trace(const Timeline& timeline) {
  std::map<int, std::vector<const Span*>> spans_of;  // by rank
  for (const Span& span : timeline.spans) {
    validate_span(span);
    spans_of[span.rank].push_back(&span);
  }
  Json events = Json::array();
  for (auto& [rank, spans] : spans_of) {
    add_rank(events, rank, std::move(spans));
  }
  const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dreamddp
