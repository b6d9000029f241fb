#include "runtime/link_clock.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/decimal.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

Nanoseconds to_nanoseconds(double seconds) {
  constexpr double ten_days = 864'000;  // far from an overflow, even for sums over many ops
  return std::llround(std::min(seconds, ten_days) * 1e9);
}

/// The finalizer of splitmix64: every bit of the result depends on every bit of the argument.
std::uint64_t mix(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

}  // namespace

void validate(const EmulatedLinkOptions& options) {
  if (!options.link.bandwidth_bytes_per_second) {
    reject({"bandwidth", "none", "a rate above 0", "Give the rate that the emulated link is to have"});
  }
  validate(options.link);
  if (!(options.jitter_seconds >= 0) || !std::isfinite(options.jitter_seconds)) {
    reject({"jitter", shortest_text(options.jitter_seconds), "a finite time of at least 0",
            "Give 0 for a link without jitter"});
  }
}

Nanoseconds transfer_nanoseconds(const LinkRequest& request, const Link& link) {
  Link of_group = link;
  of_group.workers = request.workers;
  const auto num_bytes = static_cast<double>(request.num_bytes);
  switch (request.collective) {
    case Collective::all_reduce:
      return to_nanoseconds(transfer_seconds(num_bytes, of_group));
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return to_nanoseconds(transfer_seconds(num_bytes, of_group) / 2);
    case Collective::broadcast:
    case Collective::reduce:
      return request.workers == 1 ? 0 : to_nanoseconds(num_bytes / *link.bandwidth_bytes_per_second);
    case Collective::barrier:
      return 0;
  }
  return 0;
}

Nanoseconds draw_jitter(const EmulatedLinkOptions& options, std::string_view group, std::uint64_t sequence) {
  std::uint64_t bits = mix(options.seed);
  for (const char letter : group) bits = mix(bits ^ static_cast<unsigned char>(letter));
  bits = mix(bits ^ sequence);
  const double fraction = static_cast<double>(bits >> 11) * 0x1p-53;
  return to_nanoseconds(fraction * options.jitter_seconds);
}

LinkClock::LinkClock(const EmulatedLinkOptions& options)
    : options_((validate(options), options)), latency_(to_nanoseconds(options.link.latency_seconds)) {}

LinkBooking LinkClock::book(const LinkRequest& request) {
  LinkBooking booking{.request = request};
  booking.transfer = transfer_nanoseconds(request, options_.link);
  booking.start = std::max(request.ready, earliest_start());
  booking.finish = booking.start + booking.transfer + latency_ + request.jitter;
  free_ = booking.start + booking.transfer;
  in_flight_.push_back(booking.finish);
  if (in_flight_.size() > static_cast<std::size_t>(options_.link.in_flight)) in_flight_.pop_front();
  return booking;
}

Nanoseconds LinkClock::earliest_start() const {
  const bool is_full = in_flight_.size() == static_cast<std::size_t>(options_.link.in_flight);
  return is_full ? std::max(free_, in_flight_.front()) : free_;
}

}  // namespace dreamddp
