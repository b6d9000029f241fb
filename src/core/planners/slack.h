// Room for iterations that take longer on one rank than on another.
#pragma once

#include "dreamddp/profile.h"

namespace dreamddp {

/// The profile with every window shorter by `slack` times C: D_l by what the first layers of the forward
/// lose, G_l by what the last layers of the backward lose. A plan for it is valid for the given profile, and
/// there hides what it hides here even where compute runs ahead by that much.
Profile with_slack(Profile profile, double slack);

}  // namespace dreamddp
