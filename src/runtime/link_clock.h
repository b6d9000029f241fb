// When ops on an emulated link start and finish: the formula of design section 4 in whole nanoseconds.
#pragma once

#include <cstdint>
#include <deque>
#include <string_view>

#include "dreamddp/link.h"

namespace dreamddp {

/// Times are nanoseconds of std::chrono::steady_clock, which all processes of a machine share.
using Nanoseconds = std::int64_t;

enum class Collective {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  broadcast,
  reduce,
  barrier,
};

struct EmulatedLinkOptions {
  Link link;  ///< with a bandwidth; `workers` is not used, as each collective has a number of its own
  double jitter_seconds = 0;  ///< an op takes up to this much longer, drawn per op
  std::uint64_t seed = 0;     ///< of the draws; the same on all ranks
};

/// @throws std::invalid_argument naming the option that is out of range
void validate(const EmulatedLinkOptions& options);

/// An op that wants the link.
struct LinkRequest {
  Collective collective = Collective::all_reduce;
  std::int64_t num_bytes =
      0;            ///< n: all_reduce, broadcast, reduce: the tensor; others: the parts of all workers
  int workers = 2;  ///< K
  Nanoseconds ready = 0;
  Nanoseconds jitter = 0;  ///< added to the latency
};

/// An op that has got it.
struct LinkBooking {
  LinkRequest request;
  Nanoseconds start = 0;
  Nanoseconds transfer = 0;  ///< x: from `start` on no other op takes the link for so long
  Nanoseconds finish = 0;    ///< start + transfer + latency + jitter
};

/// x without latency: 2(K-1)/K * n / bandwidth for an all-reduce, n / bandwidth where one worker's tensor
/// goes to or from all (broadcast, reduce), 0 for a barrier, (K-1)/K * n / bandwidth for the others. Nothing
/// takes more than ten days.
Nanoseconds transfer_nanoseconds(const LinkRequest& request, const Link& link);

/// Uniform in [0, jitter_seconds]; depends on the seed, the name of the process group and the place of the op
/// in that group alone, so all ranks draw the same.
Nanoseconds draw_jitter(const EmulatedLinkOptions& options, std::string_view group, std::uint64_t sequence);

/// Books ops one behind the other. Not thread-safe.
class LinkClock {
 public:
  /// @throws std::invalid_argument as validate()
  explicit LinkClock(const EmulatedLinkOptions& options);

  /// start_i = max(ready_i, start_{i-1} + x_{i-1}, finish_{i-m}); finish_i = start_i + x_i + a (+ jitter_i).
  LinkBooking book(const LinkRequest& request);

  /// The start of an op that was ready long ago.
  Nanoseconds earliest_start() const;

 private:
  EmulatedLinkOptions options_;
  Nanoseconds latency_;
  Nanoseconds free_ = 0;               // start_{i-1} + x_{i-1}
  std::deque<Nanoseconds> in_flight_;  // finish_{i-m} .. finish_{i-1}
};

}  // namespace dreamddp
