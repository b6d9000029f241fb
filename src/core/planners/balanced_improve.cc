#include "core/planners/balanced_improve.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dreamddp::balanced {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// What an op counts beside the time it costs, so that of equal schedules the one with fewer ops wins.
double op_price(const Problem& problem) { return 1e-5 * problem.horizon + 10 * problem.resolution; }

std::size_t num_ops(const std::array<Merged, 2>& merged) {
  return merged[forward_window].groups.size() + merged[backward_window].groups.size();
}

double exact_cost(const Problem& problem, const TimedCycle& timed) {
  return exposed_seconds(problem, timed.cycle, timed.merged) +
         op_price(problem) * static_cast<double>(num_ops(timed.merged));
}

/// Quick stand-in for exact_cost(), and equal to it where one op is in flight and no op is early: the windows
/// then do not meet on the link.
double quick_cost(const Problem& problem, const Merged& one, const Merged& other) {
  const double link = one.seconds + other.seconds;
  const double ops = static_cast<double>(one.groups.size() + other.groups.size());
  return std::max(one.exposed + other.exposed, link - problem.horizon) + op_price(problem) * ops;
}

struct Place {
  std::size_t cycle = 0;
  Window window = forward_window;

  bool operator==(const Place&) const = default;
};

/// Neighbouring pieces of one window.
struct Range {
  Place place;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// What a window would be after a move.
struct Change {
  Place place;
  std::vector<Piece> pieces;
  Merged merged;
};

class LocalSearch {
 public:
  LocalSearch(const Problem& problem, Schedule& schedule, std::int64_t max_trials)
      : problem_(problem), schedule_(schedule), trials_left_(max_trials) {
    for (const TimedCycle& timed : schedule.cycles) {
      costs_.push_back(quick_cost(problem, timed.merged[0], timed.merged[1]));
    }
  }

  void run() {
    while (trials_left_ > 0 && (sweep(&LocalSearch::move_elsewhere) || sweep(&LocalSearch::move_share) ||
                                sweep(&LocalSearch::exchange))) {
    }
  }

 private:
  /// Tries one kind of move for every piece and every op of every window.
  bool sweep(bool (LocalSearch::*attempt)(const Range&)) {
    bool improved = false;
    for (std::size_t cycle = 0; cycle < schedule_.cycles.size(); ++cycle) {
      for (const Window window : windows) {
        const Place place{cycle, window};
        for (std::size_t begin = 0; begin < pieces(place).size() && trials_left_ > 0;) {
          if ((this->*attempt)({place, begin, begin + 1}) || attempt_op(attempt, place, begin)) {
            improved = true;
          } else {
            ++begin;
          }
        }
      }
    }
    return improved;
  }

  /// The same for the op that begins with this piece.
  bool attempt_op(bool (LocalSearch::*attempt)(const Range&), const Place& place, std::size_t begin) {
    for (const Group& group : merged(place).groups) {
      if (group.begin == begin && group.end > begin + 1) return (this->*attempt)({place, begin, group.end});
    }
    return false;
  }

  bool move_elsewhere(const Range& range) {
    const double gain = costs_[range.place.cycle] - cost_after(source_, range, {});
    if (gain <= problem_.resolution) return false;
    const std::vector<Piece> moving = copy(range);
    return put_best(moving, range.place, gain);
  }

  bool move_share(const Range& range) {
    if (range.end > range.begin + 1) return false;
    const Piece whole = pieces(range.place)[range.begin];
    for (const double share : {0.5, 0.25}) {
      Piece moving = whole;
      Piece staying = whole;
      moving.segment.end = whole.segment.begin + share * (whole.segment.end - whole.segment.begin);
      staying.segment.begin = moving.segment.end;
      staying.seconds = whole.seconds - share * whole.seconds;
      const double gain = costs_[range.place.cycle] - cost_after(source_, range, {staying});
      if (gain > problem_.resolution && put_best({moving}, range.place, gain)) return true;
    }
    return false;
  }

  bool exchange(const Range& range) { return false; }

