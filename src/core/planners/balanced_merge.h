// From what a window averages to its ops. Design section 5.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "core/planners/balanced_problem.h"

namespace dreamddp::balanced {

/// Neighbouring pieces [begin, end) of a window that one op carries. It is ready, or due, when the first of
/// them is, the one with the least cover.
struct Group {
  std::size_t begin = 0;
  std::size_t end = 0;
  double seconds = 0;  ///< link time of the op, without latency
};

/// The ops of one window of one cycle.
struct Merged {
  std::vector<Group> groups;  ///< by rank
  double exposed = 0;         ///< seconds that compute waits for them, with nothing else on the link
  double seconds = 0;         ///< link time of all, without latency
};

/// Merges pieces into ops so that compute waits least, with as few ops as that allows.
///
/// With one op in flight the result is the best there is, up to 1% of a latency; with more it is a good one.
/// @param limit give up where compute would have to wait longer
/// @return whether it is within the limit; else `merged` is unspecified
bool merge(const Problem& problem, const std::vector<Piece>& pieces, Merged& merged,
           double limit = std::numeric_limits<double>::infinity());

/// Exposed seconds of one cycle by the time model of design section 4, both windows together.
double exposed_seconds(const Problem& problem, const Cycle& cycle, const std::array<Merged, 2>& merged);

}  // namespace dreamddp::balanced
