#include "core/planners/balanced_schedule.h"

#include <algorithm>
#include <utility>

namespace dreamddp::balanced {
namespace {

void add_up(const Problem& problem, Schedule& schedule) {
  schedule.cost = 0;
  for (const TimedCycle& timed : schedule.cycles) schedule.cost += cycle_cost(problem, timed);
}

Group group_of(const std::vector<Piece>& pieces, std::size_t begin, std::size_t end) {
  Group group{.begin = begin, .end = end, .seconds = 0};
  for (std::size_t i = begin; i < end; ++i) group.seconds += pieces[i].seconds;
  return group;
}

/// The op of one group; cycle h is the one of iteration h.
Op make_op(const std::vector<Piece>& pieces, const Group& group) {
  Op op;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const Segment& segment = pieces[i].segment;
    // Shares of a layer that have met again are one.
    if (!op.segments.empty() && op.segments.back().layer == segment.layer &&
        op.segments.back().end == segment.begin) {
      op.segments.back().end = segment.end;
    } else {
      op.segments.push_back(segment);
    }
  }
  return op;
}

void add_backward_ops(const TimedCycle& timed, std::int64_t iteration, const EventOrder& order,
                      std::vector<Op>& ops) {
  const std::vector<Piece>& pieces = timed.cycle[backward_window];
  const std::vector<Group>& groups = timed.merged[backward_window].groups;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {  // the widest is ready first
    Op op = make_op(pieces, *group);
    op.launch = order.last_read(pieces[group->begin].segment.layer, iteration);
    op.deadline = {iteration, EventKind::before_step, 0};
    ops.push_back(std::move(op));
  }
}

void add_forward_ops(const TimedCycle& timed, std::int64_t iteration, std::vector<Op>& ops) {
  const std::vector<Piece>& pieces = timed.cycle[forward_window];
  for (const Group& group : timed.merged[forward_window].groups) {
    Op op = make_op(pieces, group);
    op.launch = {iteration - 1, EventKind::after_step, 0};
    op.deadline = {iteration, EventKind::before_forward, pieces[group.begin].segment.layer};
    ops.push_back(std::move(op));
  }
}

}  // namespace

double cost(const Problem& problem, double exposed_seconds, std::size_t num_ops) {
  return exposed_seconds + (1e-5 * problem.horizon + 10 * problem.resolution) * static_cast<double>(num_ops);
}

std::size_t num_ops(const TimedCycle& timed) {
  return timed.merged[forward_window].groups.size() + timed.merged[backward_window].groups.size();
}

double cycle_cost(const Problem& problem, const TimedCycle& timed) {
  return cost(problem, exposed_seconds(problem, timed.cycle, timed.merged), num_ops(timed));
}

Schedule make_schedule(const Problem& problem, Assignment assignment) {
  Schedule schedule;
  for (Cycle& cycle : assignment) {
    TimedCycle timed{.cycle = std::move(cycle), .merged = {}};
    for (const Window window : windows) merge(problem, timed.cycle[window], timed.merged[window]);
    schedule.cycles.push_back(std::move(timed));
  }
  add_up(problem, schedule);
  return schedule;
}

Schedule local_sgd_schedule(const Problem& problem) {
  Schedule schedule{.cycles = std::vector<TimedCycle>(1), .cost = 0};
  std::vector<Piece>& pieces = schedule.cycles[0].cycle[forward_window];
  for (const std::size_t layer : problem.averaged)
    insert(pieces, make_piece(problem, {.layer = layer}, forward_window));
  if (!pieces.empty()) {
    schedule.cycles[0].merged[forward_window].groups = {group_of(pieces, 0, pieces.size())};
  }
  add_up(problem, schedule);
  return schedule;
}

Schedule equal_count_schedule(const Problem& problem) {
  Schedule schedule;
  std::vector<std::size_t> layers = problem.averaged;
  std::ranges::sort(layers, std::ranges::greater{});
  std::size_t last_iteration = problem.period;  // of none
  for (std::size_t i = 0; i < layers.size(); ++i) {
    // Cycles are alike, so those without layers need not be kept in between.
    const std::size_t iteration = i * problem.period / layers.size();
    if (std::exchange(last_iteration, iteration) != iteration) schedule.cycles.emplace_back();
    insert(schedule.cycles.back().cycle[backward_window],
           make_piece(problem, {.layer = layers[i]}, backward_window));
  }
  for (TimedCycle& timed : schedule.cycles) {
    const std::vector<Piece>& pieces = timed.cycle[backward_window];
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      timed.merged[backward_window].groups.push_back(group_of(pieces, i, i + 1));
    }
  }
  add_up(problem, schedule);
  return schedule;
}

std::vector<Op> make_ops(const Problem& problem, const Schedule& schedule, const EventOrder& order) {
  const auto period = static_cast<std::int64_t>(problem.period);
  const auto num_cycles = static_cast<std::int64_t>(schedule.cycles.size());
  std::vector<Op> ops;
  for (std::int64_t h = 0; h < num_cycles; ++h) {
    const TimedCycle& timed = schedule.cycles[static_cast<std::size_t>(h)];
    if (h > 0) add_forward_ops(timed, h, ops);
    add_backward_ops(timed, h, order, ops);
  }
  // The forward window of cycle 0 is opened by the last step of the period before.
  if (num_cycles > 0) add_forward_ops(schedule.cycles[0], period, ops);
  return ops;
}

}  // namespace dreamddp::balanced
