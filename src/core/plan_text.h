// How errors name the parts of a plan.
#pragma once

#include <cstddef>
#include <string>

#include "dreamddp/plan.h"

namespace dreamddp {

/// "h.1" or "h.1[0:0.5]"
std::string segment_text(const Plan& plan, const Segment& segment);

/// "ops[3] (h.2, h.1[0:0.5])", long lists cut short. Segments may name layers that the plan does not have.
std::string op_place(const Plan& plan, std::size_t op);

/// "after backward 'h.1' of iteration 0"
std::string event_text(const Plan& plan, const Event& event);

}  // namespace dreamddp
