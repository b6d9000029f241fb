// The rules that say when an op is launched, when its result may be written, and what waits for it.
//
// Design sections 4 ("One scheduler, two clocks") and 9. The simulator drives this state machine with a
// virtual clock, the runtime with hooks; so a simulated plan and a running plan cannot mean different
// things.
#pragma once

#include <cstddef>
#include <cstdint>
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
  /// Hand the op to the lane: its parameters may be read (packed) from now on. An in-place op and a gradient
  /// op are launched released: their result may be written as soon as it is there, no release follows. The
  /// snapshot of a carried op must be taken before compute goes on, as a step may follow at any time.
  launch,
  release,  ///< the result of a held or carried op may be written to the parameters as soon as it is there
  wait,     ///< compute may not go on before the op has finished and its result has been written
};

struct Action {
  ActionKind kind;
  OpRun run;

  bool operator==(const Action&) const = default;
};

struct ScheduleRules;

/// Takes events of one worker's training loop and answers with actions, to be carried out in the order
/// given before the event's compute goes on.
///
/// What it guarantees, whatever the events (the property tests drive it with random ones):
///   - ops are launched in plan order, each once per period, none skipped, whatever order layers come in;
///   - the sequence of launches depends only on the number of final backwards and steps, so ranks whose
///     layers come in different orders, or not at all, launch the same sequence;
///   - an op is launched only after its launch event, an in-place op only while none of its layers is being
///     read, a gradient op only after the backward of every layer that it carries; a layer that never came
///     is made up for at backward_finishes();
///   - an op's deadline event and every read of a layer to which a result may be written wait for it; a step
///     waits for every op in flight that may not cross it;
///   - a held result is released after the last read of the layers it carries, a carried one at its deadline
///     and nowhere else, so that runs repeat bit for bit;
///   - two ops are never in flight on one coordinate, unless the plan says so.
///
/// Where updates are fused, a layer counts as being read until it has been stepped: the caller steps it
/// before backward_ends(), or before backward_finishes() where that does not come, and the step that ends an
/// iteration waits only for what is due.
///
/// Where a layer does not come in the iteration in which a deadline `before forward` waits for it, the step
/// is the deadline; a carried result is then applied no later than the first read of a layer it carries.
/// Deadlines are counted in iterations, not in optimizer steps: a step that never comes is made up for when
/// the next iteration begins.
///
/// The place in the plan advances once per final backward: at step_ends(), or, if no step came, when the next
/// forward begins; until then a further backward belongs to the same iteration. Events between
/// set_accumulating(true) and set_accumulating(false) are those of a micro-batch that is not the last of its
/// iteration: reads and steps wait, nothing else happens.
///
/// An event costs time in proportion to the ops that touch its layer, and allocates nothing once the
/// buffers have grown to what the plan has in flight. Copies are independent state machines.
///
/// Not thread-safe: the caller serialises the calls. No call blocks.
class SyncScheduler {
 public:
  /// @param plan valid for `profile`; kept alive by the scheduler
  /// @param first_iteration the place in the plan to start from, counted from the start of training; ops
  ///   that an earlier start would have in flight there are absent
  /// @throws std::invalid_argument for a first_iteration below 0
  SyncScheduler(std::shared_ptr<const Plan> plan, const Profile& profile, std::int64_t first_iteration = 0);

  /// Goes on where a scheduler of the same plan and profile stopped between two iterations: these runs of
  /// held and carried ops are in flight, in launch order, their results not released. To be called before the
  /// first event. Their sequence numbers lie below 0, in the order in which the ops were launched.
  /// @throws std::invalid_argument for a run that cannot be in flight at first_iteration
  void resume(const std::vector<OpRun>& in_flight);

  using Actions = std::vector<Action>;

  // The actions that an event returns are valid until the next event.

  /// A training forward of the whole model begins. After a final backward this begins a new iteration:
  /// deadlines at a step that never came are made up for, and ops that follow it are launched.
  const Actions& iteration_begins();
  /// A training forward is about to read layer l. Begins a new iteration like iteration_begins(), where that
  /// was not called.
  const Actions& forward_begins(std::size_t layer);
  /// The forward of layer l has ended.
  const Actions& forward_ends(std::size_t layer);
  /// The backward of layer l has ended. A second call in the same iteration changes nothing.
  const Actions& backward_ends(std::size_t layer);
  /// The whole backward has ended: layers that never came count as ended.
  const Actions& backward_finishes();
  /// An optimizer step is about to write the weights. Without a final backward since the last one, or in a
  /// micro-batch, it waits for whatever may not be in flight while weights change, and advances nothing.
  const Actions& step_begins();
  const Actions& step_ends();
  /// Anyone else (an evaluation, a checkpoint) is about to read layer l, or a fused update to write it.
  const Actions& read_begins(std::size_t layer);
  /// Waits for everything in flight, in launch order; held and carried results are released first. The place
  /// in the plan stays as it is.
  const Actions& finish();

  void set_accumulating(bool accumulating) { accumulating_ = accumulating; }

  /// The current iteration, counted from the start of training.
  std::int64_t iteration() const { return iteration_; }
  /// The op that will be launched next; 0 = plan.ops.size() for a plan without ops.
  std::size_t next_op() const { return next_op_; }
  /// Launched and not yet waited for, in launch order.
  const std::vector<OpRun>& in_flight() const { return in_flight_; }
  const Plan& plan() const { return *plan_; }

 private:
  struct OpState {
    OpRun run;  ///< the last one that was launched
    int num_in_flight = 0;
    bool released = false;     ///< the result of `run` may be written; never set for carried ops
    std::uint32_t passed = 0;  ///< a held op's layers, from the first on, whose last read has come
  };

  std::int64_t deadline_iteration(const OpRun& run) const;
  bool next_is_ready();
  void launch_next();
  void launch_ready();
  void reopen_read(std::size_t layer);
  void end_read(std::size_t layer);
  void release_if_read(std::size_t op);
  void settle(const OpRun& run);
  template <typename Predicate>
  void settle_where(Predicate is_due);
  void settle_before_read(std::size_t layer, bool in_training);
  void add_if_due(std::size_t op);
  void settle_due();
  void settle_at_step(bool ends_iteration);
  void end_iteration();

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const ScheduleRules> rules_;
  bool accumulating_ = false;
  bool backward_finished_ = false;  ///< the final backward of this iteration is over
  std::int64_t iteration_ = 0;
  std::size_t next_op_ = 0;
  std::int64_t next_iteration_ = 0;  ///< in which next_op_ is launched
  std::uint32_t next_passed_ = 0;    ///< layers of next_op_, from the first on, that no longer hold it back
  std::int64_t num_launched_ = 0;
  std::vector<OpState> ops_;
  std::vector<OpRun> in_flight_;
  std::size_t num_held_back_ = 0;  ///< held ops in flight that are not released
  std::vector<OpRun> due_;         ///< found due at the event that is being answered
  Actions actions_;
  // For every layer, the last iteration in which the event came.
  std::vector<std::int64_t> forward_ended_;
  std::vector<std::int64_t> backward_ended_;
  std::vector<std::int64_t> read_begun_;
  std::vector<std::int64_t> read_ended_;
};

}  // namespace dreamddp
