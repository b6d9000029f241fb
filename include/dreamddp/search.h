// Searches for a plan: how far they may go, and how far they went. Design section 7.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace dreamddp {

/// The three prunings of the published search. Without them it is exhaustive.
struct Prunings {
  bool at_least_one = true;      ///< an empty set takes the next layer
  bool optimal_hiding = true;    ///< a set that still hides with the next layer takes it
  bool delayed_overflow = true;  ///< a set that does not hide takes no more
};

struct SearchOptions {
  /// At most so many nodes are visited, beyond those of the first complete solution: tens of milliseconds
  /// per million. The same limit gives the same plan on every machine.
  std::int64_t max_nodes = 10'000'000;
  /// At most so many seconds, beyond the first complete solution. Plans then depend on the machine.
  std::optional<double> max_seconds = {};
  Prunings prunings = {};
  /// Called every few milliseconds where set, also by `sequential`; what it throws ends the search.
  std::function<void()> check_interrupt = {};
};

/// What a search did.
struct SearchStatistics {
  std::int64_t nodes = 0;               ///< states (next layer, set that is being filled) that were visited
  std::int64_t complete_solutions = 0;  ///< partitions of all layers among them
  double seconds = 0;                   ///< of wall-clock time
  bool complete = true;  ///< whether it ended by itself; else the plan is the best found so far
};

}  // namespace dreamddp
