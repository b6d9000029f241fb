// Drives a SyncScheduler and checks, with book-keeping of its own, what its header guarantees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/random_training.h"
#include "dreamddp/sync_scheduler.h"

namespace dreamddp::testing {

/// Every method throws std::logic_error at the first broken guarantee.
class ScheduleChecker {
 public:
  ScheduleChecker(std::shared_ptr<const Plan> plan, const Profile& profile, std::int64_t first_iteration = 0)
      : plan_(*plan),
        order_(profile, plan->update),
        scheduler_(plan, profile, first_iteration),
        iteration_(first_iteration),
        period_begin_(first_iteration - first_iteration % plan_.period),
        layers_(order_.num_layers()) {
    for (const Op& op : plan_.ops) {
      modes_.push_back(op_mode(op, order_));
    }
    while (has_ops() && next_launch_iteration() < first_iteration) {
      advance_next();
    }
  }

  void take(const TrainingEvent& event) {
    using Kind = TrainingEventKind;
    if (plan_.update == Update::fused && !accumulating_) take_updates_before(event);
    event_ = event;
    ends_iteration_ = false;
    Layer& layer = layers_[event.layer];
    switch (event.kind) {
      case Kind::iteration_begins:
        begin_iteration_if_due();
        check_actions(scheduler_.iteration_begins());
        break;
      case Kind::forward_begins:
        begin_iteration_if_due();
        layer.has_begun = true;
        layer.is_read = false;
        check_actions(scheduler_.forward_begins(event.layer));
        break;
      case Kind::forward_ends:
        come({iteration_, EventKind::after_forward, event.layer});
        check_actions(scheduler_.forward_ends(event.layer));
        break;
      case Kind::backward_ends:
        come({iteration_, EventKind::after_backward, event.layer});
        check_actions(scheduler_.backward_ends(event.layer));
        break;
      case Kind::backward_finishes:
        if (!accumulating_) {
          backward_finished_ = true;
          std::ranges::fill(
              layers_,
              Layer{.has_begun = true, .forward_came = true, .backward_came = true, .is_read = true});
        }
        check_actions(scheduler_.backward_finishes());
        break;
      case Kind::step_begins:
        ends_iteration_ = backward_finished_ && !accumulating_;
        check_actions(scheduler_.step_begins());
        break;
      case Kind::step_ends:
        ends_iteration_ = backward_finished_ && !accumulating_;
        check_actions(scheduler_.step_ends());
        if (ends_iteration_) next_iteration();
        break;
      case Kind::read_begins:
        check_actions(scheduler_.read_begins(event.layer));
        break;
      case Kind::accumulation_begins:
      case Kind::accumulation_ends:
        accumulating_ = event.kind == Kind::accumulation_begins;
        scheduler_.set_accumulating(accumulating_);
        return;
      case Kind::finish:
        check_actions(scheduler_.finish());
        break;
    }
    check_state();
  }

  /// What was launched since the beginning.
  const std::vector<OpRun>& launches() const { return launches_; }

 private:
  struct Layer {  // in this iteration
    bool has_begun = false;
    bool forward_came = false;
    bool backward_came = false;
    bool is_read = false;  ///< its last read has come, and no other has begun since
  };
  struct Flight {
    OpRun run;
    bool is_released;
  };

  /// The layers that are stepped in the backward wait for what is in flight, as for a read.
  void take_updates_before(const TrainingEvent& event) {
    if (event.kind == TrainingEventKind::backward_ends) take({TrainingEventKind::read_begins, event.layer});
    if (event.kind != TrainingEventKind::backward_finishes) return;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      if (!layers_[layer].backward_came) take({TrainingEventKind::read_begins, layer});
  }

  static void require(bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  }

  bool has_ops() const { return !plan_.ops.empty(); }
  std::int64_t next_launch_iteration() const { return period_begin_ + plan_.ops[next_op_].launch.iteration; }
  void advance_next() {
    if (++next_op_ == plan_.ops.size()) {
      next_op_ = 0;
      period_begin_ += plan_.period;
    }
  }

