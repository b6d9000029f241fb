#include "dreamddp/planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/decimal.h"
#include "core/planners/algorithms.h"
#include "core/planners/fused.h"
#include "core/planners/slack.h"
#include "dreamddp/bound.h"
#include "dreamddp/bubbles.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr double largest_slack = 0.5;

constexpr std::array<Planner, 10> all_planners{{
    {"ssgd", "gradients of all layers after the backward, every iteration", plan_ssgd, Quantity::gradients},
    {"wfbp", "each layer's gradient as soon as it is ready, every iteration", plan_wfbp, Quantity::gradients},
    {"ddp", "gradients in the buckets of PyTorch's DistributedDataParallel, every iteration", plan_ddp,
     Quantity::gradients},
    {"asc-wfbp", "gradients merged into ops so that as little as possible is exposed, every iteration",
     plan_asc_wfbp, Quantity::gradients},
    {"local-sgd", "all parameters after every H-th step", plan_local_sgd, Quantity::parameters, true},
    {"equal-count", "the same number of layers in every iteration, during the backward", plan_equal_count,
     Quantity::parameters, true},
    {"dreamddp", "the published search: a sequential partition, during the backward, bubbles filled",
     plan_dreamddp, Quantity::parameters, true},
    {"sequential", "the best sequential partition, during the backward", plan_sequential},
    {"brute-force", "the best sequential partition by exhaustive search, for at most 20 layers",
     plan_brute_force},
    {"balanced", "parts of the model spread over the iterations so that compute hides them", plan_balanced,
     Quantity::parameters, true},
}};

void check_period(std::int64_t period, const char* field) {
  if (period >= 1 && period <= longest_period) return;
  reject({.field = field,
          .value = std::to_string(period),
          .allowed = "a whole number from 1 to " + std::to_string(longest_period),
          .remedy = "Give the number of iterations in which every parameter is averaged once."});
}

void check_slack(double slack) {
  if (slack >= 0 && slack <= largest_slack) return;
  reject({.field = "slack",
          .value = shortest_text(slack),
          .allowed = "a fraction from 0 to 0.5",
          .remedy = "Give 0.01 to leave 1% of the compute time free in every window."});
}

void check(const PlanOptions& options) {
  check_period(options.period, "period");
  if (options.staging_bytes < 0) {
    reject({.field = "staging_bytes",
            .value = std::to_string(options.staging_bytes),
            .allowed = "a number of bytes of at least 0",
            .remedy = "Give 0 to hold no averages."});
  }
  if (options.max_delay < 0) {
    reject({.field = "max_delay",
            .value = std::to_string(options.max_delay),
            .allowed = "a number of steps of at least 0",
            .remedy = "Give 0 to carry no averages over a step."});
  }
  check_slack(options.slack);
  if (options.search.max_nodes < 1) {
    reject({.field = "max_nodes",
            .value = std::to_string(options.search.max_nodes),
            .allowed = "a number of nodes of at least 1",
            .remedy = "Give 1 for the first complete solution, more for better ones."});
  }
  if (options.search.max_seconds && !(*options.search.max_seconds >= 0)) {
    reject({.field = "max_seconds",
            .value = shortest_text(*options.search.max_seconds),
            .allowed = "a time of at least 0",
            .remedy = "Give 0 for the first complete solution, or none for no limit."});
  }
}

void check_fused(const Planner& planner, const PlanOptions& options) {
  if (!planner.can_fuse) {
    std::string able;
    for (const Planner& other : all_planners) {
      if (other.can_fuse) able += (able.empty() ? "" : ", ") + std::string(other.name);
    }
    reject({.field = "planner with fused updates",
            .value = "'" + std::string(planner.name) + "'",
            .allowed = "one of " + able,
            .remedy = "Take one of them, or let the optimizer step behind the backward."});
  }
  if (options.max_delay > 0) {
    reject({.field = "max_delay with fused updates",
            .value = std::to_string(options.max_delay),
            .allowed = "0: averages that cross a step cannot be fused with it",
            .remedy = "Give 0, or let the optimizer step behind the backward."});
  }
}

Plan make_fused(const Planner& algorithm, const Profile& profile, const Link& link, PlanOptions options) {
  options.staging_bytes = std::min(options.staging_bytes, default_staging_bytes);  // nothing is held
  return fuse(algorithm.make(before_fusing(profile), link, options), profile);
}

}  // namespace

std::span<const Planner> planners() { return all_planners; }

const Planner& find_planner(std::string_view name) {
  std::string known;
  for (const Planner& planner : all_planners) {
    if (planner.name == name) return planner;
    known += (known.empty() ? "" : ", ") + std::string(planner.name);
  }
  reject({.field = "planner",
          .value = "'" + std::string(name) + "'",
          .allowed = "one of " + known,
          .remedy = "Take one of them, in lower case; 'balanced' is the default."});
}

Plan make_plan(std::string_view planner, const Profile& profile, const Link& link,
               const PlanOptions& options) {
  const Planner& algorithm = find_planner(planner);
  validate(profile);
  validate(link);
  check(options);
  if (options.search_statistics != nullptr) options.search_statistics->reset();
  const Profile planned = with_slack(profile, options.slack);
  const bool is_fused = options.update == Update::fused;
  if (is_fused) check_fused(algorithm, options);
  const Plan plan =
      is_fused ? make_fused(algorithm, planned, link, options) : algorithm.make(planned, link, options);
  return options.fill_bubbles ? fill_bubbles(plan, planned, link, options.drift) : plan;
}

std::int64_t choose_period(const Profile& given, const Link& link, const PeriodOptions& options) {
  validate(given);
  validate(link);
  check_period(options.max_period, "max_period");
  check_slack(options.slack);
  if (!(options.margin >= 0) || !std::isfinite(options.margin)) {
    reject({.field = "margin",
            .value = shortest_text(options.margin),
            .allowed = "a fraction of at least 0",
            .remedy = "Give 0.02 to let an iteration take 2% longer than its compute."});
  }
  const Profile profile = with_slack(given, options.slack);
  const std::vector<double> transfers = layer_transfer_seconds(profile, link);
  const double allowed_seconds = (1 + options.margin) * compute_seconds(profile);
  const auto bound_with = [&](std::int64_t period, std::int64_t in_flight) {
    return bound_seconds(profile, transfers,
                         {.period = period,
                          .latency_seconds = link.latency_seconds,
                          .in_flight = in_flight,
                          .update = options.update});
  };
  // Note [Periods that are too short]
  //
  // With several ops in flight the bound is a maximum over terms max(0, t/H - cover) and (t - cover)/H with
  // cover < 0, all of which fall with H: a binary search finds the smallest H. With one in flight it is also
  // at least what a search for weights finds, perhaps better for one H than for the next, and so it need not
  // fall. But it is never below the bound with several: what is too short for that one is too short. From
  // there on every H is tried. Rounding may disturb the order of nearly equal terms, hence a little more is
  // allowed at first.
  const std::int64_t several = std::max<std::int64_t>(link.in_flight, 2);
  std::int64_t period = 1;
  std::int64_t high = options.max_period;
  while (period < high) {
    const std::int64_t middle = period + (high - period) / 2;
    if (bound_with(middle, several) <= allowed_seconds * (1 + 1e-12)) {
      high = middle;
    } else {
      period = middle + 1;
    }
  }
  while (period < options.max_period && bound_with(period, link.in_flight) > allowed_seconds) ++period;
  return period;
}

}  // namespace dreamddp
