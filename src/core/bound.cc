#include "dreamddp/bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "core/decimal.h"
#include "core/prefix_bound.h"
#include "core/profile_text.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

void check(const Profile& profile, const std::vector<double>& transfer_seconds, const BoundOptions& options) {
  if (transfer_seconds.size() != profile.layers.size()) {
    reject({.field = "transfer_seconds",
            .value = std::to_string(transfer_seconds.size()) + " entries",
            .allowed = "one for each layer, " + std::to_string(profile.layers.size()),
            .remedy = "Give 0 for layers that are not averaged"});
  }
  for (std::size_t l = 0; l < transfer_seconds.size(); ++l) {
    if (is_time(transfer_seconds[l])) continue;
    reject({.field = layer_place(profile, l) + ": transfer_seconds",
            .value = shortest_text(transfer_seconds[l]),
            .allowed = "a finite number of at least 0",
            .remedy = "Measure it again"});
  }
  if (options.period < 1 || options.period > longest_period) {
    reject({.field = "period",
            .value = std::to_string(options.period),
            .allowed = "1 to " + std::to_string(longest_period),
            .remedy = "Give the number of iterations in which every parameter is averaged once"});
  }
  if (!is_time(options.latency_seconds)) {
    reject({.field = "latency_seconds",
            .value = shortest_text(options.latency_seconds),
            .allowed = "a finite time of at least 0",
            .remedy = "Give 0 for a link without latency"});
  }
  if (options.in_flight < 1) {
    reject({.field = "in_flight",
            .value = std::to_string(options.in_flight),
            .allowed = "at least 1",
            .remedy = "Give 1 for one op at a time"});
  }
}

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

/// Layers with a last read other than their own backward are left out: their windows do not nest.
std::vector<Prefix> prefixes_of(const Profile& profile, const std::vector<double>& transfer_seconds,
                                std::int64_t period) {
  const std::vector<double> before = cover_before_first_read(profile);
  const std::vector<double> after = cover_after_last_read(profile);
  std::vector<Prefix> prefixes;
  Prefix prefix;
  double transfers = 0;
  for (std::size_t l = 0; l < transfer_seconds.size(); ++l) {
    if (profile.layers[l].last_read.kind != LastReadKind::own_backward || transfer_seconds[l] == 0) continue;
    transfers += transfer_seconds[l];
    prefix.link_seconds = transfers / static_cast<double>(period);
    prefix.forward_cover = before[l];
    // The largest G_j of a prefix is G_l where the backward is the reverse of the forward.
    prefix.backward_cover = std::max(prefix.backward_cover, after[l]);
    prefixes.push_back(prefix);
  }
  return prefixes;
}

/// How far the transfers of some prefix of layers exceed the compute in which they may fly, in the mean.
///
/// In one window the last transfer ends a latency after the link is free again, so a window of D seconds
/// covers D - a of transfers. Using both windows costs two latencies, using one gives up the other's cover.
double largest_uncovered_prefix(const std::vector<Prefix>& prefixes, const BoundOptions& options) {
  const double latency = options.latency_seconds;
  double largest = 0;
  for (const Prefix& prefix : prefixes) {
    const double forward = prefix.forward_cover;
    const double backward = prefix.backward_cover;
    const double cover = std::max(forward + backward - 2 * latency, std::max(forward, backward) - latency);
    const double transfers = prefix.link_seconds * static_cast<double>(options.period);
    largest = std::max(largest, least_mean_uncovered(transfers, cover, options.period));
  }
  return largest;
}

/// The same where updates are fused: the window of a layer goes from its update to its next first read, and
/// one latency is enough for it.
double largest_uncovered_fused_prefix(const Profile& given, const std::vector<double>& transfer_seconds,
                                      const BoundOptions& options) {
  Profile profile = given;
  const EventOrder order(given, Update::fused);
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const bool is_own = order.last_read(l, 0).layer == l;
    profile.layers[l].last_read.kind = is_own ? LastReadKind::own_backward : LastReadKind::other_backward;
  }
  double largest = 0;
  for (const Prefix& prefix : prefixes_of(profile, transfer_seconds, options.period)) {
    const double cover =
        prefix.forward_cover + profile.step_seconds + prefix.backward_cover - options.latency_seconds;
    const double transfers = prefix.link_seconds * static_cast<double>(options.period);
    largest = std::max(largest, least_mean_uncovered(transfers, cover, options.period));
  }
  return largest;
}

}  // namespace

double bound_seconds(const Profile& profile, const std::vector<double>& transfer_seconds,
                     const BoundOptions& options) {
  check(profile, transfer_seconds, options);
  std::vector<double> needed = transfer_seconds;
  double total = 0;
  for (std::size_t l = 0; l < needed.size(); ++l) {
    // A layer without parameters need not be averaged, whatever its transfer time.
    if (profile.layers[l].num_bytes == 0) needed[l] = 0;
    total += needed[l];
  }
  const double compute = compute_seconds(profile);
  const auto iterations = static_cast<double>(options.period);
  if (options.update == Update::fused) {
    const double uncovered = largest_uncovered_fused_prefix(profile, needed, options);
    return std::max(compute + uncovered, total / iterations);
  }
  if (options.mode == OpMode::carried) {
    // An op is in flight for x + a, and m ops are at once.
    const double in_flight =
        total > 0 ? (total + options.latency_seconds) / static_cast<double>(options.in_flight) : 0;
    return std::max(compute, std::max(total, in_flight) / iterations);
  }
  const double horizon = compute - profile.step_seconds;
  double uncovered = least_mean_uncovered(total, horizon - options.latency_seconds, options.period);
  if (options.mode == OpMode::held) return compute + uncovered;
  const std::vector<Prefix> prefixes = prefixes_of(profile, needed, options.period);
  uncovered = std::max(uncovered, largest_uncovered_prefix(prefixes, options));
  if (options.latency_seconds > 0 && options.in_flight == 1 && !prefixes.empty()) {
    uncovered = std::max(uncovered, exposed_by_prefixes(prefixes, {.link_seconds = total / iterations,
                                                                   .horizon = horizon,
                                                                   .latency = options.latency_seconds}));
  }
  return compute + uncovered;
}

}  // namespace dreamddp
