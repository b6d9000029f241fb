#include "core/planners/balanced_improve.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace dreamddp::balanced {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Place {
  std::size_t cycle = 0;
  Window window = forward_window;

  bool operator==(const Place&) const = default;
};

Window other(Window window) { return window == forward_window ? backward_window : forward_window; }

/// What a window would be after a move.
struct Change {
  Place place;
  std::vector<Piece> pieces;
  Merged merged;
};

/// Quick stand-in for cycle_cost(), and equal to it where one op is in flight and none is early: the windows
/// of a cycle then do not meet on the link.
double quick_cost(const Problem& problem, const Merged& a, const Merged& b) {
  const double exposed = std::max(a.exposed + b.exposed, a.seconds + b.seconds - problem.horizon);
  return cost(problem, exposed, a.groups.size() + b.groups.size());
}

class LocalSearch {
 public:
  LocalSearch(const Problem& problem, std::vector<TimedCycle>& cycles, std::int64_t max_work)
      : problem_(problem), cycles_(cycles), work_left_(max_work) {
    for (const TimedCycle& timed : cycles)
      costs_.push_back(quick_cost(problem, timed.merged[0], timed.merged[1]));
  }

  void run() {
    bool improved = true;
    while (improved && work_left_ > 0) {
      improved = false;
      for (std::size_t cycle = 0; cycle < cycles_.size(); ++cycle) {
        for (const Window window : windows) improved |= relieve({cycle, window});
      }
    }
  }

 private:
  /// Tries to move each piece and each op of a window elsewhere.
  bool relieve(const Place& place) {
    bool improved = false;
    for (std::size_t begin = 0; begin < pieces(place).size() && work_left_ > 0;) {
      const std::size_t end_of_op = end_of_op_at(place, begin);
      if (move(place, begin, begin + 1) || (end_of_op > begin + 1 && move(place, begin, end_of_op))) {
        improved = true;
      } else {
        ++begin;
      }
    }
    return improved;
  }

  /// The end of the op that begins with this piece, or 0 where none does.
  std::size_t end_of_op_at(const Place& place, std::size_t begin) const {
    for (const Group& group : merged(place).groups) {
      if (group.begin == begin) return group.end;
    }
    return 0;
  }

  /// Moves pieces [begin, end) to the window where they cost least, if that is less than they cost here.
  bool move(const Place& from, std::size_t begin, std::size_t end) {
    take_away(from, begin, end);
    const double cost_without =
        quick_cost(problem_, source_.merged, merged({from.cycle, other(from.window)}));
    const double gain = costs_[from.cycle] - cost_without;
    double least_increase = gain - problem_.resolution;
    bool found = false;
    bool seen_empty = false;
    for (std::size_t cycle = 0; cycle < cycles_.size() && least_increase > 0; ++cycle) {
      // Empty cycles are all alike.
      if (num_ops(cycles_[cycle]) == 0 && std::exchange(seen_empty, true)) continue;
      for (const Window window : windows) {
        if (Place{cycle, window} == from) continue;
        const bool is_same_cycle = cycle == from.cycle;
        const Merged& beside = is_same_cycle ? source_.merged : merged({cycle, other(window)});
        const double before = is_same_cycle ? cost_without : costs_[cycle];
        const double increase = cost_of_adding({cycle, window}, beside, before + least_increase) - before;
        if (increase < least_increase - problem_.resolution) {
          least_increase = increase;
          std::swap(best_, target_);
          found = true;
        }
      }
    }
    return found && apply(source_, best_);
  }

  /// Builds in source_ the window without pieces [begin, end), and keeps those in moving_.
  void take_away(const Place& place, std::size_t begin, std::size_t end) {
    const std::vector<Piece>& all = pieces(place);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = all.begin() + static_cast<std::ptrdiff_t>(end);
    moving_.assign(first, last);
    source_.place = place;
    source_.pieces.assign(all.begin(), first);
    source_.pieces.insert(source_.pieces.end(), last, all.end());
    merge(problem_, source_.pieces, source_.merged);
    work_left_ -= static_cast<std::int64_t>(all.size());
  }

  /// Builds in target_ the window with the pieces of moving_.
  /// @return the quick cost of its cycle, or infinity where that is over the limit
  double cost_of_adding(const Place& place, const Merged& beside, double limit) {
    const std::vector<Piece>& all = pieces(place);
    target_.place = place;
    target_.pieces.assign(all.begin(), all.end());
    for (const Piece& piece : moving_)
      insert(target_.pieces, make_piece(problem_, piece.segment, place.window));
    work_left_ -= static_cast<std::int64_t>(target_.pieces.size());
    if (!merge(problem_, target_.pieces, target_.merged, limit - beside.exposed)) return infinity;
    return quick_cost(problem_, target_.merged, beside);
  }

  /// Carries a move out, unless it turns out not to help where the windows of a cycle meet on the link.
  bool apply(Change& a, Change& b) {
    const double before = exact_cost(a.place.cycle, b.place.cycle);
    swap_in(a);
    swap_in(b);
    if (exact_cost(a.place.cycle, b.place.cycle) > before - problem_.resolution) {
      swap_in(b);
      swap_in(a);
      return false;
    }
    for (const std::size_t cycle : {a.place.cycle, b.place.cycle}) {
      costs_[cycle] = quick_cost(problem_, cycles_[cycle].merged[0], cycles_[cycle].merged[1]);
    }
    return true;
  }

  double exact_cost(std::size_t a, std::size_t b) const {
    const double cost = cycle_cost(problem_, cycles_[a]);
    return a == b ? cost : cost + cycle_cost(problem_, cycles_[b]);
  }

  void swap_in(Change& change) {
    TimedCycle& timed = cycles_[change.place.cycle];
    std::swap(timed.cycle[change.place.window], change.pieces);
    std::swap(timed.merged[change.place.window], change.merged);
  }

  const std::vector<Piece>& pieces(const Place& place) const {
    return cycles_[place.cycle].cycle[place.window];
  }
  const Merged& merged(const Place& place) const { return cycles_[place.cycle].merged[place.window]; }

  const Problem& problem_;
  std::vector<TimedCycle>& cycles_;
  std::int64_t work_left_;
  std::vector<double> costs_;  // quick costs by cycle
  std::vector<Piece> moving_;
  Change source_;
  Change target_;
  Change best_;
};

}  // namespace

void improve(const Problem& problem, Schedule& schedule, std::int64_t max_work) {
  LocalSearch(problem, schedule.cycles, max_work).run();
  schedule.cost = 0;
  for (const TimedCycle& timed : schedule.cycles) schedule.cost += cycle_cost(problem, timed);
}

}  // namespace dreamddp::balanced
