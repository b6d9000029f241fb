#include "core/planners/balanced_fill.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

namespace dreamddp::balanced {
namespace {

/// How one walk goes.
struct WalkRules {
  std::array<double, 2> exposed{};  ///< seconds that each window may keep compute waiting
  double op_seconds = 0;            ///< what an op takes beside its link time
  bool splits_eagerly = false;      ///< fills up ops with parts of a layer before it begins another op
};

/// A window of a cycle while it is filled. Its last op is open: layers may still join it, up to the cover of
/// the layer that began it. Later begun ops have more cover, but each costs a latency.
struct Bin {
  double booked = 0;  ///< link time and latencies
  double cover = 0;   ///< of the open op
  bool has_ops = false;
};

struct Place {
  std::size_t cycle = 0;
  Window window = forward_window;
  double room = -std::numeric_limits<double>::infinity();  ///< seconds of link time that fit in
};

class Walk {
 public:
  Walk(const Problem& problem, const WalkRules& rules) : problem_(problem), rules_(rules) {
    add_empty_cycle();
  }

  /// @return nothing where it cannot be done within the exposed time that the rules allow
  std::optional<Assignment> run() {
    for (const std::size_t layer : problem_.averaged) {
      const bool is_placed = problem_.layers[layer].is_early ? place_early(layer) : place(layer);
      if (!is_placed) return std::nullopt;
    }
    return std::move(assignment_);
  }

 private:
  /// Gives the layer, whole, to an open op that has room for it; else to a new op in the window that gains
  /// most by one; splits it only where neither can take it whole.
  bool place(std::size_t layer) {
    Segment rest{.layer = layer};
    while (true) {
      const double seconds = make_piece(problem_, rest, forward_window).seconds;
      const Place open = widest_open_op();
      if (seconds <= open.room + problem_.resolution) {
        put(rest, open);
        return true;
      }
      const std::optional<Place> fresh = best_new_op(layer, seconds);
      const bool is_worth_filling = open.room > 0.05 * rules_.op_seconds + 10 * problem_.resolution;
      if (is_worth_filling && (rules_.splits_eagerly || !fresh)) {
        put(cut(rest, open.room), open);
        continue;
      }
      if (!fresh) return false;
      begin_op(*fresh, problem_.layers[layer].cover[fresh->window]);
      if (seconds <= fresh->room + problem_.resolution) {
        put(rest, *fresh);
        return true;
      }
      put(cut(rest, fresh->room), *fresh);
    }
  }

  /// Spreads the layer over the least loaded windows, in ops of its own.
  bool place_early(std::size_t layer) {
    Segment rest{.layer = layer};
    while (true) {
      const double seconds = make_piece(problem_, rest, forward_window).seconds;
      const Place widest = widest_place_for_early(layer);
      const bool fits = seconds <= widest.room + problem_.resolution;
      if (!fits && widest.room <= 0.05 * rules_.op_seconds + 10 * problem_.resolution) return false;
      begin_op(widest, bins_[widest.cycle][widest.window].cover);
      put(fits ? rest : cut(rest, widest.room), widest);
      if (fits) return true;
    }
  }

  Place widest_open_op() const {
    Place widest;
    for_each_bin([&](std::size_t cycle, Window window, const Bin& bin) {
      if (bin.has_ops && room(bin, window) > widest.room + problem_.resolution) {
        widest = {cycle, window, room(bin, window)};
      }
    });
    return widest;
  }

  /// Where a new op that this layer begins adds most room; before all, where the layer then fits in whole.
  std::optional<Place> best_new_op(std::size_t layer, double seconds) const {
    std::optional<Place> best;
    double most_gain = 0;
    bool best_fits = false;
    for_each_bin([&](std::size_t cycle, Window window, const Bin& bin) {
      Bin begun = bin;
      begun.booked += rules_.op_seconds;
      begun.cover = problem_.layers[layer].cover[window];
      const double new_room = room(begun, window);
      const double gain = bin.has_ops ? new_room - room(bin, window) : new_room;
      const bool fits = seconds <= new_room + problem_.resolution;
      if (!fits && (gain <= problem_.resolution || new_room <= 10 * problem_.resolution)) return;
      if (!best || (fits && !best_fits) || (fits == best_fits && gain > most_gain + problem_.resolution)) {
        best = Place{cycle, window, new_room};
        most_gain = gain;
        best_fits = fits;
      }
    });
    return best;
  }