  const Op& op(const OpRun& run) const { return plan_.ops[run.op]; }
  bool is_gradient(const OpRun& run) const { return op(run).quantity == Quantity::gradients; }
  bool is_carried(const OpRun& run) const { return modes_[run.op] == OpMode::carried; }
  bool may_cross_step(const OpRun& run) const {
    return is_carried(run) || (plan_.update == Update::fused && ends_iteration_);
  }
  bool carries(const OpRun& run, std::size_t layer) const {
    return std::ranges::any_of(op(run).segments,
                               [&](const Segment& segment) { return segment.layer == layer; });
  }
  template <typename Claim>
  bool all_layers(const OpRun& run, Claim claim) const {
    return std::ranges::all_of(op(run).segments,
                               [&](const Segment& segment) { return claim(layers_[segment.layer]); });
  }
  std::int64_t deadline_iteration(const OpRun& run) const {
    return run.iteration + op(run).deadline.iteration - op(run).launch.iteration;
  }

  void come(const Event& event) {
    if (accumulating_) return;
    (event.kind == EventKind::after_forward ? layers_[event.layer].forward_came
                                            : layers_[event.layer].backward_came) = true;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      if (order_.last_read(layer, iteration_) == event) layers_[layer].is_read = true;
  }

  void next_iteration() {
    ++iteration_;
    backward_finished_ = false;
    std::ranges::fill(layers_, Layer{});
  }

  void begin_iteration_if_due() {
    ends_iteration_ = backward_finished_;
    if (ends_iteration_) next_iteration();
  }

  /// Whether the event ends an iteration in which no step came, and begins the next one.
  bool makes_up_for_step() const {
    return ends_iteration_ && (event_.kind == TrainingEventKind::forward_begins ||
                               event_.kind == TrainingEventKind::iteration_begins);
  }

