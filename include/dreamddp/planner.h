// Algorithms that make plans. Design sections 5 to 7.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"
#include "dreamddp/search.h"
#include "dreamddp/simulator.h"

namespace dreamddp {

/// For plans that are carried out: iterations vary, and every rank waits for the slowest.
inline constexpr double training_slack = 0.01;

struct PlanOptions {
  std::int64_t period = 5;  ///< H; planners of gradients average in every iteration and take it as 1
  std::int64_t staging_bytes = default_staging_bytes;  ///< memory for the ring and for held averages
  std::int64_t max_delay = 0;      ///< steps that a carried average may cross; 0: none are carried
  Update update = Update::step;    ///< where fused, averages are in place, whatever staging_bytes
  double slack = 0;                ///< fraction of C by which windows are planned shorter than they are
  bool fill_bubbles = false;       ///< whether fill_bubbles() is applied to the plan
  std::vector<double> drift = {};  ///< per layer, for fill_bubbles(); empty: all are equal
  SearchOptions search = {};       ///< limits of `dreamddp`'s search, and interrupts
  /// Set to what the search did, or to nothing where the planner does not search, when not null.
  std::optional<SearchStatistics>* search_statistics = nullptr;
};

struct Planner {
  std::string_view name;
  std::string_view summary;  ///< one line for people
  Plan (*make)(const Profile&, const Link&, const PlanOptions&);
  Quantity quantity = Quantity::parameters;  ///< what its plans average
  bool can_fuse = false;                     ///< whether it makes plans with fused updates
};

/// All planners, in the order in which they are listed to people.
std::span<const Planner> planners();

/// @throws std::invalid_argument for an unknown name, listing all
const Planner& find_planner(std::string_view name);

/// Makes a plan with the planner of that name. The result is valid for the profile; the same arguments give
/// the same plan on every machine, unless a search is limited in seconds.
/// @throws std::invalid_argument for an unknown name, a profile, link or option out of range, and fused
///   updates where the planner cannot fuse them or averages may be carried
Plan make_plan(std::string_view planner, const Profile& profile, const Link& link,
               const PlanOptions& options);

struct PeriodOptions {
  double margin = 0.02;           ///< compute-bound within this fraction of C
  std::int64_t max_period = 100;  ///< the answer where even this one is not compute-bound
  double slack = 0;               ///< as in PlanOptions
  Update update = Update::step;   ///< as in PlanOptions
};

/// The smallest H for which bound_seconds() is at most (1 + margin) * C, both with windows shorter by the
/// slack. Design section 5.
std::int64_t choose_period(const Profile& profile, const Link& link, const PeriodOptions& options = {});

}  // namespace dreamddp
