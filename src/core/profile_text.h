// How errors name a layer of a profile.
#pragma once

#include <cstddef>
#include <string>

#include "dreamddp/profile.h"

namespace dreamddp {

/// "layers[2] 'h.0'"
std::string layer_place(const Profile& profile, std::size_t layer);

}  // namespace dreamddp
