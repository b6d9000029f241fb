#include "dreamddp/plan.h"

namespace dreamddp {

// One iteration of L layers has 3L+2 events: before and after each forward (0 .. 2L-1), after each backward
// (2L .. 3L-1), before the step (3L), after the step (3L+1).

EventOrder::EventOrder(const Profile& profile, Update update)
    : update_(update), backward_rank_(profile.layers.size()) {
  const auto sequence = backward_sequence(profile);
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    backward_rank_[sequence[i]] = static_cast<std::int64_t>(i);
  }
  last_read_.reserve(profile.layers.size());
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const LastRead& last_read = profile.layers[l].last_read;
    // The gradient of a tensor that is tied to another layer needs the backwards of both.
    const bool is_behind_gradient =
        last_read.kind == LastReadKind::other_backward && backward_rank_[last_read.layer] > backward_rank_[l];
    last_read_.push_back(update == Update::step || is_behind_gradient ? last_read : LastRead{});
  }
}

std::int64_t EventOrder::position(const Event& event) const {
  const auto num_layers = static_cast<std::int64_t>(backward_rank_.size());
  const std::int64_t begin = event.iteration * (3 * num_layers + 2);
  switch (event.kind) {
    case EventKind::before_forward:
      return begin + 2 * static_cast<std::int64_t>(event.layer);
    case EventKind::after_forward:
      return begin + 2 * static_cast<std::int64_t>(event.layer) + 1;
    case EventKind::after_backward:
      return begin + 2 * num_layers + backward_rank_[event.layer];
    case EventKind::before_step:
      return begin + 3 * num_layers;
    case EventKind::after_step:
      break;
  }
  return begin + 3 * num_layers + 1;
}

Event EventOrder::last_read(std::size_t layer, std::int64_t iteration) const {
  switch (last_read_[layer].kind) {
    case LastReadKind::forward:
      return {iteration, EventKind::after_forward, layer};
    case LastReadKind::other_backward:
      return {iteration, EventKind::after_backward, last_read_[layer].layer};
    case LastReadKind::own_backward:
      break;
  }
  return {iteration, EventKind::after_backward, layer};
}

}  // namespace dreamddp
