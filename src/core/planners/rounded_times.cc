#include "core/planners/rounded_times.h"

#include <cmath>

namespace dreamddp {
namespace {

double round_to_30_bits(double seconds) {
  int exponent = 0;
  const double fraction = std::frexp(seconds, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 30)), exponent - 30);
}

}  // namespace

Profile with_rounded_times(Profile profile) {
  profile.step_seconds = round_to_30_bits(profile.step_seconds);
  for (Layer& layer : profile.layers) {
    layer.forward_seconds = round_to_30_bits(layer.forward_seconds);
    layer.backward_seconds = round_to_30_bits(layer.backward_seconds);
    if (layer.transfer_seconds) layer.transfer_seconds = round_to_30_bits(*layer.transfer_seconds);
  }
  return profile;
}

}  // namespace dreamddp
