#include "dreamddp/bound.h"

#include <algorithm>
#include <cstddef>

namespace dreamddp {
namespace {

/// max_l(sum_{j<=l} c_j/H - D_l - max_{j<=l} G_j): how far the transfers of some prefix of layers exceed the
/// compute in which they may fly. The largest G_j of a prefix is G_l where the backward is the reverse of
/// the forward.
double largest_uncovered_prefix(const Profile& profile, const std::vector<double>& share_seconds) {
  const std::vector<double> before = cover_before_first_read(profile);
  const std::vector<double> after = cover_after_last_read(profile);
  double transfers = 0;
  double cover_after = 0;
  double largest = 0;
  for (std::size_t l = 0; l < share_seconds.size(); ++l) {
    if (profile.layers[l].last_read.kind != LastReadKind::own_backward || share_seconds[l] == 0) continue;
    transfers += share_seconds[l];
    cover_after = std::max(cover_after, after[l]);
    largest = std::max(largest, transfers - before[l] - cover_after);
  }
  return largest;
}

}  // namespace

double bound_seconds(const Profile& profile, const std::vector<double>& transfer_seconds, std::int64_t period,
                     OpMode mode) {
  std::vector<double> share_seconds;  // of a layer in an iteration: c_l / H
  double total = 0;
  for (std::size_t l = 0; l < transfer_seconds.size(); ++l) {
    // A layer without parameters need not be averaged, whatever its transfer time.
    const double transfer = profile.layers[l].num_bytes == 0 ? 0 : transfer_seconds[l];
    share_seconds.push_back(transfer / static_cast<double>(period));
    total += share_seconds.back();
  }
  const double compute = compute_seconds(profile);
  if (mode == OpMode::carried) return std::max(compute, total);
  double uncovered = std::max(0.0, total - (compute - profile.step_seconds));
  if (mode == OpMode::in_place)
    uncovered = std::max(uncovered, largest_uncovered_prefix(profile, share_seconds));
  return compute + uncovered;
}

}  // namespace dreamddp
