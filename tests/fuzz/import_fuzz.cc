// Any pair of texts, split at the first zero byte, is either rejected with std::invalid_argument or read as a
// valid profile.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "dreamddp/profile_import.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t split = text.find('\0');
  const std::string_view backward = text.substr(0, split);
  const std::string_view sync = split == std::string_view::npos ? "{}" : text.substr(split + 1);
  dreamddp::ProfileImport options{.nan_as_zero = size % 2 == 0, .workers = 4};
  if (size % 3 == 0) options.assumed_bandwidth_bytes_per_second = 1e8;
  dreamddp::Profile profile;
  try {
    profile = dreamddp::import_public_profile(backward, sync, options).profile;
  } catch (const std::invalid_argument&) {
    return 0;
  }
  dreamddp::validate(profile);
  return 0;
}
