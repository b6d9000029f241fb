#include "core/planners/balanced_fill.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

namespace dreamddp::balanced {
namespace {

/// What becomes of early layers. They have room left in the end; those tied to the output head compete with
/// all others for the backward, and so may have to come before them.
enum class EarlyLayers { last, first, in_every_iteration };

/// How one walk goes.
struct WalkRules {
  std::array<double, 2> exposed{};  ///< seconds that every window may keep compute waiting
  double pool = 0;                  ///< seconds of waiting in a period, for windows that need more
  double op_seconds = 0;            ///< what an op takes beside its link time
  bool splits_eagerly = false;      ///< fills up ops with parts of a layer before it begins another op
  EarlyLayers early = EarlyLayers::last;
};

/// A window of a cycle while it is filled. Its last op is open: layers may still join it, up to the cover of
/// the layer that began it. Later begun ops have more cover, but each costs a latency.
struct Bin {
  double booked = 0;   ///< link time and latencies
  double exposed = 0;  ///< seconds that it may keep compute waiting
  double cover = 0;    ///< of the open op
  bool has_open_op = false;
};

// A wait in every iteration pays only where periods are short.
constexpr std::size_t longest_period_with_equal_waits = 100;

// Longer periods are of no use to a plan that hides everything in so many iterations, and cost time to plan.
constexpr std::size_t most_cycles = 1000;

std::size_t max_cycles(const Problem& problem) { return std::min(problem.period, most_cycles); }

struct Place {
  std::size_t cycle = 0;
  Window window = forward_window;
  double room = -std::numeric_limits<double>::infinity();  ///< seconds of link time that fit in
};

class Walk {
 public:
  Walk(const Problem& problem, const WalkRules& rules) : problem_(problem), rules_(rules), pool_(rules.pool) {
    add_empty_cycle();
  }

  /// @return nothing where it cannot be done within the exposed time that the rules allow
  std::optional<Assignment> run() {
    if (rules_.early != EarlyLayers::last && !place_all_early()) return std::nullopt;
    for (const std::size_t layer : problem_.averaged) {
      const LayerTimes& times = problem_.layers[layer];
      if (times.is_early) continue;
      const bool is_in_turn = times.rank[backward_window] >= last_rank_;
      if (!(is_in_turn ? place(layer) : place_out_of_turn(layer))) return std::nullopt;
      if (is_in_turn) last_rank_ = times.rank[backward_window];
    }
    if (rules_.early == EarlyLayers::last && !place_all_early()) return std::nullopt;
    return std::move(assignment_);
  }

 private:
  bool place_all_early() {
    for (const std::size_t layer : problem_.averaged) {
      if (!problem_.layers[layer].is_early) continue;
      const bool is_placed = rules_.early == EarlyLayers::in_every_iteration ? place_in_every_iteration(layer)
                                                                             : place_out_of_turn(layer);
      if (!is_placed) return false;
    }
    return true;
  }

  /// Gives the layer, whole, to an open op that has room for it; else to a new op in the window that gains
  /// most by one; else to the widest window, which then makes compute wait; and splits it where none of this
  /// can be.
  bool place(std::size_t layer) {
    Segment rest{.layer = layer};
    while (true) {
      const double seconds = seconds_of(rest);
      const Place open = widest_open_op(layer);
      if (fits(seconds, open)) return put(rest, open);
      if (rules_.splits_eagerly && is_worth_filling(open)) {
        put(cut(rest, open.room), open);
        continue;
      }
      const std::optional<Place> fresh = best_new_op(layer, seconds);
      if (fresh && fits(seconds, *fresh)) return put_in_new_op(rest, *fresh);
      if (place_with_waiting(rest, open)) return true;
      if (is_worth_filling(open)) {
        put(cut(rest, open.room), open);
      } else if (fresh) {
        put_in_new_op(cut(rest, fresh->room), *fresh);
      } else {
        return false;
      }
    }
  }

  /// For an early layer, or one whose backward does not run in the order of the forwards: spreads it over the
  /// least loaded windows, in ops of its own.
  bool place_out_of_turn(std::size_t layer) {
    Segment rest{.layer = layer};
    while (true) {
      Place widest = widest_new_op(layer);
      if (!fits(seconds_of(rest), widest) && may_wait(seconds_of(rest) - widest.room)) {
        wait_in(widest, seconds_of(rest) - widest.room);
      }
      const bool is_whole = fits(seconds_of(rest), widest);
      if (!is_whole && !is_worth_filling(widest)) return false;
      put_in_closed_op(is_whole ? rest : cut(rest, widest.room), widest);
      if (is_whole) return true;
    }
  }

