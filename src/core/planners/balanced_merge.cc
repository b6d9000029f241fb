#include "core/planners/balanced_merge.h"

#include <algorithm>
#include <optional>

namespace dreamddp::balanced {
namespace {

/// The link under the rules start_i = max(ready_i, start_{i-1} + x_{i-1}, finish_{i-m}) and
/// finish_i = start_i + x_i + a.
class LinkClock {
 public:
  explicit LinkClock(const Problem& problem) : latency_(problem.latency) {
    if (problem.in_flight > 1) finishes_.resize(problem.in_flight - 1, 0.0);
  }

  double next_start(double ready = 0) const {
    return std::max({ready, free_, finishes_.empty() ? last_finish_ : finishes_[oldest_]});
  }

  /// @return when the op finishes
  double send(double seconds, double ready = 0) {
    free_ = next_start(ready) + seconds;
    if (!finishes_.empty()) {
      finishes_[oldest_] = last_finish_;
      oldest_ = oldest_ + 1 == finishes_.size() ? 0 : oldest_ + 1;
    }
    last_finish_ = free_ + latency_;
    return last_finish_;
  }

 private:
  double latency_;
  double free_ = 0;
  double last_finish_ = 0;
  std::vector<double> finishes_;  // of the m-1 ops before the last one
  std::size_t oldest_ = 0;
};

/// Fills one op after the other, each as far as `allowed` seconds of waiting let it grow. No other way to
/// merge sends more by then with as few ops, so where this fails all do (with one op in flight).
/// @param groups receives the ops, when not null
/// @return how long compute waits for them, or nothing where that cannot be kept within `allowed`
std::optional<double> fill(const Problem& problem, const std::vector<Piece>& pieces, double allowed,
                           std::vector<Group>* groups) {
  if (groups) groups->clear();
  LinkClock link(problem);
  double exposed = 0;
  for (std::size_t next = 0; next < pieces.size();) {
    Group group{.begin = next, .end = next, .seconds = 0};
    const double cover = pieces[next].cover;
    const double room = cover + allowed + problem.resolution - link.next_start() - problem.latency;
    while (group.end < pieces.size() && group.seconds + pieces[group.end].seconds <= room) {
      group.seconds += pieces[group.end++].seconds;
    }
    if (group.end == group.begin) return std::nullopt;
    exposed = std::max(exposed, link.send(group.seconds) - cover);
    if (groups) groups->push_back(group);
    next = group.end;
  }
  return exposed;
}

}  // namespace

bool merge(const Problem& problem, const std::vector<Piece>& pieces, Merged& merged, double limit) {
  // Whatever the ops are, those that carry the first pieces take at least their link time and a latency.
  double sum = 0;
  double least = 0;
  for (const Piece& piece : pieces) {
    sum += piece.seconds;
    least = std::max(least, sum + problem.latency - piece.cover);
  }
  if (least > limit) return false;
  // One op for all is always a way.
  double most =
      std::min(limit, pieces.empty() ? 0.0 : std::max(0.0, sum + problem.latency - pieces.front().cover));
  const double precision = 0.01 * problem.latency + problem.resolution;
  if (most - least > precision) {
    const std::optional<double> exposed = fill(problem, pieces, most, nullptr);
    if (!exposed) return false;
    most = *exposed;
  }
  double next = least;  // often enough, so tried first
  while (most - least > precision) {
    if (const std::optional<double> exposed = fill(problem, pieces, next, nullptr)) {
      most = std::min(next, *exposed);
    } else {
      least = next;
    }
    next = least + (most - least) / 2;
  }
  const std::optional<double> exposed = fill(problem, pieces, most, &merged.groups);
  if (!exposed) return false;
  merged.exposed = *exposed;
  merged.seconds = sum;
  return true;
}

double exposed_seconds(const Problem& problem, const Cycle& cycle, const std::array<Merged, 2>& merged) {
  LinkClock link(problem);
  struct Deadline {
    double cover;
    double finish;
    std::size_t layer;
  };
  // Forward window: all ops are ready at once, and the narrowest goes first.
  std::vector<Deadline> deadlines;
  for (const Group& group : merged[forward_window].groups) {
    const Piece& first = cycle[forward_window][group.begin];
    deadlines.push_back({first.cover, link.send(group.seconds), first.segment.layer});
  }
  // Backward window: the widest is ready first. An early op is ready within the forward, so before some of
  // the waits.
  double waited = 0;
  auto deadline = deadlines.begin();
  double finish = 0;
  const auto& groups = merged[backward_window].groups;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const Piece& first = cycle[backward_window][group->begin];
    const LayerTimes& layer = problem.layers[first.segment.layer];
    const bool within_forward = layer.is_ready_within_forward;
    while (deadline != deadlines.end() && (!within_forward || deadline->layer <= first.segment.layer)) {
      waited = std::max(waited, deadline->finish - deadline->cover);
      ++deadline;
    }
    finish = link.send(group->seconds, problem.horizon - first.cover + waited);
  }
  for (; deadline != deadlines.end(); ++deadline)
    waited = std::max(waited, deadline->finish - deadline->cover);
  return std::max(waited, finish - problem.horizon);
}

}  // namespace dreamddp::balanced
