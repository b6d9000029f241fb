#include "core/planners/balanced_assign.h"

#include <algorithm>
#include <limits>

namespace dreamddp::balanced {
namespace {

struct Place {
  std::size_t cycle = 0;
  Window window = forward_window;
  double slack = -std::numeric_limits<double>::infinity();
};

class Walk {
 public:
  Walk(const Problem& problem, const AssignRules& rules)
      : problem_(problem),
        rules_(rules),
        assignment_(static_cast<std::size_t>(problem.period)),
        load_(assignment_.size(), {0, 0}) {}

  void place(const Part& part) {
    double seconds = 0;
    for (const Segment& segment : part) seconds += (segment.end - segment.begin) * link_of(segment);
    const Place best = widest_place(part.front().layer);
    if (!rules_.may_split || seconds <= best.slack + problem_.resolution) {
      for (const Segment& segment : part) put(segment, best);
      load_[best.cycle][best.window] += rules_.latency;
    } else {
      for (const Segment& segment : part) spread(segment, best);
    }
  }

  Assignment take() { return std::move(assignment_); }

 private:
  double link_of(const Segment& segment) const { return problem_.layers[segment.layer].link; }

  /// Seconds that can be added for this layer before any deadline of the window is missed.
  double slack(std::size_t layer, std::size_t cycle, Window window) const {
    const LayerTimes& times = problem_.layers[layer];
    double booked = load_[cycle][window];
    double least = std::numeric_limits<double>::infinity();
    const auto& pieces = assignment_[cycle][window];
    for (auto piece = pieces.rbegin(); piece != pieces.rend() && piece->rank > times.rank[window]; ++piece) {
      least = std::min(least, piece->cover - booked);
      booked -= piece->seconds;
    }
    least = std::min(least, times.cover[window] - booked) + rules_.exposed[window] - rules_.latency;
    if (!times.early) return least;
    // An early op shares the link with both windows.
    const double free = problem_.horizon + rules_.exposed[forward_window] + rules_.exposed[backward_window] -
                        load_[cycle][forward_window] - load_[cycle][backward_window];
    return std::min(least, free - rules_.latency);
  }

  Place widest_place(std::size_t layer) const {
    Place best;
    for (std::size_t cycle = 0; cycle < assignment_.size(); ++cycle) {
      for (const Window window : windows) {
        const double room = slack(layer, cycle, window);
        if (room > best.slack + problem_.resolution) best = {cycle, window, room};
      }
    }
    return best;
  }

  void put(const Segment& segment, const Place& place) {
    const Piece piece = make_piece(problem_, segment, place.window);
    insert(assignment_[place.cycle][place.window], piece);
    load_[place.cycle][place.window] += piece.seconds;
  }

  /// Fills the slack of one window after the other.
  void spread(Segment segment, Place best) {
    const double link = link_of(segment);
    while ((segment.end - segment.begin) * link > best.slack + problem_.resolution && best.slack > problem_.resolution) {
      Segment share = segment;
      share.end = segment.begin + best.slack / link;
      segment.begin = share.end;
      put(share, best);
      best = widest_place(segment.layer);
    }
    put(segment, best);
  }

  const Problem& problem_;
  const AssignRules& rules_;
  Assignment assignment_;
  std::vector<std::array<double, 2>> load_;  // link time and latencies booked
};

}  // namespace

std::vector<Part> whole_layers(const Problem& problem) {
  std::vector<Part> parts;
  for (const std::size_t layer : problem.averaged) parts.push_back({{.layer = layer}});
  return parts;
}

std::vector<Part> equal_parts(const Problem& problem, std::int64_t num_parts) {
  double total = 0;
  for (const std::size_t layer : problem.averaged) total += problem.layers[layer].link;
  const double size = total / static_cast<double>(num_parts);
  std::vector<Part> parts(1);
  double room = size;
  for (const std::size_t layer : problem.averaged) {
    const double link = problem.layers[layer].link;
    Segment rest{.layer = layer};
    while ((rest.end - rest.begin) * link > room + problem.resolution) {
      Segment share = rest;
      share.end = rest.begin + room / link;
      if (share.end > share.begin) parts.back().push_back(share);
      rest.begin = share.end;
      parts.emplace_back();
      room = size;
    }
    parts.back().push_back(rest);
    room -= (rest.end - rest.begin) * link;
  }
  return parts;
}

Assignment assign(const Problem& problem, const std::vector<Part>& parts, const AssignRules& rules) {
  Walk walk(problem, rules);
  for (const Part& part : parts) walk.place(part);
  return walk.take();
}

}  // namespace dreamddp::balanced
