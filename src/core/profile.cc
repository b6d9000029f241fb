#include "dreamddp/profile.h"

#include <cmath>
#include <unordered_map>

#include "core/decimal.h"
#include "core/profile_text.h"
#include "core/utf8.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

void validate_seconds(double seconds, const std::string& where) {
  if (!std::isfinite(seconds) || seconds < 0) {
    reject({where, shortest_text(seconds), "a finite number of seconds of at least 0", "Measure it again"});
  }
}

void validate_names(const Profile& profile) {
  std::unordered_map<std::string_view, std::size_t> index_of;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const std::string& name = profile.layers[l].name;
    if (name.empty() || !is_utf8(name) || name.find('\x7f') != std::string::npos) {
      reject({"layers[" + std::to_string(l) + "]: name", "\"" + name + "\"",
              "a name of at least one character, in UTF-8, without U+007F",
              "Name the layer after its module"});
    }
    const auto [other, is_new] = index_of.emplace(name, l);
    if (!is_new) {
      reject({layer_place(profile, l) + ": name",
              "the name of layers[" + std::to_string(other->second) + "] again",
              "a name of its own for every layer", "Rename one, or remove it if it is the same tensor"});
    }
  }
}

void validate_last_read(const Profile& profile, std::size_t l) {
  const LastRead& last_read = profile.layers[l].last_read;
  if (last_read.kind != LastReadKind::other_backward) {
    return;
  }
  const std::string where = layer_place(profile, l) + ": last_read";
  if (last_read.layer >= profile.layers.size()) {
    reject({where, "layer " + std::to_string(last_read.layer),
            "a layer from 0 to " + std::to_string(profile.layers.size() - 1),
            "Give the layer whose backward reads it last"});
  }
  if (last_read.layer == l) {
    reject({where, "the backward of the layer itself", "the backward of another layer",
            "Use \"backward\" for the layer's own"});
  }
}

void validate_backward_order(const Profile& profile) {
  const auto& order = profile.backward_order;
  if (order.empty()) {
    return;
  }
  const std::string allowed = "each of the " + std::to_string(profile.layers.size()) + " layers once";
  if (order.size() != profile.layers.size()) {
    reject({"backward_order", std::to_string(order.size()) + " layers", allowed,
            "Leave it out for the reverse order"});
  }
  std::vector<bool> is_seen(order.size(), false);
  for (const std::size_t l : order) {
    if (l >= order.size()) {
      reject({"backward_order", "layer " + std::to_string(l), allowed, "Leave it out for the reverse order"});
    }
    if (is_seen[l]) {
      reject({"backward_order", layer_place(profile, l) + " twice", allowed,
              "Leave it out for the reverse order"});
    }
    is_seen[l] = true;
  }
}

}  // namespace

std::string layer_place(const Profile& profile, std::size_t layer) {
  return "layers[" + std::to_string(layer) + "] '" + profile.layers[layer].name + "'";
}

void validate(const Profile& profile) {
  if (profile.layers.empty()) {
    reject({"layers", "none", "at least one layer", "Profile a model that has parameters"});
  }
  validate_names(profile);
  validate_seconds(profile.step_seconds, "step");
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const Layer& layer = profile.layers[l];
    validate_seconds(layer.forward_seconds, layer_place(profile, l) + ": forward");
    validate_seconds(layer.backward_seconds, layer_place(profile, l) + ": backward");
    if (layer.transfer_seconds) {
      validate_seconds(*layer.transfer_seconds, layer_place(profile, l) + ": transfer");
    }
    if (layer.num_bytes && *layer.num_bytes < 0) {
      reject({layer_place(profile, l) + ": num_bytes", std::to_string(*layer.num_bytes),
              "a whole number of at least 0", "Give 0 for a layer without parameters"});
    }
    validate_last_read(profile, l);
  }
  validate_backward_order(profile);
  validate_seconds(compute_seconds(profile), "the sum of all times");
}

double compute_seconds(const Profile& profile) {
  double seconds = profile.step_seconds;
  for (const Layer& layer : profile.layers) {
    seconds += layer.forward_seconds + layer.backward_seconds;
  }
  return seconds;
}

std::vector<std::size_t> backward_sequence(const Profile& profile) {
  if (!profile.backward_order.empty()) {
    return profile.backward_order;
  }
  std::vector<std::size_t> sequence(profile.layers.size());
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    sequence[i] = sequence.size() - 1 - i;
  }
  return sequence;
}

std::vector<double> cover_after_last_read(const Profile& profile) {
  const std::size_t num_layers = profile.layers.size();
  const auto sequence = backward_sequence(profile);
  std::vector<double> behind_backward(num_layers);
  double seconds = 0;
  for (auto l = sequence.rbegin(); l != sequence.rend(); ++l) {
    behind_backward[*l] = seconds;
    seconds += profile.layers[*l].backward_seconds;
  }
  std::vector<double> cover(num_layers);
  for (std::size_t l = num_layers; l-- > 0;) {  // `seconds`: everything behind the forward of l
    const LastRead& last_read = profile.layers[l].last_read;
    switch (last_read.kind) {
      case LastReadKind::own_backward:
        cover[l] = behind_backward[l];
        break;
      case LastReadKind::other_backward:
        cover[l] = behind_backward[last_read.layer];
        break;
      case LastReadKind::forward:
        cover[l] = seconds;
        break;
    }
    seconds += profile.layers[l].forward_seconds;
  }
  return cover;
}

std::vector<double> cover_before_first_read(const Profile& profile) {
  std::vector<double> cover;
  cover.reserve(profile.layers.size());
  double seconds = 0;
  for (const Layer& layer : profile.layers) {
    cover.push_back(seconds);
    seconds += layer.forward_seconds;
  }
  return cover;
}

}  // namespace dreamddp
