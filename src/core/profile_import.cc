#include "dreamddp/profile_import.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_map>

#include "core/decimal.h"
#include "core/json_reading.h"
#include "dreamddp/error.h"
#include "dreamddp/link.h"
#include "dreamddp/units.h"

namespace dreamddp {
namespace {

constexpr std::string_view adapter_suffix = ".default";

/// One of the two files: mean seconds of every module, in the order of the file.
struct Measurements {
  std::vector<std::string> modules;
  std::unordered_map<std::string, double> seconds;
  std::vector<std::string> not_run;  ///< modules whose time is NaN, taken as 0
};

Measurements read_measurements(std::string_view json, const std::string& file, bool nan_as_zero) {
  const JsonDocument document = read_json(json, file);
  if (!document.root.is_object()) {
    reject({file, text_of(document.root), "an object of module names and seconds",
            "Is it a file of another kind?"});
  }
  Measurements read{document.keys, {}, {}};
  for (const std::string& module : document.keys) {
    const Json& value = document.root[module];
    std::string where = file;
    where.append(": '").append(module).append("'");
    double seconds = 0;
    if (!is_nan_token(value)) {
      seconds = read_number(value, where);
    } else if (nan_as_zero) {
      read.not_run.push_back(module);
    } else {
      reject({where, "NaN", "a number of seconds of at least 0",
              "Give --nan-as-zero (nan_as_zero) if the module did not run"});
    }
    read.seconds.emplace(module, seconds);
  }
  return read;
}

/// "3 modules: 'a', 'b', 'c'", long lists cut short.
std::string modules_text(const std::vector<std::string>& modules) {
  constexpr std::size_t most = 3;
  std::string text = std::to_string(modules.size()) + (modules.size() == 1 ? " module: " : " modules: ");
  for (std::size_t i = 0; i < std::min(most, modules.size()); ++i) {
    text += (i == 0 ? "'" : ", '") + modules[i] + "'";
  }
  return modules.size() > most ? text + ", .." : text;
}

/// The name in the other file that means the same module: itself, or with the adapter's suffix added or
/// taken away. Empty where there is none.
std::string matching_name(const std::string& module, const std::unordered_map<std::string, double>& names) {
  if (names.contains(module)) {
    return module;
  }
  if (module.ends_with(adapter_suffix)) {
    const std::string plain = module.substr(0, module.size() - adapter_suffix.size());
    return names.contains(plain) ? plain : "";
  }
  const std::string adapter = module + std::string(adapter_suffix);
  return names.contains(adapter) ? adapter : "";
}

/// The transfer time of every module of `backward` that `sync` has, by the name in `backward`.
std::unordered_map<std::string, double> match_transfers(const Measurements& backward,
                                                        const Measurements& sync,
                                                        std::vector<std::string>& warnings) {
  std::unordered_map<std::string, double> transfers;
  std::vector<std::string> renamed;
  std::vector<std::string> unmatched;
  // Equal names first: a module and its adapter may both be listed.
  for (const bool want_equal : {true, false}) {
    for (const std::string& module : sync.modules) {
      const std::string match = matching_name(module, backward.seconds);
      if ((match == module) != want_equal) {
        continue;
      }
      if (match.empty() || !transfers.emplace(match, sync.seconds.at(module)).second) {
        unmatched.push_back(module);
      } else if (!want_equal) {
        renamed.push_back(module);
      }
    }
  }
  if (!unmatched.empty()) {
    reject({"sync.json", modules_text(unmatched), "no module that backward.json does not have",
            "Are the two files of the same run?"});
  }
  if (!renamed.empty()) {
    warnings.push_back("matched between the files with or without the suffix .default: " +
                       modules_text(renamed));
  }
  return transfers;
}

/// n = c * bandwidth * K / (2(K-1)), to the byte.
void estimate_sizes(Profile& profile, const ProfileImport& options, std::vector<std::string>& warnings) {
  const Link link{.bandwidth_bytes_per_second = options.assumed_bandwidth_bytes_per_second,
                  .workers = options.workers};
  validate(link);
  if (options.workers < 2) {
    reject({"workers", std::to_string(options.workers), "at least 2 to estimate sizes",
            "One worker sends nothing: give the number of workers of the run"});
  }
  const double seconds_per_byte = transfer_seconds(1, link);
  for (Layer& layer : profile.layers) {
    const double num_bytes = std::round(*layer.transfer_seconds / seconds_per_byte);
    if (!(num_bytes < 0x1p62)) {
      reject({"assumed bandwidth", format_bytes_per_second(*link.bandwidth_bytes_per_second),
              "a rate by which layers have fewer than 2^62 bytes", "Give the link's rate in this run"});
    }
    // A layer that takes time on the link has parameters.
    layer.num_bytes =
        std::max<std::int64_t>(static_cast<std::int64_t>(num_bytes), *layer.transfer_seconds > 0 ? 1 : 0);
  }
  profile.sizes_are_estimated = true;
  warnings.push_back("the files have no sizes: estimated from the link times over " +
                     format_bytes_per_second(*link.bandwidth_bytes_per_second) + " and " +
                     std::to_string(options.workers) + " workers, latency included");
}

}  // namespace

ImportedProfile import_public_profile(std::string_view backward_json, std::string_view sync_json,
                                      const ProfileImport& options) {
  if (!(options.forward_ratio >= 0 && options.forward_ratio <= 1000)) {
    reject({"forward_ratio", shortest_text(options.forward_ratio), "a number from 0 to 1000",
            "Give 0.5 for a forward that takes half as long as the backward"});
  }
  const Measurements backward = read_measurements(backward_json, "backward.json", options.nan_as_zero);
  const Measurements sync = read_measurements(sync_json, "sync.json", options.nan_as_zero);

  ImportedProfile imported;
  std::vector<std::string>& warnings = imported.warnings;
  warnings.push_back("the files have no forward times: each taken as " +
                     shortest_text(options.forward_ratio) + " times the backward time");
  warnings.push_back("the files have no time of the optimizer step: taken as 0");
  if (!backward.not_run.empty()) {
    warnings.push_back("NaN in backward.json (did not run), taken as 0: " + modules_text(backward.not_run));
  }
  if (!sync.not_run.empty()) {
    warnings.push_back("NaN in sync.json, taken as 0: " + modules_text(sync.not_run));
  }
  const auto transfers = match_transfers(backward, sync, warnings);

  std::vector<std::string> without_parameters;
  for (const std::string& module : backward.modules) {
    Layer layer;
    layer.name = module;
    layer.backward_seconds = backward.seconds.at(module);
    layer.forward_seconds = options.forward_ratio * layer.backward_seconds;
    if (const auto transfer = transfers.find(module); transfer != transfers.end()) {
      layer.transfer_seconds = transfer->second;
    } else {
      layer.transfer_seconds = 0;
      layer.num_bytes = 0;
      without_parameters.push_back(module);
    }
    imported.profile.layers.push_back(std::move(layer));
  }
  if (!without_parameters.empty()) {
    warnings.push_back("in backward.json only, taken as without trainable parameters: " +
                       modules_text(without_parameters));
  }
  if (options.assumed_bandwidth_bytes_per_second) estimate_sizes(imported.profile, options, warnings);
  validate(imported.profile);
  return imported;
}

}  // namespace dreamddp