  /// For an early layer: an equal share in every cycle, in the wider of its windows.
  bool place_in_every_iteration(std::size_t layer) {
    while (bins_.size() < max_cycles(problem_)) add_empty_cycle();
    const auto num_shares = static_cast<double>(bins_.size());
    for (std::size_t cycle = 0; cycle < bins_.size(); ++cycle) {
      const Segment share{.layer = layer,
                          .begin = static_cast<double>(cycle) / num_shares,
                          .end = static_cast<double>(cycle + 1) / num_shares};
      const double forward_room = room_of_new_op(layer, cycle, forward_window);
      const double backward_room = room_of_new_op(layer, cycle, backward_window);
      Place place = forward_room > backward_room + problem_.resolution
                        ? Place{cycle, forward_window, forward_room}
                        : Place{cycle, backward_window, backward_room};
      const double missing = seconds_of(share) - place.room;
      if (missing > problem_.resolution) {
        if (!may_wait(missing)) return false;
        wait_in(place, missing);
      }
      put_in_closed_op(share, place);
    }
    return true;
  }

  /// Takes the waiting that the rest of a layer needs from the pool.
  bool place_with_waiting(const Segment& rest, Place open) {
    Place fresh = widest_new_op(rest.layer);
    const bool is_new = fresh.room > open.room + problem_.resolution;
    Place& place = is_new ? fresh : open;
    const double missing = seconds_of(rest) - place.room;
    if (!may_wait(missing)) return false;
    wait_in(place, missing);
    return is_new ? put_in_new_op(rest, place) : put(rest, place);
  }

  bool may_wait(double seconds) const { return pool_ > 0 && seconds <= pool_ + problem_.resolution; }

  void wait_in(Place& place, double seconds) {
    pool_ -= seconds;
    bins_[place.cycle][place.window].exposed += seconds;
    place.room += seconds;
  }

  bool fits(double seconds, const Place& place) const { return seconds <= place.room + problem_.resolution; }

  bool is_worth_filling(const Place& place) const {
    return place.room > 0.05 * rules_.op_seconds + 10 * problem_.resolution;
  }

  Place widest_open_op(std::size_t layer) const {
    Place widest;
    for_each_bin([&](std::size_t cycle, Window window, const Bin& bin) {
      if (!bin.has_open_op) return;
      const double room = room_of_open_op(layer, cycle, window);
      if (room > widest.room + problem_.resolution) widest = {cycle, window, room};
    });
    return widest;
  }

  Place widest_new_op(std::size_t layer) const {
    Place widest;
    for_each_bin([&](std::size_t cycle, Window window, const Bin&) {
      const double room = room_of_new_op(layer, cycle, window);
      if (room > widest.room + problem_.resolution) widest = {cycle, window, room};
    });
    return widest;
  }

  /// Where a new op that this layer begins adds most room; before all, where the layer then fits in whole.
  std::optional<Place> best_new_op(std::size_t layer, double seconds) const {
    std::optional<Place> best;
    double most_gain = 0;
    for_each_bin([&](std::size_t cycle, Window window, const Bin& bin) {
      const Place place{cycle, window, room_of_new_op(layer, cycle, window)};
      const double gain = bin.has_open_op ? place.room - room_of_open_op(layer, cycle, window) : place.room;
      const bool is_whole = fits(seconds, place);
      if (!is_whole && (gain <= problem_.resolution || place.room <= 10 * problem_.resolution)) return;
      const bool best_is_whole = best && fits(seconds, *best);
      if (!best || (is_whole && !best_is_whole) ||
          (is_whole == best_is_whole && gain > most_gain + problem_.resolution)) {
        best = place;
        most_gain = gain;
      }
    });
    return best;
  }

  double room_of_open_op(std::size_t layer, std::size_t cycle, Window window) const {
    return room(layer, cycle, window, bins_[cycle][window].cover);
  }

  double room_of_new_op(std::size_t layer, std::size_t cycle, Window window) const {
    return room(layer, cycle, window, problem_.layers[layer].cover[window]) - rules_.op_seconds;
  }

  /// Seconds of a layer that an op with this cover can take, without delaying those with more cover too far.
  double room(std::size_t layer, std::size_t cycle, Window window, double cover) const {
    const std::size_t rank = problem_.layers[layer].rank[window];
    const std::vector<Piece>& pieces = assignment_[cycle][window];
    double booked = bins_[cycle][window].booked;
    double least = std::numeric_limits<double>::infinity();
    for (auto piece = pieces.rbegin(); piece != pieces.rend() && piece->rank > rank; ++piece) {
      least = std::min(least, piece->cover - booked);
      booked -= piece->seconds;
    }
    least = std::min(least, cover - booked) + bins_[cycle][window].exposed;
    // The ops of early layers share the link with those of both windows.
    const auto& [forward, backward] = bins_[cycle];
    return std::min(least,
                    problem_.horizon + forward.exposed + backward.exposed - forward.booked - backward.booked);
  }