  void check_actions(const SyncScheduler::Actions& actions) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const OpRun& run = actions[i].run;
      const bool wait_follows = i + 1 < actions.size() && actions[i + 1] == Action{ActionKind::wait, run};
      switch (actions[i].kind) {
        case ActionKind::launch:
          check_launch(run);
          break;
        case ActionKind::release:
          check_release(run, wait_follows);
          break;
        case ActionKind::wait:
          check_wait(run, actions);
          break;
      }
    }
  }

  void check_launch(const OpRun& run) {
    require(run == OpRun{static_cast<std::int64_t>(launches_.size()), next_op_, next_launch_iteration()},
            "launched out of plan order");
    const Event& launch = op(run).launch;
    const bool is_in_place = !is_gradient(run) && modes_[run.op] == OpMode::in_place;
    if (launch.kind == EventKind::after_step) {
      require(ends_iteration_ && event_.kind != TrainingEventKind::step_begins &&
                  run.iteration == iteration_ - (makes_up_for_step() ? 1 : 0),
              "launched before the step");
    } else {
      require(run.iteration == iteration_, "launched in another iteration");
      const Layer& layer = layers_[launch.layer];
      require(launch.kind == EventKind::after_forward ? layer.forward_came : layer.backward_came,
              "launched before its event");
      require(!is_in_place || all_layers(run, [](const Layer& l) { return l.is_read || !l.has_begun; }),
              "launched between two reads");
      require(!is_gradient(run) || all_layers(run, [](const Layer& l) { return l.backward_came; }),
              "launched before the gradient is there");
    }
    for (const Flight& flight : flights_)
      require((is_carried(run) && flight.run.op == run.op) || !share_coordinates(flight.run, run),
              "two ops in flight on one coordinate");
    flights_.push_back({run, is_in_place || is_gradient(run)});
    launches_.push_back(run);
    advance_next();
  }

  bool share_coordinates(const OpRun& one, const OpRun& other) const {
    if (op(one).quantity != op(other).quantity) return false;
    for (const Segment& a : op(one).segments)
      for (const Segment& b : op(other).segments)
        if (a.layer == b.layer && a.begin < b.end && b.begin < a.end) return true;
    return false;
  }

  void check_release(const OpRun& run, bool wait_follows) {
    const auto flight = std::ranges::find(flights_, run, &Flight::run);
    require(flight != flights_.end() && !flight->is_released, "released what is not held back");
    const bool is_read =
        deadline_iteration(run) == iteration_ && all_layers(run, [](const Layer& l) { return l.is_read; });
    require(wait_follows || (!is_carried(run) && is_read), "released while it is read");
    flight->is_released = true;
  }

  void check_wait(const OpRun& run, const SyncScheduler::Actions& actions) {
    const auto flight = std::ranges::find(flights_, run, &Flight::run);
    require(flight != flights_.end() && flight->is_released,
            "waited for what is not in flight, or held back");
    require(is_needed(run, actions), "waited for without need");
    flights_.erase(flight);
  }

  bool is_needed(const OpRun& run, const SyncScheduler::Actions& actions) const {
    using Kind = TrainingEventKind;
    if (event_.kind == Kind::finish) return true;
    const std::int64_t ended = iteration_ - (makes_up_for_step() ? 1 : 0);
    if (ends_iteration_ && deadline_iteration(run) <= ended) return true;
    if (event_.kind == Kind::step_begins) return !may_cross_step(run);
    const bool is_read = event_.kind == Kind::forward_begins || event_.kind == Kind::read_begins;
    if (is_read && !is_carried(run) && !is_gradient(run) && carries(run, event_.layer)) return true;
    const bool is_due =
        deadline_iteration(run) == iteration_ && op(run).deadline.kind == EventKind::before_forward;
    if (is_due && event_.kind == Kind::forward_begins)
      return op(run).deadline.layer == event_.layer || carries(run, event_.layer);
    // An op on the same coordinates is launched, and the forward that should have waited never came.
    return is_due && std::ranges::any_of(actions, [&](const Action& action) {
             return action.kind == ActionKind::launch && share_coordinates(run, action.run);
           });
  }

  void check_state() const {
    using Kind = TrainingEventKind;
    require(std::ranges::equal(flights_, scheduler_.in_flight(), {}, &Flight::run), "in_flight() is wrong");
    require(scheduler_.iteration() == iteration_, "iteration() is wrong");
    require(!has_ops() || scheduler_.next_op() == next_op_, "next_op() is wrong");
    require(!has_ops() || next_launch_iteration() >= iteration_,
            "an op of an iteration was not launched in it");
    for (const Flight& flight : flights_) {
      const OpRun& run = flight.run;
      require(deadline_iteration(run) >= iteration_, "in flight after its deadline");
      if (is_carried(run)) {
        require(!flight.is_released, "a carried result is written outside its deadline");
      } else if (!is_gradient(run) && flight.is_released) {
        require(all_layers(run, [](const Layer& l) { return l.is_read || !l.has_begun; }),
                "written while read");
        require(event_.kind != Kind::read_begins || !carries(run, event_.layer), "written while evaluated");
      }
      if (event_.kind == Kind::step_begins) {
        require(may_cross_step(run), "in flight while the optimizer steps");
        require(!ends_iteration_ || deadline_iteration(run) > iteration_, "in flight after its deadline");
      }
      const Event& deadline = op(run).deadline;
      require(event_.kind != Kind::forward_begins || deadline.kind != EventKind::before_forward ||
                  deadline.layer != event_.layer || deadline_iteration(run) > iteration_,
              "in flight after its deadline");
      require(event_.kind != Kind::finish, "in flight after the end");
    }
  }

  const Plan& plan_;
  EventOrder order_;
  SyncScheduler scheduler_;
  std::vector<OpMode> modes_;
  std::int64_t iteration_;
  std::int64_t period_begin_;
  std::size_t next_op_ = 0;
  bool backward_finished_ = false;
  bool accumulating_ = false;
  bool ends_iteration_ = false;  ///< the event that is being checked belongs to the end of an iteration
  TrainingEvent event_{};
  std::vector<Layer> layers_;
  std::vector<Flight> flights_;
  std::vector<OpRun> launches_;
};

}  // namespace dreamddp::testing
