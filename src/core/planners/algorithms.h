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
Plan plan_asc_wfbp(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_local_sgd(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_equal_count(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_dreamddp(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_sequential(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_brute_force(const Profile& profile, const Link& link, const PlanOptions& options);
Plan plan_balanced(const Profile& profile, const Link& link, const PlanOptions& options);

/// A plan for the layers of the profile that has no ops yet.
Plan plan_without_ops(std::string_view planner, const Profile& profile, std::int64_t period);

/// The layers that have parameters, in forward order: all but those with num_bytes 0.
std::vector<std::size_t> layers_with_parameters(const Profile& profile);

/// When the gradient of a layer is complete: after its own backward, for a tied one also that of the other
/// layer.
struct ReadyGradient {
  std::size_t layer = 0;
  Event ready;
};

/// The gradients of the layers with parameters, in the order in which they become ready.
std::vector<ReadyGradient> ready_gradients(const Profile& profile);

/// Averages these gradients from when the last of them is ready until the step.
/// @param gradients not empty, in the order in which they become ready
Op gradient_op(const std::vector<ReadyGradient>& gradients);

}  // namespace dreamddp