  template <typename Visit>
  void for_each_bin(const Visit& visit) const {
    for (std::size_t cycle = 0; cycle < bins_.size(); ++cycle) {
      for (const Window window : windows) visit(cycle, window, bins_[cycle][window]);
    }
  }

  void book_op(const Place& place) {
    bins_[place.cycle][place.window].booked += rules_.op_seconds;
    // Empty cycles are all alike, so one of them at the end is enough.
    if (place.cycle + 1 == bins_.size() && bins_.size() < max_cycles(problem_)) add_empty_cycle();
  }

  void add_empty_cycle() {
    bins_.push_back({Bin{.exposed = rules_.exposed[0]}, Bin{.exposed = rules_.exposed[1]}});
    assignment_.emplace_back();
  }

  double seconds_of(const Segment& segment) const {
    return (segment.end - segment.begin) * problem_.layers[segment.layer].link_seconds;
  }

  /// Takes `seconds` of link time off the begin of a segment.
  Segment cut(Segment& rest, double seconds) const {
    Segment share = rest;
    share.end = std::min(rest.begin + seconds / problem_.layers[rest.layer].link_seconds, rest.end);
    rest.begin = share.end;
    return share;
  }

  bool put_in_new_op(const Segment& segment, const Place& place) {
    book_op(place);
    Bin& bin = bins_[place.cycle][place.window];
    bin.cover = problem_.layers[segment.layer].cover[place.window];
    bin.has_open_op = true;
    return put(segment, place);
  }

  /// Layers that come later do not join this op.
  void put_in_closed_op(const Segment& segment, const Place& place) {
    book_op(place);
    put(segment, place);
  }

  /// @return true
  bool put(const Segment& segment, const Place& place) {
    const Piece piece = make_piece(problem_, segment, place.window);
    insert(assignment_[place.cycle][place.window], piece);
    bins_[place.cycle][place.window].booked += piece.seconds;
    return true;
  }

  const Problem& problem_;
  const WalkRules& rules_;
  double pool_;  // seconds of waiting that are left
  std::vector<std::array<Bin, 2>> bins_;
  Assignment assignment_;
  std::size_t last_rank_ = 0;  // in the backward window, of the last layer that came in turn
};

/// Who may wait: every forward window, every backward window, or any window that needs it.
enum class Waiting { forward, backward, pooled };

/// The walk with the least exposed time.
Assignment fill(const Problem& problem, Waiting waiting, WalkRules rules) {
  const auto walk = [&](double exposed) {
    if (waiting == Waiting::forward) rules.exposed[forward_window] = exposed;
    if (waiting == Waiting::backward) rules.exposed[backward_window] = exposed;
    if (waiting == Waiting::pooled) rules.pool = exposed * static_cast<double>(problem.period);
    return Walk(problem, rules).run();
  };
  const double precision = 0.02 * problem.latency + 1e-5 * problem.horizon + problem.resolution;
  double low = problem.unavoidable;
  std::optional<Assignment> found = walk(low);
  if (found) return *std::move(found);
  // With enough time to wait every walk ends.
  double step = problem.latency + 10 * precision;
  while (!found) {
    step *= 2;
    found = walk(low + step);
  }
  double high = low + step;
  while (high - low > precision) {
    const double middle = low + (high - low) / 2;
    if (std::optional<Assignment> better = walk(middle)) {
      found = std::move(better);
      high = middle;
    } else {
      low = middle;
    }
  }
  return *std::move(found);
}

std::vector<Waiting> ways_to_wait(const Problem& problem) {
  if (problem.period > longest_period_with_equal_waits) return {Waiting::pooled};
  return {Waiting::pooled, Waiting::forward, Waiting::backward};
}

std::vector<EarlyLayers> ways_of_early_layers(const Problem& problem) {
  const auto is_early = [&](std::size_t layer) { return problem.layers[layer].is_early; };
  if (std::ranges::none_of(problem.averaged, is_early)) return {EarlyLayers::last};
  return {EarlyLayers::last, EarlyLayers::first, EarlyLayers::in_every_iteration};
}

}  // namespace

std::vector<Assignment> fill_windows(const Problem& problem) {
  WalkRules rules{.op_seconds = problem.latency / static_cast<double>(problem.in_flight)};
  std::vector<Assignment> assignments;
  for (const EarlyLayers early : ways_of_early_layers(problem)) {
    for (const Waiting waiting : ways_to_wait(problem)) {
      for (const bool splits_eagerly : {false, true}) {
        rules.early = early;
        rules.splits_eagerly = splits_eagerly;
        assignments.push_back(fill(problem, waiting, rules));
      }
    }
  }
  return assignments;
}

}  // namespace dreamddp::balanced
