// Where a rank stands: what it tells the others of itself.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace dreamddp {

/// The place of an op in the order that all ranks share.
struct Position {
  std::int64_t lane = 0;                                             ///< counts the changes of the lane
  std::int64_t sequence = std::numeric_limits<std::int64_t>::min();  ///< of the op; the least: none yet

  auto operator<=>(const Position&) const = default;
};

enum class Activity { training, paused, finishing, failed };

struct Standing {
  std::int64_t beat = 0;  ///< grows with every time that this is told
  Activity activity = Activity::training;
  bool has_heard_of_failure = false;
  Position launched;              ///< the last op that it has launched
  std::int64_t step = -1;         ///< of that op; -1: none yet
  std::int64_t num_meetings = 0;  ///< how often it has called ProgressBoard::meet()
  std::string text;               ///< what it does, or why it has failed; may be empty

  bool operator==(const Standing&) const = default;
};

/// One line of numbers, then the text.
std::string to_text(const Standing& standing);
/// Nothing where the text is none of to_text().
std::optional<Standing> parse_standing(const std::string& text);

}  // namespace dreamddp
