// What a model costs: the time of every layer in forward and backward, its size, and when it is read.
//
// Design sections 3 (reads), 4 (time model) and 6 (file format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dreamddp {

/// When the parameters of a layer are read for the last time in an iteration.
enum class LastReadKind {
  own_backward,    ///< in the layer's own backward: the usual case
  forward,         ///< in its forward: an embedding, or a first layer whose input needs no gradient
  other_backward,  ///< in the backward of another layer: a tensor tied to that layer
};

struct LastRead {
  LastReadKind kind = LastReadKind::own_backward;
  std::size_t layer = 0;  ///< the other layer, for other_backward; else unused

  bool operator==(const LastRead&) const = default;
};

/// One layer: a module that owns parameters. Layers are numbered by first read, from 0.
struct Layer {
  std::string name;
  double forward_seconds = 0;   ///< f_l: from the first read of l to the first read of l+1
  double backward_seconds = 0;  ///< b_l: from the end of the backward before it to the end of its own
  std::optional<std::int64_t> num_bytes;   ///< n_l; absent where unknown, 0 for a layer without parameters
  std::optional<double> transfer_seconds;  ///< c_l, measured and without latency; absent where unknown
  LastRead last_read;

  bool operator==(const Layer&) const = default;
};

/// A plain struct: fill it, validate() it once, then treat it as const. Safe to read from many threads.
struct Profile {
  std::vector<Layer> layers;
  double step_seconds = 0;  ///< s: the optimizer step
  /// Layers in the order in which their backwards run; empty where that is the reverse of the forward.
  std::vector<std::size_t> backward_order;
  bool sizes_are_estimated = false;  ///< num_bytes were computed from link times, not read off a model

  bool operator==(const Profile&) const = default;
};

struct ProfileReading {
  bool nan_as_zero = false;  ///< take bare NaN (some public files have it) as 0 and report it
  /// Filled by the reader: one line for each value that was replaced. May be null.
  std::vector<std::string>* warnings = nullptr;
};

/// Parses "dreamddp-profile/1". The result is valid.
/// @throws std::invalid_argument naming layer and field, or the position of a syntax error
Profile parse_profile(std::string_view json, const ProfileReading& reading = {});

/// Writes "dreamddp-profile/1" with times in seconds; parse_profile() of it gives an equal profile.
std::string to_json(const Profile& profile);

/// @throws std::invalid_argument where a time or size is negative or not finite, a name is empty or
///   doubled, there are no layers, last_read names the layer itself or none, or backward_order is not a
///   permutation
void validate(const Profile& profile);

/// C = sum of f_l + b_l, plus s.
double compute_seconds(const Profile& profile);

/// The order in which backwards run, spelled out: backward_order, or L-1 .. 0 where that is empty.
std::vector<std::size_t> backward_sequence(const Profile& profile);

/// For every layer, G_l: the compute behind its last read in the backward, up to the optimizer step.
/// For a last read in the forward this also counts the forward behind it and the whole backward.
std::vector<double> cover_after_last_read(const Profile& profile);

/// For every layer, D_l: the compute in front of its first read in the forward.
std::vector<double> cover_before_first_read(const Profile& profile);

}  // namespace dreamddp
