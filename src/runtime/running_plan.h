// A plan as one model carries it out: which elements of which tensors each op averages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dreamddp/plan.h"
#include "dreamddp/profile.h"
#include "runtime/lane.h"
#include "runtime/tensor_slices.h"
#include "runtime/torch_transport.h"

namespace dreamddp {

/// Immutable once made; safe to read from many threads.
struct RunningPlan {
  Plan plan;
  std::vector<std::size_t> plan_layer;  ///< of each of the model's layers, its index in the plan
  std::vector<TransportOp> ops;         ///< of each op, what it averages
  bool keeps_back = false;              ///< whether there are held or carried ops
  bool has_gradients = false;           ///< whether there are ops of gradients
  std::vector<std::int64_t> op_bytes;   ///< of each op
  std::vector<std::string> labels;      ///< of each op: "op 3: 'h.2' and 1 more"
  std::vector<std::string>
      doing;                 ///< of each op: "averaging 'h.2' and 1 more (op 3 of the plan"; the step follows
  std::size_t first_op = 0;  ///< the op that is launched first
  std::int64_t first_period_begin = 0;  ///< the iteration at which that op's period begins

  /// The sequence number of the op that is launched in this iteration; below 0 before the first one.
  std::int64_t sequence_of(std::size_t op, std::int64_t iteration) const;
};

/// For each of the model's layers, its index in the profile.
/// @throws std::invalid_argument where the profile lacks one
std::vector<std::size_t> layers_in(const Profile& profile, const std::vector<LayerParameters>& layers);

/// @throws std::invalid_argument where the plan is not valid for the profile or the profile lacks layers of
///   the model
std::shared_ptr<const RunningPlan> make_running_plan(const Plan& plan, const Profile& profile,
                                                     const std::vector<LayerParameters>& layers,
                                                     std::int64_t first_iteration);

}  // namespace dreamddp
