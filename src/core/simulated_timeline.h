// The spans of a simulated period.
#pragma once

#include "core/simulation_run.h"
#include "dreamddp/timeline.h"

namespace dreamddp {

/// Runs one more period and writes down its compute, its waits, and the link spans of the ops that it
/// launches. Time 0 is the beginning of the period.
Timeline simulated_timeline(const Plan& plan, const Profile& profile, const ActionTape& tape,
                            VirtualClock& clock);

}  // namespace dreamddp
