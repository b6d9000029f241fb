#include "runtime/standing.h"

#include <sstream>

namespace dreamddp {

std::string to_text(const Standing& standing) {
  std::ostringstream text;
  text << standing.beat << ' ' << static_cast<int>(standing.activity) << ' ' << standing.has_heard_of_failure
       << ' ' << standing.launched.lane << ' ' << standing.launched.sequence << ' ' << standing.step << ' '
       << standing.num_meetings << '\n'
       << standing.text;
  return text.str();
}

std::optional<Standing> parse_standing(const std::string& text) {
  std::istringstream numbers(text.substr(0, text.find('\n')));
  Standing standing;
  int activity = -1;
  numbers >> standing.beat >> activity >> standing.has_heard_of_failure >> standing.launched.lane >>
      standing.launched.sequence >> standing.step >> standing.num_meetings;
  if (!numbers || activity < 0 || activity > static_cast<int>(Activity::failed)) return std::nullopt;
  standing.activity = static_cast<Activity>(activity);
  if (const auto end = text.find('\n'); end != std::string::npos) standing.text = text.substr(end + 1);
  return standing;
}

}  // namespace dreamddp
