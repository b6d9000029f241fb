// Random training loops as sequences of scheduler events, for property tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/random_plans.h"

namespace dreamddp::testing {

enum class TrainingEventKind {
  iteration_begins,
  forward_begins,
  forward_ends,
  backward_ends,
  backward_finishes,
  step_begins,
  step_ends,
  read_begins,
  accumulation_begins,
  accumulation_ends,
  finish,
};

struct TrainingEvent {
  TrainingEventKind kind;
  std::size_t layer = 0;
};

/// What may happen in a loop beside forward, backward and step of all layers in their order.
struct RandomTrainingOptions {
  double disorder = 0.3;       ///< probability that the layers of a forward or backward come in another order
  double missing = 0.15;       ///< of each layer, in a loop in which layers go missing
  double skipped_step = 0.15;  ///< of each step
  double accumulation = 0.3;   ///< of micro-batches in front of the last one of an iteration
  double evaluation = 0.2;     ///< of reads at each place where an evaluation or a checkpoint may come
  double lone_forward = 0.1;   ///< of a forward that no backward follows
  double lone_step = 0.1;      ///< of a step in front of the backward, or a second one after it
  double recomputation = 0.1;  ///< of each layer: a second forward in front of its backward
  double finish = 0.05;        ///< of a finish() in the middle
};

/// Makes the events of `num_iterations` iterations. Each has exactly one final backward.
class RandomTraining {
 public:
  RandomTraining(Random& random, const Profile& profile, const RandomTrainingOptions& options)
      : random_(random), options_(options), backwards_(backward_sequence(profile)) {
    may_miss_ = random_chance(random_, 0.5);
  }

  std::vector<TrainingEvent> make(std::int64_t num_iterations) {
    for (std::int64_t i = 0; i < num_iterations; ++i) add_iteration();
    return std::move(events_);
  }

 private:
  using Kind = TrainingEventKind;

  void add(Kind kind, std::size_t layer = 0) { events_.push_back({kind, layer}); }
  bool happens(double probability) { return random_chance(random_, probability); }

  void add_iteration() {
    while (happens(options_.accumulation)) {
      add(Kind::accumulation_begins);
      add_batch();
      if (happens(options_.lone_step)) add_step();
      add(Kind::accumulation_ends);
    }
    if (happens(options_.lone_forward)) add_forward();
    if (happens(options_.lone_step)) add_step();
    add_batch();
    if (happens(options_.finish)) add(Kind::finish);
    if (!happens(options_.skipped_step)) {
      add_step();
      if (happens(options_.lone_step)) add_step();
    }
    add_evaluation();
  }

  void add_batch() {
    add_forward();
    add_evaluation();
    add_backward();
    add_evaluation();
  }

  /// At least one of them: a forward that reads nothing cannot be noticed.
  std::vector<std::size_t> layers_that_come(std::vector<std::size_t> layers) {
    const std::size_t always = random_element(random_, layers);
    if (may_miss_)
      std::erase_if(layers, [&](std::size_t layer) { return layer != always && happens(options_.missing); });
    if (happens(options_.disorder)) random_shuffle(random_, layers);
    return layers;
  }

  void add_forward() {
    if (happens(0.5)) add(Kind::iteration_begins);
    std::vector<std::size_t> layers;
    for (std::size_t layer = 0; layer < backwards_.size(); ++layer) layers.push_back(layer);
    std::vector<std::size_t> open;  // a module that contains the next one ends after it
    for (const std::size_t layer : layers_that_come(layers)) {
      add(Kind::forward_begins, layer);
      open.push_back(layer);
      while (!open.empty() && happens(0.8)) {
        add(Kind::forward_ends, open.back());
        open.pop_back();
      }
    }
    for (; !open.empty(); open.pop_back()) add(Kind::forward_ends, open.back());
  }

  void add_backward() {
    for (const std::size_t layer : layers_that_come(backwards_)) {
      if (happens(options_.recomputation)) {
        add(Kind::forward_begins, layer);
        add(Kind::forward_ends, layer);
      }
      add(Kind::backward_ends, layer);
      if (happens(0.05)) add(Kind::backward_ends, layer);
    }
    add(Kind::backward_finishes);
  }

  void add_step() {
    add(Kind::step_begins);
    add(Kind::step_ends);
  }

  void add_evaluation() {
    if (!happens(options_.evaluation)) return;
    for (std::size_t layer = 0; layer < backwards_.size(); ++layer)
      if (happens(0.7)) add(Kind::read_begins, layer);
  }

  Random& random_;
  const RandomTrainingOptions& options_;
  std::vector<std::size_t> backwards_;
  bool may_miss_ = false;
  std::vector<TrainingEvent> events_;
};

inline std::vector<TrainingEvent> random_training(Random& random, const Profile& profile,
                                                  std::int64_t num_iterations,
                                                  const RandomTrainingOptions& options = {}) {
  return RandomTraining(random, profile, options).make(num_iterations);
}

}  // namespace dreamddp::testing
