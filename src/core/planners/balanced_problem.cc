#include "core/planners/balanced_problem.h"

#include <algorithm>
#include <numeric>

#include "core/planners/algorithms.h"
#include "core/planners/rounded_times.h"
#include "dreamddp/bound.h"

namespace dreamddp::balanced {
namespace {

/// Layers from the latest last read to the earliest.
std::vector<std::size_t> by_last_read(const Profile& profile) {
  const EventOrder order(profile);
  std::vector<std::size_t> layers(profile.layers.size());
  std::iota(layers.begin(), layers.end(), std::size_t{0});
  std::ranges::stable_sort(layers, std::ranges::greater{},
                           [&](std::size_t layer) { return order.position(order.last_read(layer, 0)); });
  return layers;
}

std::vector<LayerTimes> layer_times(const Profile& profile, const std::vector<double>& transfers) {
  const std::vector<double> before_first_read = cover_before_first_read(profile);
  const std::vector<double> after_last_read = cover_after_last_read(profile);
  std::vector<LayerTimes> layers(profile.layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const LastReadKind last_read = profile.layers[l].last_read.kind;
    layers[l] = {.link_seconds = transfers[l],
                 .cover = {before_first_read[l], after_last_read[l]},
                 .rank = {l, 0},
                 .is_early = last_read != LastReadKind::own_backward,
                 .is_ready_within_forward = last_read == LastReadKind::forward};
  }
  const std::vector<std::size_t> order = by_last_read(profile);
  for (std::size_t rank = 0; rank < order.size(); ++rank) layers[order[rank]].rank[backward_window] = rank;
  return layers;
}

/// Layers with parameters, the tightest windows first and early layers last.
std::vector<std::size_t> by_tightness(const Profile& profile, const std::vector<LayerTimes>& layers) {
  std::vector<std::size_t> averaged = layers_with_parameters(profile);
  std::ranges::stable_sort(averaged, [&](std::size_t a, std::size_t b) {
    if (layers[a].is_early != layers[b].is_early) return layers[b].is_early;
    const auto total_cover = [&](std::size_t l) {
      return layers[l].cover[forward_window] + layers[l].cover[backward_window];
    };
    return total_cover(a) < total_cover(b);
  });
  return averaged;
}

}  // namespace

Problem make_problem(const Profile& given, const Link& link, std::int64_t period) {
  const Profile profile = with_rounded_times(given);
  const std::vector<double> transfers = layer_transfer_seconds(profile, link);
  const double compute = compute_seconds(profile);
  const double link_share =
      std::accumulate(transfers.begin(), transfers.end(), 0.0) / static_cast<double>(period);
  Problem problem;
  problem.layers = layer_times(profile, transfers);
  problem.averaged = by_tightness(profile, problem.layers);
  problem.period = static_cast<std::size_t>(period);
  problem.horizon = compute - profile.step_seconds;
  problem.latency = link.latency_seconds;
  // A cycle has at most two windows with a piece of every layer, so more in flight change nothing.
  problem.in_flight = std::min(static_cast<std::size_t>(link.in_flight), 2 * problem.layers.size());
  problem.unavoidable =
      bound_seconds(
          profile, transfers,
          {.period = period, .latency_seconds = link.latency_seconds, .in_flight = link.in_flight}) -
      compute;
  problem.resolution = 1e-9 * (problem.horizon + link_share + problem.latency);
  return problem;
}

Piece make_piece(const Problem& problem, const Segment& segment, Window window) {
  const LayerTimes& layer = problem.layers[segment.layer];
  return {.segment = segment,
          .seconds = (segment.end - segment.begin) * layer.link_seconds,
          .cover = layer.cover[window],
          .rank = layer.rank[window]};
}

void insert(std::vector<Piece>& pieces, const Piece& piece) {
  const auto is_before = [](const Piece& a, const Piece& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.segment.begin < b.segment.begin;
  };
  pieces.insert(std::upper_bound(pieces.begin(), pieces.end(), piece, is_before), piece);
}

}  // namespace dreamddp::balanced
