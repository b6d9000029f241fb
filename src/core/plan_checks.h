// The parts of plan validation.
#pragma once

#include "dreamddp/plan.h"

namespace dreamddp {

/// Rejects names of layers that are empty, doubled or not UTF-8, and no layers.
void validate_layer_names(const Plan& plan);

/// Rejects what is wrong whatever the profile: names, fractions, kinds of events, iterations out of range.
void validate_alone(const Plan& plan);

/// Rejects two ops in flight on one coordinate, within a period or across its end, and a coordinate of a
/// layer with parameters that a period never averages.
/// @pre each op alone is valid for the profile
void validate_coordinates(const Plan& plan, const Profile& profile, const EventOrder& order);

}  // namespace dreamddp
