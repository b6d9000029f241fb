// Quantities as people write them ("8MiB", "100Mbit/s", "0.2ms") and back.
//
// Inside the library every time is a double in seconds, every size an int64 in bytes and every rate a
// double in bytes per second; names carry the unit (backward_seconds, num_bytes).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dreamddp {

/// Parses a time of at least 0: a number and one of s, ms, us, ns. A bare number is rejected, but for 0.
/// @param field named in the error, such as "--latency"
/// @throws std::invalid_argument
double parse_seconds(std::string_view text, std::string_view field);

/// Parses a size of at least 0: a number and one of B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB,
/// TiB (powers of 1024); a bare number is bytes. The result is rounded down to whole bytes.
/// @throws std::invalid_argument
std::int64_t parse_num_bytes(std::string_view text, std::string_view field);

/// Parses a rate above 0: a size and "/s" ("10MB/s"), or bits, as in "100Mbit/s" (bit, kbit, Mbit, Gbit;
/// also kbps, Mbps, Gbps).
/// @return bytes per second
/// @throws std::invalid_argument
double parse_bytes_per_second(std::string_view text, std::string_view field);

/// "1.25 ms": three to four significant digits.
std::string format_seconds(double seconds);
/// "8.0 MiB"
std::string format_num_bytes(double num_bytes);
/// "12.5 MB/s"
std::string format_bytes_per_second(double bytes_per_second);

}  // namespace dreamddp
