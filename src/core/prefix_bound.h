// How far the averages of several prefixes of layers together exceed the compute that hides them, where every
// op takes a latency and one is in flight at a time. Design section 5.
#pragma once

#include <vector>

namespace dreamddp {

/// The layers 1 .. l of which each is read for the last time in its own backward.
struct Prefix {
  double link_seconds = 0;    ///< what an iteration averages of them in the mean: sum of c_j / H
  double forward_cover = 0;   ///< D_l
  double backward_cover = 0;  ///< the largest G_j of them
};

/// What the prefixes share in an iteration.
struct IterationCover {
  double link_seconds = 0;  ///< of all layers in the mean, early ones too
  double horizon = 0;       ///< C - s
  double latency = 0;       ///< a
};

/// A lower bound on the mean exposed seconds of an iteration of any in-place plan with one op in flight. At
/// least 0; not always the best one, which a search for weights only comes near to. The same on every
/// machine.
/// @param prefixes from the shortest to the longest; covers do not fall
double exposed_by_prefixes(std::vector<Prefix> prefixes, const IterationCover& iteration);

}  // namespace dreamddp
