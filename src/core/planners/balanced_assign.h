// First assignments of layers to windows, for the search to start from. Design section 5.
#pragma once

#include <array>
#include <vector>

#include "core/planners/balanced_problem.h"

namespace dreamddp::balanced {

/// Segments of neighbouring layers that are to be averaged in the same window, the narrowest first.
using Part = std::vector<Segment>;

/// Every layer a part of its own.
std::vector<Part> whole_layers(const Problem& problem);

/// Cuts the model into parts of equal link time.
std::vector<Part> equal_parts(const Problem& problem, std::int64_t num_parts);

struct AssignRules {
  std::array<double, 2> exposed{};  ///< seconds that each window may be late, by window
  double latency = 0;               ///< booked for every part
  bool may_split = false;           ///< split a part that no window can take whole
};

/// Walks the parts from the tightest to the widest and gives each to the window with the most slack left.
Assignment assign(const Problem& problem, const std::vector<Part>& parts, const AssignRules& rules);

}  // namespace dreamddp::balanced
