// PyTorch's DistributedDataParallel: gradients in buckets, each sent when its last gradient is there.
//
// Buckets are those that it rebuilds after the first iteration: gradients in the order in which they become
// ready; a bucket is closed by the gradient that makes it reach its cap, so it may exceed it. The cap is
// 1 MiB for the first bucket and 25 MiB for the others. A layer counts as one tensor, as a profile does not
// know its tensors: buckets can differ from DistributedDataParallel's by less than a layer. Where a size is
// unknown nothing is guessed: the plan has one op per layer, as wfbp's.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/planners/algorithms.h"

namespace dreamddp {
namespace {

constexpr std::int64_t first_bucket_cap_bytes = std::int64_t{1} << 20;
constexpr std::int64_t bucket_cap_bytes = std::int64_t{25} << 20;

}  // namespace

Plan plan_ddp(const Profile& profile, const Link& link, const PlanOptions& options) {
  const bool sizes_known = std::ranges::all_of(
      profile.layers, [](const std::optional<std::int64_t>& num_bytes) { return num_bytes.has_value(); },
      &Layer::num_bytes);
  Plan plan = plan_without_ops("ddp", profile, 1);
  if (!sizes_known) {
    plan.ops = plan_wfbp(profile, link, options).ops;
    return plan;
  }
  std::vector<ReadyGradient> bucket;
  std::int64_t room = first_bucket_cap_bytes;
  for (const ReadyGradient& gradient : ready_gradients(profile)) {
    const std::int64_t num_bytes = *profile.layers[gradient.layer].num_bytes;
    bucket.push_back(gradient);
    if (num_bytes >= room) {
      plan.ops.push_back(gradient_op(std::exchange(bucket, {})));
      room = bucket_cap_bytes;
    } else {
      room -= num_bytes;
    }
  }
  if (!bucket.empty()) plan.ops.push_back(gradient_op(bucket));
  return plan;
}

}  // namespace dreamddp