  /// Puts pieces that have left source_ where they cost least.
  bool put_best(const std::vector<Piece>& moving, const Place& from, double gain) {
    double least = gain - problem_.resolution;
    bool found = false;
    bool seen_empty = false;
    for (std::size_t cycle = 0; cycle < schedule_.cycles.size() && least > 0; ++cycle) {
      if (num_ops(schedule_.cycles[cycle].merged) == 0 && std::exchange(seen_empty, true)) continue;
      for (const Window window : windows) {
        const Place to{cycle, window};
        if (to == from) continue;
        const double base = cycle == from.cycle ? costs_[cycle] - gain : costs_[cycle];
        const double increase = cost_after(target_, {to, 0, 0}, moving, base + least, &from) - base;
        if (increase < least - problem_.resolution) {
          least = increase;
          std::swap(best_, target_);
          found = true;
        }
      }
    }
    return found && apply(source_, best_);
  }

  /// Builds in `change` the window without a range and with other pieces.
  /// @param other the window of source_, when it may be in the same cycle
  /// @return the quick cost of its cycle, or infinity where it is over the limit
  double cost_after(Change& change, const Range& without, const std::vector<Piece>& with, double limit = infinity,
                    const Place* other_place = nullptr) {
    --trials_left_;
    change.place = without.place;
    const std::vector<Piece>& before = pieces(without.place);
    change.pieces.assign(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(without.begin));
    change.pieces.insert(change.pieces.end(), before.begin() + static_cast<std::ptrdiff_t>(without.end),
                         before.end());
    for (const Piece& piece : with) {
      insert(change.pieces, make_piece(problem_, piece.segment, without.place.window));
    }
    const Window other_window = without.place.window == forward_window ? backward_window : forward_window;
    const Place other{without.place.cycle, other_window};
    const Merged& beside = other_place && *other_place == other ? source_.merged : merged(other);
    if (!merge(problem_, change.pieces, change.merged, limit - beside.exposed)) return infinity;
    return quick_cost(problem_, change.merged, beside);
  }

  bool apply(Change& a, Change& b) {
    swap_in(a);
    swap_in(b);
    if (!is_exact()) {
      // revert when worse
    }
    for (const std::size_t cycle : {a.place.cycle, b.place.cycle}) {
      const auto& merged = schedule_.cycles[cycle].merged;
      costs_[cycle] = quick_cost(problem_, merged[0], merged[1]);
    }
    return true;
  }
  bool is_exact() const { return true; }

  void swap_in(Change& change) {
    TimedCycle& timed = schedule_.cycles[change.place.cycle];
    std::swap(timed.cycle[change.place.window], change.pieces);
    std::swap(timed.merged[change.place.window], change.merged);
  }

  const std::vector<Piece>& pieces(const Place& place) const {
    return schedule_.cycles[place.cycle].cycle[place.window];
  }
  const Merged& merged(const Place& place) const { return schedule_.cycles[place.cycle].merged[place.window]; }
  std::vector<Piece> copy(const Range& range) const {
    const auto begin = pieces(range.place).begin();
    return {begin + static_cast<std::ptrdiff_t>(range.begin), begin + static_cast<std::ptrdiff_t>(range.end)};
  }

  const Problem& problem_;
  Schedule& schedule_;
  std::int64_t trials_left_;
  std::vector<double> costs_;
  Change source_;
  Change target_;
  Change best_;
};

void sum_up(const Problem& problem, Schedule& schedule) {
  schedule.exposed = 0;
  schedule.num_ops = 0;
  for (const TimedCycle& timed : schedule.cycles) {
    schedule.exposed += exposed_seconds(problem, timed.cycle, timed.merged);
    schedule.num_ops += num_ops(timed.merged);
  }
}

}  // namespace

Schedule make_schedule(const Problem& problem, Assignment assignment) {
  Schedule schedule;
  schedule.cycles.resize(assignment.size());
  for (std::size_t h = 0; h < assignment.size(); ++h) {
    TimedCycle& timed = schedule.cycles[h];
    timed.cycle = std::move(assignment[h]);
    for (const Window window : windows) merge(problem, timed.cycle[window], timed.merged[window]);
  }
  sum_up(problem, schedule);
  return schedule;
}

bool is_better(const Problem& problem, const Schedule& a, const Schedule& b) {
  const auto total = [&](const Schedule& schedule) {
    return schedule.exposed + op_price(problem) * static_cast<double>(schedule.num_ops);
  };
  return total(a) < total(b) - problem.resolution;
}

void improve(const Problem& problem, Schedule& schedule, std::int64_t max_trials) {
  LocalSearch(problem, schedule, max_trials).run();
  sum_up(problem, schedule);
}

}  // namespace dreamddp::balanced
