#include "core/action_tape.h"

#include <algorithm>
#include <memory>

#include "dreamddp/sync_scheduler.h"

namespace dreamddp {
namespace {

class TapeRecorder {
 public:
  TapeRecorder(const Plan& plan, const Profile& profile, std::int64_t first_iteration)
      : profile_(profile),
        backwards_(backward_sequence(profile)),
        // The plan outlives the recorder, so nothing has to keep it alive.
        scheduler_(std::shared_ptr<const Plan>(std::shared_ptr<const Plan>(), &plan), profile,
                   first_iteration) {}

  void run_iteration() {
    for (std::size_t layer = 0; layer < profile_.layers.size(); ++layer) {
      take(scheduler_.forward_begins(layer));
      compute(profile_.layers[layer].forward_seconds);
      take(scheduler_.forward_ends(layer));
    }
    for (const std::size_t layer : backwards_) {
      compute(profile_.layers[layer].backward_seconds);
      take(scheduler_.backward_ends(layer));
    }
    take(scheduler_.backward_finishes());
    take(scheduler_.step_begins());
    compute(profile_.step_seconds);
  }

  void end_step() { take(scheduler_.step_ends()); }

  void begin_tape() {
    tape_ = {};
    tape_.steps.reserve(2 * scheduler_.plan().ops.size());
    compute_seconds_ = 0;
    piece_ = 0;
  }

  ActionTape end_tape() {
    tape_.compute_seconds_after = compute_seconds_;
    return std::move(tape_);
  }

 private:
  void compute(double seconds) {
    compute_seconds_ += seconds;
    ++piece_;
  }

  void take(const SyncScheduler::Actions& actions) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::release) continue;  // takes no time
      TapeStep step{.is_launch = action.kind == ActionKind::launch,
                    .op = static_cast<std::uint32_t>(action.run.op),
                    .piece = piece_,
                    .compute_seconds_before = compute_seconds_};
      if (step.is_launch) {
        ++tape_.num_launches;
        num_launched_ = action.run.sequence + 1;
      } else {
        step.launches_ago = static_cast<std::uint32_t>(num_launched_ - action.run.sequence);
        tape_.longest_wait = std::max<std::size_t>(tape_.longest_wait, step.launches_ago);
      }
      tape_.steps.push_back(step);
      compute_seconds_ = 0;
    }
  }

  const Profile& profile_;
  std::vector<std::size_t> backwards_;
  SyncScheduler scheduler_;
  ActionTape tape_;
  std::int64_t num_launched_ = 0;
  std::size_t piece_ = 0;
  double compute_seconds_ = 0;
};

}  // namespace

ActionTape record_period(const Plan& plan, const Profile& profile) {
  // Whatever is in flight when the period begins was launched within the longest window in front of it.
  std::int64_t lead = 0;
  for (const Op& op : plan.ops) lead = std::max(lead, op.deadline.iteration - op.launch.iteration);
  const std::int64_t first_period = (lead + plan.period - 1) / plan.period;
  TapeRecorder recorder(plan, profile, first_period * plan.period - lead);
  for (std::int64_t i = 0; i < lead; ++i) {
    if (i > 0) recorder.end_step();
    recorder.run_iteration();
  }
  recorder.begin_tape();
  for (std::int64_t i = 0; i < plan.period; ++i) {
    if (lead > 0 || i > 0) recorder.end_step();
    recorder.run_iteration();
  }
  return recorder.end_tape();
}

}  // namespace dreamddp
