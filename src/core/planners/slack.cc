#include "core/planners/slack.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace dreamddp {

Profile with_slack(Profile profile, double slack) {
  const double lost = slack * compute_seconds(profile);
  double rest = lost;
  for (Layer& layer : profile.layers) {
    const double seconds = std::min(rest, layer.forward_seconds);
    layer.forward_seconds -= seconds;
    rest -= seconds;
  }
  rest = lost;
  const std::vector<std::size_t> sequence = backward_sequence(profile);
  for (auto l = sequence.rbegin(); l != sequence.rend(); ++l) {
    Layer& layer = profile.layers[*l];
    const double seconds = std::min(rest, layer.backward_seconds);
    layer.backward_seconds -= seconds;
    rest -= seconds;
  }
  return profile;
}

}  // namespace dreamddp
