// The rules that say when an op is launched, when its result may be written, and what waits for it.
//
// Design sections 4 ("One scheduler, two clocks") and 9. The simulator drives this state machine with a
// virtual clock, the runtime with hooks; so a simulated plan and a running plan cannot mean different
// things.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// One execution of one op of the plan.
struct OpRun {
  std::int64_t sequence = 0;   ///< counts launches from 0; equal on all ranks
  std::size_t op = 0;          ///< index into plan.ops
  std::int64_t iteration = 0;  ///< the iteration of its launch, counted from the start of training

  bool operator==(const OpRun&) const = default;
};

enum class ActionKind {
  launch,   ///< hand the op to the lane: its parameters may be read (packed) from now on
  release,  ///< the result may be written to the parameters as soon as it is there
  wait,     ///< compute may not go on before the op has finished and its result has been written
};

struct Action {
  ActionKind kind;
  OpRun run;

  bool operator==(const Action&) const = default;
};

/// Takes events of one worker's training loop and answers with actions, to be carried out in the order
/// given before the event's compute goes on.
///
/// What it guarantees, whatever the events (the property tests drive it with random ones):
///   - ops are launched in plan order, each once per period, none skipped, whatever order layers come in;
///   - the sequence of launches depends only on the number of final backwards and steps, so ranks whose
///     layers come in different orders, or not at all, launch the same sequence;
///   - an op is launched only after its launch event and, for in-place ops, after the last read of every
///     layer that it carries; a missing layer is made up for at backward_finishes();
///   - an op's deadline event and every read of a layer that an in-place op in flight carries wait for it;
///     a step waits for every op in flight that may not cross it;
///   - a held result is released after the last read of the layers it carries, a carried one at its
///     deadline.
///
/// The place in the plan advances once per final backward: at step_ends(), or, if no step came, at the next
/// forward_begins(). Events between set_accumulating(true) and set_accumulating(false) are those of a
/// micro-batch that is not the last of its iteration: reads wait, nothing else happens.
///
/// Not thread-safe: the caller serialises the calls. No call blocks.
class SyncScheduler {
 public:
  /// @param plan valid for `profile`; kept alive by the scheduler
  /// @param first_iteration the place in the plan to start from, counted from the start of training
  SyncScheduler(std::shared_ptr<const Plan> plan, const Profile& profile, std::int64_t first_iteration = 0);

  using Actions = std::vector<Action>;

  /// A training forward is about to read layer l. The first one after a final backward begins a new
  /// iteration: ops that follow a step which never came are launched now.
  const Actions& forward_begins(std::size_t layer);
  /// The forward of layer l has ended.
  const Actions& forward_ends(std::size_t layer);
  /// The backward of layer l has ended. A second call in the same iteration changes nothing.
  const Actions& backward_ends(std::size_t layer);
  /// The whole backward has ended: layers that never came count as ended.
  const Actions& backward_finishes();
  const Actions& step_begins();
  const Actions& step_ends();
  /// Anyone else (an evaluation, a checkpoint) is about to read layer l.
  const Actions& read_begins(std::size_t layer);
  /// Waits for everything in flight; held and carried results are released first.
  const Actions& finish();

  void set_accumulating(bool accumulating) { accumulating_ = accumulating; }

  /// The current iteration, counted from the start of training.
  std::int64_t iteration() const { return iteration_; }
  /// The op that will be launched next, or plan.ops.size() for a plan without ops.
  std::size_t next_op() const { return next_op_; }
  /// Launched and not yet waited for.
  const std::deque<OpRun>& in_flight() const { return in_flight_; }
  const Plan& plan() const { return *plan_; }

 private:
  // Filled in with the implementation.
  std::shared_ptr<const Plan> plan_;
  bool accumulating_ = false;
  std::int64_t iteration_ = 0;
  std::size_t next_op_ = 0;
  std::deque<OpRun> in_flight_;
};

}  // namespace dreamddp
