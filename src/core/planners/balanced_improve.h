// Local moves that make a schedule better. Design section 5.
#pragma once

#include <cstdint>

#include "core/planners/balanced_schedule.h"

namespace dreamddp::balanced {

/// Moves pieces and ops to other windows while that lowers the cost.
/// @param max_work stops after about so many timed pieces, so that large models are planned in bounded time
void improve(const Problem& problem, Schedule& schedule, std::int64_t max_work);

}  // namespace dreamddp::balanced
