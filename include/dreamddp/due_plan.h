// The ops of one iteration in which a policy has some of the layers averaged. Design section 10.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// The profile of the same computation in which only these layers have parameters.
/// @param is_due one per layer
/// @throws std::invalid_argument where `is_due` has another length than the profile
Profile with_due_layers(Profile profile, const std::vector<bool>& is_due);

/// A plan of period 1, by the planner `balanced`, that averages the layers that are due and no others: whole,
/// in place, in the windows that hide them best, neighbours together where that saves time. It is valid for
/// with_due_layers(); without layers that are due it has no ops. The same arguments give the same plan on
/// every machine.
/// @throws std::invalid_argument for a profile or link out of range, or `is_due` of another length
Plan plan_due_layers(const Profile& profile, const Link& link, const std::vector<bool>& is_due,
                     double slack = 0);

/// What becomes of a layer in an iteration.
enum class Treatment {
  skipped,  ///< it is not averaged
  alone,    ///< ops of its own average it
  merged,   ///< an op averages it together with other layers
};

std::string_view treatment_name(Treatment treatment);

/// For every layer of the plan.
std::vector<Treatment> treatments(const Plan& plan);

}  // namespace dreamddp
