#include "dreamddp/bound.h"

#include <algorithm>
#include <cstddef>

namespace dreamddp {
namespace {

/// The least mean over a period of max(0, X_h - cover) over the iterations with X_h > 0, where the X_h add up
/// to `transfers`. The latency is in the cover, which may so be negative.
///
/// The sum over n iterations with equal shares is max(0, transfers - n * cover), and no other shares give
/// less (Jensen's inequality): n = H is best while the cover is positive, n = 1 where it is not.
double least_mean_uncovered(double transfers, double cover, std::int64_t period) {
  const auto iterations = static_cast<double>(period);
  if (transfers <= 0) return 0;
  if (cover >= 0) return std::max(0.0, transfers / iterations - cover);
  return (transfers - cover) / iterations;
}

/// How far the transfers of some prefix of layers exceed the compute in which they may fly, in the mean. The
/// largest G_j of a prefix is G_l where the backward is the reverse of the forward.
///
/// In one window the last transfer ends a latency after the link is free again, so a window of D seconds
/// covers D - a of transfers. Using both windows costs two latencies, using one gives up the other's cover.
double largest_uncovered_prefix(const Profile& profile, const std::vector<double>& transfer_seconds,
                                const BoundOptions& options) {
  const std::vector<double> before = cover_before_first_read(profile);
  const std::vector<double> after = cover_after_last_read(profile);
  double transfers = 0;
  double cover_after = 0;
  double largest = 0;
  for (std::size_t l = 0; l < transfer_seconds.size(); ++l) {
    if (profile.layers[l].last_read.kind != LastReadKind::own_backward || transfer_seconds[l] == 0) continue;
    transfers += transfer_seconds[l];
    cover_after = std::max(cover_after, after[l]);
    const double latency = options.latency_seconds;
    const double cover =
        std::max(before[l] + cover_after - 2 * latency, std::max(before[l], cover_after) - latency);
    largest = std::max(largest, least_mean_uncovered(transfers, cover, options.period));
  }
  return largest;
}

}  // namespace

double bound_seconds(const Profile& profile, const std::vector<double>& transfer_seconds,
                     const BoundOptions& options) {
  std::vector<double> needed = transfer_seconds;
  double total = 0;
  for (std::size_t l = 0; l < needed.size(); ++l) {
    // A layer without parameters need not be averaged, whatever its transfer time.
    if (profile.layers[l].num_bytes == 0) needed[l] = 0;
    total += needed[l];
  }
  const double compute = compute_seconds(profile);
  const auto iterations = static_cast<double>(options.period);
  if (options.mode == OpMode::carried) {
    // An op is in flight for x + a, and m ops are at once.
    const double in_flight =
        total > 0 ? (total + options.latency_seconds) / static_cast<double>(options.in_flight) : 0;
    return std::max(compute, std::max(total, in_flight) / iterations);
  }
  const double cover = compute - profile.step_seconds - options.latency_seconds;
  double uncovered = least_mean_uncovered(total, cover, options.period);
  if (options.mode == OpMode::in_place)
    uncovered = std::max(uncovered, largest_uncovered_prefix(profile, needed, options));
  return compute + uncovered;
}

}  // namespace dreamddp
