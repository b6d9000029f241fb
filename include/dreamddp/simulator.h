// How long a plan takes: the exact time model of design section 4.
#pragma once

#include <cstdint>
#include <optional>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"
#include "dreamddp/timeline.h"

namespace dreamddp {

inline constexpr std::int64_t default_staging_bytes = std::int64_t{8} << 20;

struct SimulationOptions {
  std::int64_t staging_bytes = default_staging_bytes;  ///< size of the staging ring, for the report
  Timeline* timeline = nullptr;  ///< filled with the spans of the last period, from time 0, when not null
};

/// Means per iteration in the steady state.
struct Simulation {
  double iteration_seconds = 0;
  double compute_seconds = 0;  ///< C
  double link_seconds = 0;     ///< sum of x_i over the ops of an iteration, without latency
  double exposed_seconds = 0;  ///< compute waiting for the link
  double limit_seconds = 0;    ///< max(C, link): no plan with this traffic can beat it
  double bound_seconds = 0;    ///< bound_seconds() at the plan's period, for the most permissive mode it uses
  double gap = 0;              ///< iteration over bound, minus 1
  double ops_per_iteration = 0;
  std::int64_t staging_bytes = 0;  ///< ring plus what held and carried ops book at most at one time
  std::optional<double> bytes_per_iteration;  ///< averaged per worker; absent where a size is unknown
};

/// Runs the plan period after period on a virtual clock until the time of a period is steady.
///
/// start_i = max(ready_i, start_{i-1} + x_{i-1}, finish_{i-m}); finish_i = start_i + x_i + a.
/// @throws std::invalid_argument where plan, profile or link are not valid or do not fit together
Simulation simulate(const Plan& plan, const Profile& profile, const Link& link,
                    const SimulationOptions& options = {});

}  // namespace dreamddp
