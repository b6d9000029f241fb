// Algorithms that make plans. Design sections 5 to 7.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"
#include "dreamddp/simulator.h"

namespace dreamddp {

struct PlanOptions {
  std::int64_t period = 5;  ///< H; planners of gradients average in every iteration and take it as 1
  std::int64_t staging_bytes = default_staging_bytes;  ///< memory for the ring and for held averages
  std::int64_t max_delay = 0;  ///< steps that a carried average may cross; 0: none are carried
};

struct Planner {
  std::string_view name;
  std::string_view summary;  ///< one line for people
  Plan (*make)(const Profile&, const Link&, const PlanOptions&);
};

/// All planners, in the order in which they are listed to people.
std::span<const Planner> planners();

/// Makes a plan with the planner of that name. The result is valid for the profile; the same arguments give
/// the same plan on every machine.
/// @throws std::invalid_argument for an unknown name, or a profile, link or option out of range
Plan make_plan(std::string_view planner, const Profile& profile, const Link& link,
               const PlanOptions& options);

struct PeriodOptions {
  double margin = 0.02;           ///< compute-bound within this fraction of C
  std::int64_t max_period = 100;  ///< the answer where even this one is not compute-bound
};

/// The smallest H for which bound_seconds() is at most (1 + margin) * C. Design section 5.
std::int64_t choose_period(const Profile& profile, const Link& link, const PeriodOptions& options = {});

}  // namespace dreamddp
