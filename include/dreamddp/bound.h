// A lower bound on the iteration time of every plan. Design section 5.
#pragma once

#include <cstdint>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

struct BoundOptions {
  std::int64_t period = 1;         ///< H
  OpMode mode = OpMode::in_place;  ///< the most permissive mode that the plan uses
  double latency_seconds = 0;      ///< a
  std::int64_t in_flight = 1;      ///< m
  Update update = Update::step;    ///< of the plan; fused ones have no modes
};

/// C + max(0, sum c_l/H - (C - s), max_l(sum_{j<=l} c_j/H - D_l - G_l)) for in-place plans; without the
/// last term for plans that may hold averages; max(C, sum c_l/H) for plans that may carry them. Layers with a
/// last read other than their own backward are left out of the prefix sums.
///
/// A latency counts as often as no plan can avoid it: once in every iteration that averages something, and
/// for a prefix of layers once in every window that it uses. Where the latency does not fit into a window,
/// it is paid in one iteration of the period only. With one op in flight the latencies of all ops that
/// several prefixes need are counted, as far as a bounded search finds them.
///
/// Where updates are fused, both windows of a layer are one, with the step inside, and open when the layer is
/// stepped: C + max(0, max_l(sum_{j<=l} c_j/H - D_l - s - G_l)), less one latency of cover, and at least
/// sum c_l/H. Layers whose backward is over before their last read are left out of the prefix sums.
/// @param transfer_seconds c_l for every layer, at least 0
/// @throws std::invalid_argument for another number of transfer times, or one that is negative or not finite,
///   and for a period, latency or number in flight out of range
double bound_seconds(const Profile& profile, const std::vector<double>& transfer_seconds,
                     const BoundOptions& options);

}  // namespace dreamddp
