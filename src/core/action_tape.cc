#include "core/action_tape.h"

#include <algorithm>
#include <memory>

#include "core/schedule_rules.h"
#include "dreamddp/sync_scheduler.h"

namespace dreamddp {
namespace {

/// For every iteration of a period, the ops with their launch or their deadline in it.
Lists ops_by_place(const Plan& plan) {
  std::vector<std::pair<std::size_t, std::uint32_t>> entries;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const std::int64_t launch = plan.ops[i].launch.iteration;
    const std::int64_t deadline = plan.ops[i].deadline.iteration % plan.period;
    entries.emplace_back(launch, static_cast<std::uint32_t>(i));
    if (deadline != launch) entries.emplace_back(deadline, static_cast<std::uint32_t>(i));
  }
  return {static_cast<std::size_t>(plan.period), entries};
}

class TapeRecorder {
 public:
  TapeRecorder(const Plan& plan, const Profile& profile, std::int64_t first_iteration)
      : plan_(plan),
        profile_(profile),
        ops_by_place_(ops_by_place(plan)),
        is_touched_(profile.layers.size()),
        backwards_(backward_sequence(profile)),
        // The plan outlives the recorder, so nothing has to keep it alive.
        order_(profile, plan.update),
        scheduler_(std::shared_ptr<const Plan>(std::shared_ptr<const Plan>(), &plan), profile,
                   first_iteration) {}

  void run_iteration() {
    find_touched_layers();
    for (std::size_t layer = 0; layer < profile_.layers.size(); ++layer) {
      if (is_touched_[layer]) take(scheduler_.forward_begins(layer));
      compute(profile_.layers[layer].forward_seconds);
      if (is_touched_[layer]) take(scheduler_.forward_ends(layer));
    }
    for (const std::size_t layer : backwards_) {
      compute(profile_.layers[layer].backward_seconds);
      if (is_touched_[layer]) take(scheduler_.backward_ends(layer));
    }
    take(scheduler_.backward_finishes());
    take(scheduler_.step_begins());
    compute(profile_.step_seconds);
  }

  void end_step() { take(scheduler_.step_ends()); }

  void begin_tape() {
    tape_ = {};
    tape_.steps.reserve(2 * plan_.ops.size());
    compute_seconds_ = 0;
    piece_ = 0;
  }

  ActionTape end_tape() {
    tape_.compute_seconds_after = compute_seconds_;
    return std::move(tape_);
  }

 private:
  /// A layer that no op of this iteration touches need not come, as far as the scheduler is concerned. Most
  /// are left out, which makes recording several times as fast.
  void find_touched_layers() {
    std::ranges::fill(is_touched_, 0);
    for (const std::uint32_t i :
         ops_by_place_[static_cast<std::size_t>(scheduler_.iteration() % plan_.period)]) {
      const Op& op = plan_.ops[i];
      is_touched_[op.launch.layer] = is_touched_[op.deadline.layer] = 1;
      for (const Segment& segment : op.segments) {
        is_touched_[segment.layer] = 1;
        is_touched_[order_.last_read(segment.layer, 0).layer] = 1;
      }
    }
  }

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

  const Plan& plan_;
  const Profile& profile_;
  Lists ops_by_place_;
  std::vector<char> is_touched_;  ///< layers, in this iteration
  std::vector<std::size_t> backwards_;
  EventOrder order_;
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
