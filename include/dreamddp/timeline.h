// What happened when: compute spans and link spans, from the simulator or from a real run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dreamddp {

enum class SpanKind { forward, backward, step, wait, link };

struct Span {
  SpanKind kind = SpanKind::forward;
  std::string name;  ///< the layer, or the op ("op 3: h.2, h.1[0:0.5]")
  int rank = 0;
  std::int64_t iteration = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct Timeline {
  std::vector<Span> spans;  ///< ordered by begin within a rank and kind
};

/// The Chrome trace format (JSON), which Perfetto opens: one process per rank, with the tracks "compute",
/// "wait" and "link"; link spans that overlap get tracks of their own ("link 2", ..). Times are in
/// microseconds.
/// @throws std::invalid_argument for a span that is not finite or ends before it begins
std::string to_chrome_trace(const Timeline& timeline);

}  // namespace dreamddp
