// The same plan whatever time unit a profile file is written in.
#pragma once

#include "dreamddp/profile.h"

namespace dreamddp {

/// Times rounded to nine digits: 0.1 ms and 0.0001 s differ in the last bits when they have been read.
Profile with_rounded_times(Profile profile);

}  // namespace dreamddp
