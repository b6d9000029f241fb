// Policies in a running training: what is seen of the gradients, agreed among ranks, and decided from it.
// Design section 10.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dreamddp/due_plan.h"
#include "dreamddp/link.h"
#include "dreamddp/policy.h"
#include "dreamddp/profile.h"
#include "dreamddp/sync_scheduler.h"
#include "runtime/gradient_statistics.h"
#include "runtime/running_plan.h"
#include "runtime/tensor_slices.h"

namespace dreamddp {

// Note [Signals are whole numbers]
//
// Ranks must decide identically, always. So what they decide from is summed as whole numbers, exactly, in any
// order: a similarity is rounded to a multiple of 2^-30 and travels as that multiple in a float64, which
// holds sums of a million of them. What is only shown to people (norms) is not rounded.

struct PolicyRunOptions {
  std::vector<PolicyRule> rules;
  double slack = 0;  ///< as in PlanOptions
  std::int64_t sketch_size = default_sketch_size;
  std::int64_t first_iteration = 0;
};

/// The ops of all iterations in which the same layers are due.
struct DueOps {
  std::shared_ptr<const RunningPlan> running;
  SyncScheduler scheduler;  ///< in its first state: for SyncScheduler::replace_plan()
  std::vector<Treatment> treatments;
  std::size_t first_op = 0;  ///< in the lane's table; set by who adds them there
  bool is_in_lane = false;
};

/// What was decided about one iteration.
struct IterationDecisions {
  std::int64_t iteration = 0;
  std::vector<Decision> decisions;     ///< of each layer of the profile that has parameters here
  std::vector<Treatment> treatments;   ///< of each of them
  std::vector<double> similarities;    ///< agreed in the iteration before
  std::vector<double> gradient_norms;  ///< agreed in the iteration before: root of the mean square over ranks
};

/// What policies go on from, between two iterations.
struct PolicyState {
  std::string policies;  ///< LayerPolicies::state()
  std::vector<GradientStatistics::LayerState> statistics;
  at::Tensor signals;  ///< agreed, not yet looked at; undefined where there are none
};

/// Not thread-safe: the engine's mutex guards it.
class PolicyRun {
 public:
  /// @param profile that windows are chosen for; all of its layers that have parameters are the model's
  /// @throws std::invalid_argument for rules that do not fit the layers
  PolicyRun(const std::vector<LayerParameters>& layers, Profile profile, Link link, PolicyRunOptions options);

  /// Decides about the iteration whose backward begins. The signals of the iteration before must have been
  /// averaged.
  /// @param is_averaged_out_of_turn whether all layers have been averaged since the last call
  /// @return valid until the next call
  DueOps& begin_backward(bool is_averaged_out_of_turn);
  /// The gradient of a layer of the model is complete.
  void gradient_is_complete(std::size_t layer);
  /// Fills signals() for averaging.
  void backward_ends();

  /// [number of layers, 3], float64: what ranks average once an iteration.
  const at::Tensor& signals() const { return signals_; }
  /// What the cache of plans holds at most; others are made again.
  static constexpr std::size_t most_plans = 256;

  /// Forgets all plans that it has made.
  void forget_plans() { plans_.clear(); }
  std::size_t num_plans() const { return plans_.size(); }

  PolicyState state() const;
  /// @throws std::invalid_argument
  void set_state(const PolicyState& state);

  /// Of each layer of the model, the local steps since its last average at the step of the iteration that was
  /// decided about last; 0 where it is averaged in it.
  std::vector<std::int64_t> staleness() const;
  std::int64_t iteration() const { return policies_.iteration(); }

  const std::deque<IterationDecisions>& recent() const { return recent_; }

 private:
  std::vector<LayerSignal> agreed_signals(IterationDecisions& shown) const;
  DueOps& ops_for(const std::vector<Decision>& decisions);

  const std::vector<LayerParameters>& layers_;
  Profile profile_;
  Link link_;
  PolicyRunOptions options_;
  LayerPolicies policies_;
  std::vector<std::size_t> profile_layer_;  // of each layer of the model
  std::vector<bool> needs_similarity_;
  GradientStatistics statistics_;
  at::Tensor signals_;
  bool has_signals_ = false;
  std::map<std::vector<bool>, DueOps> plans_;  // by which layers of the profile are due
  std::deque<IterationDecisions> recent_;
};

}  // namespace dreamddp
