// The link between workers. Design section 4.
#pragma once

#include <optional>
#include <vector>

#include "dreamddp/profile.h"

namespace dreamddp {

struct Link {
  /// Absent: the profile's measured transfer times are used.
  std::optional<double> bandwidth_bytes_per_second;
  double latency_seconds = 0;  ///< a: added to every op
  int workers = 2;             ///< K
  int in_flight = 1;           ///< m: ops that may be on the link at once
};

/// @throws std::invalid_argument for a bandwidth or latency out of range, fewer than one worker, or
///   in_flight below 1
void validate(const Link& link);

/// Link time of averaging num_bytes over K workers with a ring: 2(K-1)/K * n / bandwidth, without latency.
/// @pre link.bandwidth_bytes_per_second is set
double transfer_seconds(double num_bytes, const Link& link);

/// c_l for every layer: from the bandwidth where one is given, else the profile's own transfer times; 0 with
/// one worker.
/// @throws std::invalid_argument naming the layer whose size is unknown where a bandwidth is given, or whose
///   transfer time is unknown where none is
std::vector<double> layer_transfer_seconds(const Profile& profile, const Link& link);

}  // namespace dreamddp
