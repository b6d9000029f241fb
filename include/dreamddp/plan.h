// A plan: which part of the model is averaged when. Design sections 2, 3 and 6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dreamddp/profile.h"

namespace dreamddp {

/// The longest period H. Longer ones have no use, and positions of events stay far from the end of int64.
inline constexpr std::int64_t longest_period = 1'000'000;

/// What an op averages.
enum class Quantity { parameters, gradients };

/// When the optimizer steps a layer.
enum class Update {
  step,   ///< all layers together, behind the backward
  fused,  ///< each layer inside the backward, when its gradient is complete and it has been read
};

/// The slice [begin, end) of one layer's flattened parameters, as fractions of it.
struct Segment {
  std::size_t layer = 0;
  double begin = 0;
  double end = 1;

  bool operator==(const Segment&) const = default;
};

enum class EventKind { before_forward, after_forward, after_backward, before_step, after_step };

/// A moment of one iteration. Launches are `after_..` events, deadlines are `before_..` events.
struct Event {
  std::int64_t iteration = 0;  ///< within the plan; a deadline may lie in the next period (>= period)
  EventKind kind = EventKind::after_step;
  std::size_t layer = 0;  ///< unused (0) for step events

  bool operator==(const Event&) const = default;
};

/// One all-reduce. It may start at its launch event and compute waits for it at its deadline event.
struct Op {
  Quantity quantity = Quantity::parameters;
  std::vector<Segment> segments;
  Event launch;
  Event deadline;

  bool operator==(const Op&) const = default;
};

/// Plain data: build it, validate() it once, then treat it as const. Safe to read from many threads.
struct Plan {
  std::string planner;              ///< which algorithm made it; free text
  std::int64_t period = 1;          ///< H
  std::vector<std::string> layers;  ///< names, in the order of the profile
  std::vector<Op> ops;              ///< in launch order; launches lie in iterations 0 .. period-1
  Update update = Update::step;     ///< what the training that carries it out does

  bool operator==(const Plan&) const = default;
};

/// How the result of an op reaches the parameters.
enum class OpMode {
  in_place,  ///< written as it arrives: nobody reads or writes the segments between launch and deadline
  held,      ///< the window spans reads but no step (d = 0): written after the last read
  carried,   ///< the window spans d >= 1 steps: applied as a difference at the deadline
};

/// Total order of the events of all iterations of one profile: F_1 .. F_L, B_L .. B_1, S.
class EventOrder {
 public:
  explicit EventOrder(const Profile& profile, Update update = Update::step);

  /// Position of an event; grows with time. `after_backward l` comes before the next layer's backward;
  /// `after_forward l` before `before_forward l+1`.
  std::int64_t position(const Event& event) const;
  /// The event at which layer l has been read for the last time in `iteration`; where updates are fused, and
  /// stepped.
  Event last_read(std::size_t layer, std::int64_t iteration) const;
  std::size_t num_layers() const { return backward_rank_.size(); }
  Update update() const { return update_; }

 private:
  Update update_;
  std::vector<std::int64_t> backward_rank_;
  std::vector<LastRead> last_read_;
};

/// Number d of optimizer steps behind the backward between the launch and the deadline of an op.
std::int64_t num_steps_crossed(const Op& op);

/// In place for every op of a valid plan with fused updates.
OpMode op_mode(const Op& op, const EventOrder& order);

/// Bytes that held and carried ops of the plan book at most at one time, beyond the staging ring: the
/// result of a held op, snapshot and result of a carried one. Sizes that are unknown count as 0.
std::int64_t booked_bytes(const Plan& plan, const Profile& profile);

/// What people call an op in timelines and messages: "op 3: h.2, h.1[0:0.5]", long lists cut short.
std::string op_label(const Plan& plan, std::size_t op);

/// Parses "dreamddp-plan/1" and checks all that can be checked without a profile: names, fractions, kinds
/// of events, iterations in range.
/// @throws std::invalid_argument naming the op and the field, or the position of a syntax error
Plan parse_plan(std::string_view json);

/// parse_plan() of it gives an equal plan.
std::string to_json(const Plan& plan);

/// Rejects what would lose or corrupt parameters (design section 6): layers other than the profile's, a
/// coordinate of a layer with parameters that is never averaged in a period, two ops in flight on one
/// coordinate (only a carried op may meet its own next launch), a deadline that does not follow its launch or
/// lies more than a period of steps behind it, a deadline `before forward l` for an op that
/// carries a layer read earlier, a deadline between the first and the last read of a layer that it
/// carries, a gradient op whose span is not last backward .. step, launches out of order. Where updates are
/// fused also ops of gradients, and windows in which a layer that they carry is read or stepped.
/// @throws std::invalid_argument naming the op, its layers and what to change
void validate(const Plan& plan, const Profile& profile);

}  // namespace dreamddp
