// Plans with fused updates, made by the planners of averages in place. Design section 3.
#pragma once

#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// A profile whose plans in place fuse() makes fused ones of: layers are read until they are stepped, and the
/// time of the step is that of a layer without parameters in front of all others, so that the forward window
/// covers it.
Profile before_fusing(const Profile& profile);

/// The plan in place for before_fusing(profile) as a fused one for the profile: what ends with the step lasts
/// until the next first read, and what begins with the step begins when the backward has ended. It takes no
/// longer: the ops are the same, in the same order, and all that compute waits for is due no earlier.
/// @pre no coordinate is in both windows between two forwards
Plan fuse(Plan plan, const Profile& profile);

/// The deadline of an average in place of the layer that is launched in the backward of this iteration.
Event end_of_window(std::size_t layer, std::int64_t iteration, Update update);

}  // namespace dreamddp
