// A training loop around a SyncScheduler, whose answers are texts: "launch 1@3" is op 1, launched in
// iteration 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/small_plans.h"
#include "dreamddp/sync_scheduler.h"

namespace dreamddp::testing {

/// A scheduler whose answers are texts.
class Loop {
 public:
  Loop(const Profile& profile, std::int64_t period, std::vector<Op> ops, std::int64_t first_iteration = 0)
      : scheduler(std::make_shared<const Plan>(valid_plan(profile, period, std::move(ops))), profile,
                  first_iteration) {}

  std::string begin_iteration() { return text(scheduler.iteration_begins()); }
  std::string forward(std::size_t layer) {
    const std::string begin = text(scheduler.forward_begins(layer));
    return join(begin, text(scheduler.forward_ends(layer)));
  }
  std::string backward(std::size_t layer) { return text(scheduler.backward_ends(layer)); }
  std::string finish_backward() { return text(scheduler.backward_finishes()); }
  std::string begin_step() { return text(scheduler.step_begins()); }
  std::string end_step() { return text(scheduler.step_ends()); }
  std::string read(std::size_t layer) { return text(scheduler.read_begins(layer)); }
  std::string finish() { return text(scheduler.finish()); }

  std::string forwards() {
    std::string all;
    for (std::size_t l = 0; l < scheduler.plan().layers.size(); ++l) all = join(all, forward(l));
    return all;
  }
  std::string backwards() {
    std::string all;
    for (std::size_t l = scheduler.plan().layers.size(); l-- > 0;) all = join(all, backward(l));
    return join(all, finish_backward());
  }
  std::string step() {
    const std::string begin = begin_step();
    return join(begin, end_step());
  }
  std::string iteration() {
    std::string all = forwards();
    all = join(all, backwards());
    return join(all, step());
  }

  SyncScheduler scheduler;

 private:
  static std::string join(const std::string& one, const std::string& other) {
    return one.empty() || other.empty() ? one + other : one + ", " + other;
  }
  static std::string text(const SyncScheduler::Actions& actions) {
    std::string all;
    for (const Action& action : actions) {
      const char* verb = action.kind == ActionKind::launch    ? "launch "
                         : action.kind == ActionKind::release ? "release "
                                                              : "wait ";
      all = join(all, verb + std::to_string(action.run.op) + "@" + std::to_string(action.run.iteration));
    }
    return all;
  }
};

/// Layer 0 is an embedding: last read in its forward.
inline Profile embedding_profile(std::size_t num_layers) {
  Profile profile = uniform_profile(num_layers);
  profile.layers[0].last_read = {LastReadKind::forward, 0};
  return profile;
}

/// Layer 0 is an embedding tied to the last layer, which has no parameters of its own.
inline Profile tied_profile(std::size_t num_layers) {
  Profile profile = uniform_profile(num_layers);
  profile.layers[0].last_read = {LastReadKind::other_backward, num_layers - 1};
  profile.layers.back().num_bytes = 0;
  return profile;
}

}  // namespace dreamddp::testing
