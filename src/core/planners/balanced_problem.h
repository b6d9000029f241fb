// What the balanced planner works with. Design section 5.
//
// An average in place never crosses an optimizer step. So time falls apart into cycles, from the end of one
// step to the end of the next, that do not touch one another: cycle h holds the forward window that the step
// before iteration h has opened, and the backward window of iteration h. All cycles are alike; to plan is to
// deal out the layers to the two windows of each of H cycles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dreamddp/link.h"
#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp::balanced {

enum Window : std::size_t { forward_window, backward_window };
inline constexpr std::array<Window, 2> windows{forward_window, backward_window};

/// A layer as the planner sees it.
struct LayerTimes {
  double link_seconds = 0;               ///< c_l
  std::array<double, 2> cover{};         ///< D_l and G_l, by window: seconds of compute that hide its average
  std::array<std::size_t, 2> rank{};     ///< order of the layers by cover, narrowest first, by window
  bool is_early = false;                 ///< its last read is not its own backward
  bool is_ready_within_forward = false;  ///< its last read is its forward
};

/// Times are in seconds.
struct Problem {
  std::vector<LayerTimes> layers;
  std::vector<std::size_t> averaged;  ///< layers with parameters, the tightest first and early ones last
  std::size_t period = 1;             ///< H
  double horizon = 0;                 ///< C - s: from the end of a step to the begin of the next
  double latency = 0;                 ///< a
  std::size_t in_flight = 1;          ///< m
  double unavoidable = 0;             ///< mean exposed time of an iteration by the lower bound
  double resolution = 0;              ///< times that differ by less are taken as equal
};

/// Times of the profile are rounded to nine digits, so that it gives the same plan whatever its time unit.
Problem make_problem(const Profile& profile, const Link& link, std::int64_t period);

/// A segment in a window.
struct Piece {
  Segment segment;
  double seconds = 0;    ///< link time
  double cover = 0;      ///< of its layer in this window
  std::size_t rank = 0;  ///< of its layer in this window
};

Piece make_piece(const Problem& problem, const Segment& segment, Window window);

/// Puts a piece in its place among pieces ordered by rank.
void insert(std::vector<Piece>& pieces, const Piece& piece);

/// What each window of a cycle averages, ordered by rank.
using Cycle = std::array<std::vector<Piece>, 2>;

/// At most H cycles; those after the last one are empty.
using Assignment = std::vector<Cycle>;

}  // namespace dreamddp::balanced
