// Any text is either rejected with std::invalid_argument or read as a valid profile that survives a round
// trip.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "dreamddp/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool nan_as_zero : {false, true}) {
    dreamddp::Profile profile;
    try {
      profile = dreamddp::parse_profile(text, {.nan_as_zero = nan_as_zero});
    } catch (const std::invalid_argument&) {
      continue;
    }
    dreamddp::validate(profile);
    if (dreamddp::parse_profile(dreamddp::to_json(profile)) != profile) std::abort();
  }
  return 0;
}
