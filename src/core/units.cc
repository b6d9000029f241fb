#include "dreamddp/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <system_error>

#include "core/decimal.h"
#include "core/time_unit.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

/// A unit is 10^decimal * 2^binary base units.
struct Unit {
  std::string_view name;
  int decimal;
  int binary;
};

constexpr std::array time_units = {Unit{"s", 0, 0}, Unit{"ms", -3, 0}, Unit{"us", -6, 0}, Unit{"ns", -9, 0}};
constexpr std::array size_units = {Unit{"B", 0, 0},    Unit{"kB", 3, 0},   Unit{"MB", 6, 0},
                                   Unit{"GB", 9, 0},   Unit{"TB", 12, 0},  Unit{"KiB", 0, 10},
                                   Unit{"MiB", 0, 20}, Unit{"GiB", 0, 30}, Unit{"TiB", 0, 40}};
constexpr std::array rate_units = {
    Unit{"B/s", 0, 0},     Unit{"kB/s", 3, 0},     Unit{"MB/s", 6, 0},    Unit{"GB/s", 9, 0},
    Unit{"TB/s", 12, 0},   Unit{"KiB/s", 0, 10},   Unit{"MiB/s", 0, 20},  Unit{"GiB/s", 0, 30},
    Unit{"TiB/s", 0, 40},  Unit{"bit/s", 0, -3},   Unit{"kbit/s", 3, -3}, Unit{"Mbit/s", 6, -3},
    Unit{"Gbit/s", 9, -3}, Unit{"Tbit/s", 12, -3}, Unit{"bps", 0, -3},    Unit{"kbps", 3, -3},
    Unit{"Mbps", 6, -3},   Unit{"Gbps", 9, -3},    Unit{"Tbps", 12, -3}};

struct Written {
  double number = 0;
  std::string_view unit;
};

/// "8MiB" or "8 MiB" in its two parts; absent where there is no number that a double can hold.
std::optional<Written> split(std::string_view text) {
  // A sign, "inf" and "nan" would be taken by from_chars.
  if (text.empty() || !(text.front() == '.' || (text.front() >= '0' && text.front() <= '9'))) {
    return std::nullopt;
  }
  Written written;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), written.number);
  if (read.ec != std::errc{}) {
    return std::nullopt;
  }
  written.unit = text.substr(static_cast<std::size_t>(read.ptr - text.data()));
  if (!written.unit.empty() && written.unit.front() == ' ') {
    written.unit.remove_prefix(1);
    if (written.unit.empty()) {
      return std::nullopt;
    }
  }
  return written;
}

std::optional<double> in_base_units(const Written& written, std::span<const Unit> units) {
  const auto unit = std::ranges::find(units, written.unit, &Unit::name);
  if (unit == units.end()) {
    return std::nullopt;
  }
  const double value = std::ldexp(scale_decimal(written.number, unit->decimal), unit->binary);
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

/// Fixed notation, whatever the locale.
std::string fixed_text(double value, int decimals) {
  std::array<char, 400> text;
  const auto written =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  return {text.data(), written.ptr};
}

/// With the largest unit in which the value is at least 1, or else the smallest one.
std::string format_with_unit(double value, double base, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && std::abs(value) >= base) {
    value /= base;
    ++unit;
  }
  const bool is_whole = unit == 0 && value == std::floor(value);
  return fixed_text(value, is_whole ? 0 : 1) + " " + std::string(units[unit]);
}

}  // namespace

double parse_seconds(std::string_view text, std::string_view field) {
  if (const auto written = split(text)) {
    if (written->unit.empty() && written->number == 0) {
      return 0;
    }
    if (const auto seconds = in_base_units(*written, time_units)) {
      return *seconds;
    }
  }
  reject({std::string(field), quoted(text), "a time of at least 0 with one of the units s, ms, us, ns",
          "Write for example 0.2ms"});
}

std::int64_t parse_num_bytes(std::string_view text, std::string_view field) {
  std::int64_t whole = 0;  // beyond 2^53 a double would round
  const auto read = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (read.ec == std::errc{} && read.ptr == text.data() + text.size() && text.front() != '-') {
    return whole;
  }
  if (const auto written = split(text)) {
    const Written given{written->number, written->unit.empty() ? "B" : written->unit};
    const auto num_bytes = in_base_units(given, size_units);
    if (num_bytes && *num_bytes < 0x1p63) {
      return static_cast<std::int64_t>(*num_bytes);
    }
  }
  reject(
      {std::string(field), quoted(text),
       "a size from 0 to 2^63-1 bytes, plain or with one of the units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
       "Write for example 8MiB"});
}

double parse_bytes_per_second(std::string_view text, std::string_view field) {
  if (const auto written = split(text)) {
    const auto rate = in_base_units(*written, rate_units);
    if (rate && *rate > 0) {
      return *rate;
    }
  }
  reject(
      {std::string(field), quoted(text),
       "a rate above 0 with a unit: B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s, bit/s, kbit/s, "
       "Mbit/s, Gbit/s, Tbit/s (or kbps, Mbps, ..)",
       "Write for example 100Mbit/s"});
}

int parse_time_exponent(std::string_view text, std::string_view field) {
  for (const Unit& unit : time_units) {
    if (unit.name == text && text != "ns") {
      return unit.decimal;
    }
  }
  reject({std::string(field), "\"" + std::string(text) + "\"", "\"s\", \"ms\" or \"us\"",
          "Write all times of the file in one of them"});
}

std::string format_seconds(double seconds) {
  constexpr std::array<std::string_view, 4> units = {"ns", "us", "ms", "s"};
  if (seconds == 0 || !std::isfinite(seconds)) {
    return fixed_text(seconds == 0 ? 0 : seconds, 0) + " s";
  }
  double value = seconds * 1e9;
  std::size_t unit = 0;
  while (unit + 1 < units.size() && std::abs(value) >= 1000) {
    value /= 1000;
    ++unit;
  }
  const double size = std::abs(value);
  const int decimals = size < 10 ? 2 : size < 100 ? 1 : 0;
  return fixed_text(value, decimals) + " " + std::string(units[unit]);
}

std::string format_num_bytes(double num_bytes) {
  constexpr std::array<std::string_view, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  return format_with_unit(num_bytes, 1024, units);
}

std::string format_bytes_per_second(double bytes_per_second) {
  constexpr std::array<std::string_view, 5> units = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  return format_with_unit(bytes_per_second, 1000, units);
}

}  // namespace dreamddp
