// The published depth-first search for a sequential partition. Design section 7.
#pragma once

#include <cstdint>

#include "core/planners/partition.h"
#include "dreamddp/planner.h"

namespace dreamddp {

/// The three prunings can be switched off to see what they are worth. With none of them the search visits
/// every partition.
struct PublishedSearchOptions {
  bool at_least_one = true;      ///< a set that is empty takes the next layer
  bool optimal_hiding = true;    ///< a set takes the next layer while its transfers stay hidden
  bool delayed_overflow = true;  ///< a set whose transfers do not hide takes no more
  std::int64_t max_nodes = 0;    ///< 0: no limit
  double max_seconds = 0;        ///< 0: no limit; with one the result depends on the machine
};

struct SearchResult {
  Partition partition;
  SearchStatistics statistics;
};

/// How many of the first layers each iteration can average, those of its own set aside, while its time stays
/// the same: the bubble filling of design section 7.
std::vector<std::size_t> fill_partition(const PartitionProblem& problem, const Partition& partition);

/// Layers are given out from the output side on; "hides" is judged with the start times of the transfers. Of
/// equally good partitions the first one found is kept. Where a limit ends the search before any partition is
/// complete, the rest goes to the set at hand.
SearchResult search_partition(const PartitionProblem& problem, const PublishedSearchOptions& options);

}  // namespace dreamddp
