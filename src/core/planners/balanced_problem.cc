#include "core/planners/balanced_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/planners/algorithms.h"
#include "dreamddp/bound.h"

namespace dreamddp::balanced {
namespace {

// 0.1 ms and 0.0001 s differ in the last bit when parsed; to 30 bits they are equal.
double round_to_30_bits(double seconds) {
  int exponent = 0;
  const double fraction = std::frexp(seconds, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 30)), exponent - 30);
}

Profile with_rounded_times(Profile profile, const std::vector<double>& transfers) {
  profile.step_seconds = round_to_30_bits(profile.step_seconds);
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    Layer& layer = profile.layers[l];
    layer.forward_seconds = round_to_30_bits(layer.forward_seconds);
    layer.backward_seconds = round_to_30_bits(layer.backward_seconds);
    layer.transfer_seconds = round_to_30_bits(transfers[l]);
  }
  return profile;
}

}  // namespace

Problem make_problem(const Profile& given, const Link& link, std::int64_t period) {
  const Profile profile = with_rounded_times(given, layer_transfer_seconds(given, link));
  Problem problem;
  problem.period = period;
  problem.latency = link.latency_seconds;
  problem.in_flight = static_cast<std::size_t>(link.in_flight);
  problem.horizon = compute_seconds(profile) - profile.step_seconds;

  const std::vector<double> before = cover_before_first_read(profile);
  const std::vector<double> after = cover_after_last_read(profile);
  const EventOrder order(profile);
  std::vector<std::size_t> by_last_read(profile.layers.size());
  std::iota(by_last_read.begin(), by_last_read.end(), std::size_t{0});
  std::stable_sort(by_last_read.begin(), by_last_read.end(), [&](std::size_t a, std::size_t b) {
    return order.position(order.last_read(a, 0)) > order.position(order.last_read(b, 0));
  });

  std::vector<double> transfers;
  problem.layers.resize(profile.layers.size());
  for (std::size_t rank = 0; rank < by_last_read.size(); ++rank) {
    problem.layers[by_last_read[rank]].rank = {by_last_read[rank], rank};
  }
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    LayerTimes& layer = problem.layers[l];
    layer.link = *profile.layers[l].transfer_seconds;
    layer.cover = {before[l], after[l]};
    layer.read_last_in_forward = profile.layers[l].last_read.kind == LastReadKind::forward;
    layer.early = profile.layers[l].last_read.kind != LastReadKind::own_backward;
    transfers.push_back(layer.link);
  }
  const double link_seconds_per_iteration =
      std::accumulate(transfers.begin(), transfers.end(), 0.0) / static_cast<double>(period);
  problem.averaged = layers_with_parameters(profile);
  std::stable_sort(problem.averaged.begin(), problem.averaged.end(), [&](std::size_t a, std::size_t b) {
    const LayerTimes& x = problem.layers[a];
    const LayerTimes& y = problem.layers[b];
    if (x.early != y.early) return y.early;
    return x.cover[forward_window] + x.cover[backward_window] <
           y.cover[forward_window] + y.cover[backward_window];
  });
  problem.resolution = 1e-9 * (problem.horizon + link_seconds_per_iteration + problem.latency);
  problem.unavoidable =
      std::max(0.0, bound_seconds(profile, transfers, period) - compute_seconds(profile));
  return problem;
}

Piece make_piece(const Problem& problem, const Segment& segment, Window window) {
  const LayerTimes& layer = problem.layers[segment.layer];
  return {.segment = segment,
          .seconds = (segment.end - segment.begin) * layer.link,
          .cover = layer.cover[window],
          .rank = layer.rank[window]};
}

void insert(std::vector<Piece>& pieces, const Piece& piece) {
  const auto place =
      std::upper_bound(pieces.begin(), pieces.end(), piece, [](const Piece& a, const Piece& b) {
        return a.rank != b.rank ? a.rank < b.rank : a.segment.begin < b.segment.begin;
      });
  pieces.insert(place, piece);
}

}  // namespace dreamddp::balanced