  /// For layers that come out of turn: room for one more op that delays those with more cover.
  Place widest_place_for_early(std::size_t layer) const {
    Place widest;
    for_each_bin([&](std::size_t cycle, Window window, const Bin& bin) {
      double booked = bin.booked;
      double least = std::numeric_limits<double>::infinity();
      const LayerTimes& times = problem_.layers[layer];
      const std::vector<Piece>& pieces = assignment_[cycle][window];
      for (auto piece = pieces.rbegin(); piece != pieces.rend() && piece->rank > times.rank[window];
           ++piece) {
        least = std::min(least, piece->cover - booked);
        booked -= piece->seconds;
      }
      least = std::min(least, times.cover[window] - booked) + rules_.exposed[window];
      // An early op shares the link with the ops of both windows.
      const double load = bins_[cycle][forward_window].booked + bins_[cycle][backward_window].booked;
      const double free =
          problem_.horizon + rules_.exposed[forward_window] + rules_.exposed[backward_window] - load;
      const double room = std::min(least, free) - rules_.op_seconds;
      if (room > widest.room + problem_.resolution) widest = {cycle, window, room};
    });
    return widest;
  }

  double room(const Bin& bin, Window window) const { return bin.cover + rules_.exposed[window] - bin.booked; }

  template <typename Visit>
  void for_each_bin(const Visit& visit) const {
    for (std::size_t cycle = 0; cycle < bins_.size(); ++cycle) {
      for (const Window window : windows) visit(cycle, window, bins_[cycle][window]);
    }
  }

  void begin_op(const Place& place, double cover) {
    Bin& bin = bins_[place.cycle][place.window];
    bin.booked += rules_.op_seconds;
    bin.cover = cover;
    bin.has_ops = true;
    // Empty cycles are all alike, so one of them at the end is enough.
    if (place.cycle + 1 == bins_.size() && bins_.size() < problem_.period) add_empty_cycle();
  }

  void add_empty_cycle() {
    bins_.emplace_back();
    assignment_.emplace_back();
  }

  /// Takes `seconds` of link time off the begin of a segment.
  Segment cut(Segment& rest, double seconds) const {
    Segment share = rest;
    share.end = std::min(rest.begin + seconds / problem_.layers[rest.layer].link_seconds, rest.end);
    rest.begin = share.end;
    return share;
  }

  void put(const Segment& segment, const Place& place) {
    const Piece piece = make_piece(problem_, segment, place.window);
    insert(assignment_[place.cycle][place.window], piece);
    bins_[place.cycle][place.window].booked += piece.seconds;
  }

  const Problem& problem_;
  const WalkRules& rules_;
  std::vector<std::array<Bin, 2>> bins_;
  Assignment assignment_;
};

/// The walk with the least exposed time, of which the forward window gets a share.
Assignment fill(const Problem& problem, double forward_share, bool splits_eagerly) {
  WalkRules rules{.op_seconds = problem.latency / static_cast<double>(problem.in_flight),
                  .splits_eagerly = splits_eagerly};
  const auto walk = [&](double exposed) {
    rules.exposed = {forward_share * exposed, (1 - forward_share) * exposed};
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

}  // namespace

std::vector<Assignment> fill_windows(const Problem& problem) {
  std::vector<Assignment> assignments;
  for (const double forward_share : {0.0, 1.0}) {
    for (const bool splits_eagerly : {false, true}) {
      assignments.push_back(fill(problem, forward_share, splits_eagerly));
    }
  }
  return assignments;
}

}  // namespace dreamddp::balanced
