// What the balanced planner works with. Design section 5.
//
// An op in place never crosses an optimizer step. So time falls apart into cycles, from the end of one step
// to the end of the next, that do not influence one another: cycle h has the forward window opened by the
// step before iteration h, and the backward window of iteration h. All cycles are alike; to plan is to deal
// out the layers to the windows of H cycles.
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

/// A layer, as seen by the search. Times in seconds.
struct LayerTimes {
  double link = 0;                    ///< c_l
  std::array<double, 2> cover{};      ///< D_l, G_l: compute that hides an average, by window
  std::array<std::size_t, 2> rank{};  ///< order of the windows of one kind, the narrowest first
  bool early = false;                 ///< the last read is not the layer's own backward
  bool read_last_in_forward = false;
};

struct Problem {
  std::vector<LayerTimes> layers;
  std::vector<std::size_t> averaged;  ///< layers with parameters, the tightest first and early ones last
  std::int64_t period = 1;            ///< H
  double horizon = 0;                 ///< C - s: from the end of a step to the begin of the next
  double latency = 0;                 ///< a
  std::size_t in_flight = 1;          ///< m
  double resolution = 0;              ///< times that differ by less are equal
  double unavoidable = 0;             ///< exposed seconds per iteration that the lower bound leaves
};

/// Times are rounded to about nine digits, so that a profile gives the same plan whatever its unit was.
Problem make_problem(const Profile& profile, const Link& link, std::int64_t period);

/// A segment with its times.
struct Piece {
  Segment segment;
  double seconds = 0;  ///< link time
  double cover = 0;    ///< in the window that it is in
  std::size_t rank = 0;
};

/// What each window of a cycle averages, by rank.
using Cycle = std::array<std::vector<Piece>, 2>;

/// Cycle h of the period for h in 0 .. H-1.
using Assignment = std::vector<Cycle>;

Piece make_piece(const Problem& problem, const Segment& segment, Window window);

/// Adds a piece in its place.
void insert(std::vector<Piece>& pieces, const Piece& piece);

}  // namespace dreamddp::balanced
