// The algorithms behind make_plan(), one per source file. Design section 6.
//
// Each takes a profile, a link and options that are valid and returns a valid plan.
#pragma once

#include <string_view>
#include <vector>

#include "dreamddp/planner.h"

namespace dreamddp {

Plan plan_ssgd(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_ddp(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_wfbp(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_local_sgd(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_equal_count(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_balanced(const Profile& profile, const Link& link, const PlanOptions& options);

/// A plan for the layers of the profile that has no ops yet.
Plan plan_without_ops(std::string_view planner, const Profile& profile, std::int64_t period);

/// The layers that have parameters, in forward order: all but those with num_bytes 0.
std::vector<std::size_t> layers_with_parameters(const Profile& profile);

/// The gradients of these layers, averaged between the backward of the last of them, and the step.
/// @param layers not empty, in the order of the backward
Op gradient_op(const std::vector<std::size_t>& layers);

}  // namespace dreamddp
