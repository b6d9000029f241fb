// The published depth-first search for a sequential partition. Design section 7.
#pragma once

#include "core/planners/sequential_partition.h"
#include "dreamddp/search.h"

namespace dreamddp {

struct SearchResult {
  SetBegins begins;            ///< of the best complete solution
  double exposed_seconds = 0;  ///< of a period, its objective
  SearchStatistics statistics;
};

/// Of the complete solutions the first one with the least objective, or of those found within the limits. The
/// first complete solution is always found.
SearchResult published_search(const SequentialProblem& problem, const SearchOptions& options);

}  // namespace dreamddp
