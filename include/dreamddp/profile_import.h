// Reading the measured layer times that the method's authors published.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dreamddp/profile.h"

namespace dreamddp {

struct ProfileImport {
  double forward_ratio = 0.5;  ///< forward time = ratio times backward time: the files have no forward times
  bool nan_as_zero = false;    ///< take bare NaN (modules that did not run) as 0; else it is an error
  /// Estimate num_bytes from the transfer times of a ring over this link; the profile says that they are
  /// estimated. Latency is not taken off: the files do not tell it.
  std::optional<double> assumed_bandwidth_bytes_per_second = {};
  int workers = 2;  ///< K of the run, for that estimate
};

struct ImportedProfile {
  Profile profile;  ///< transfer_seconds are set; num_bytes only where a bandwidth was assumed
  std::vector<std::string> warnings;  ///< one line for each thing that was matched, filled in or left out
};

/// Builds a profile from the flat {"module name": mean seconds} objects `backward.json` and `sync.json`.
///
/// Layers stand in the order of `backward`. A name `x.default` (adapters) matches `x` in the other file. A
/// module that is absent from `sync` has no parameters: its num_bytes and transfer are 0.
/// @param backward_json,sync_json the texts of the two files
/// @throws std::invalid_argument naming file, module and value, also for a name that only `sync` has
ImportedProfile import_public_profile(std::string_view backward_json, std::string_view sync_json,
                                      const ProfileImport& options = {});

}  // namespace dreamddp
