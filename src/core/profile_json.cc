#include <unordered_map>

#include "core/decimal.h"
#include "core/json_reading.h"
#include "core/profile_text.h"
#include "core/time_unit.h"
#include "dreamddp/error.h"
#include "dreamddp/profile.h"

namespace dreamddp {
namespace {

constexpr std::string_view profile_format = "dreamddp-profile/1";

using LayerIndex = std::unordered_map<std::string, std::size_t>;

struct TimeReader {
  int exponent;  ///< of the file's unit
  const ProfileReading& reading;

  double operator()(const Json& value, const std::string& where) const {
    if (is_nan_token(value)) {
      if (!reading.nan_as_zero) {
        reject({where, "NaN", "a number of at least 0",
                "Measure it again, or read the file with NaN taken as 0"});
      }
      if (reading.warnings != nullptr) {
        reading.warnings->push_back(where + ": NaN taken as 0");
      }
      return 0;
    }
    return scale_decimal(read_number(value, where), exponent);
  }
};

std::size_t layer_of(const Json& name, const LayerIndex& index_of, const std::string& where) {
  const auto found = index_of.find(read_string(name, where));
  if (found == index_of.end()) {
    reject(
        {where, text_of(name), "the name of a layer of this profile", "Correct the name, or add the layer"});
  }
  return found->second;
}

LastRead read_last_read(const Json& value, const LayerIndex& index_of, const std::string& where) {
  if (value == "backward") {
    return {LastReadKind::own_backward, 0};
  }
  if (value == "forward") {
    return {LastReadKind::forward, 0};
  }
  if (!value.is_object()) {
    reject({where, text_of(value), "\"backward\", \"forward\" or {\"backward\": \"name of another layer\"}",
            "Leave it out for the layer's own backward"});
  }
  expect_object(value, where, {"backward"});
  return {LastReadKind::other_backward, layer_of(required(value, "backward", where), index_of, where)};
}

Layer read_layer(const Json& value, const std::string& where, const TimeReader& read_seconds) {
  Layer layer;
  layer.forward_seconds = read_seconds(required(value, "forward", where), where + ": forward");
  layer.backward_seconds = read_seconds(required(value, "backward", where), where + ": backward");
  if (const Json* num_bytes = optional(value, "num_bytes")) {
    layer.num_bytes = read_count(*num_bytes, where + ": num_bytes");
  }
  if (const Json* transfer = optional(value, "transfer")) {
    layer.transfer_seconds = read_seconds(*transfer, where + ": transfer");
  }
  return layer;
}

}  // namespace

Profile parse_profile(std::string_view json, const ProfileReading& reading) {
  const Json root = read_json(json, "profile").root;
  expect_format(root, profile_format, "profile");
  expect_object(root, "profile", {"format", "time_unit", "step", "layers", "backward_order", "sizes"});
  const Json* unit = optional(root, "time_unit");
  if (unit == nullptr) {
    reject(
        {"profile: time_unit", "none", "\"s\", \"ms\" or \"us\"", "State the unit of the times in the file"});
  }
  const TimeReader read_seconds{
      parse_time_exponent(read_string(*unit, "profile: time_unit"), "profile: time_unit"), reading};

  Profile profile;
  if (const Json* step = optional(root, "step")) {
    profile.step_seconds = read_seconds(*step, "step");
  }
  const Json& layers = required(root, "layers", "profile");
  expect_array(layers, "layers");
  LayerIndex index_of;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::string where = "layers[" + std::to_string(l) + "]";
    expect_object(layers[l], where, {"name", "forward", "backward", "num_bytes", "transfer", "last_read"});
    const std::string& name = read_string(required(layers[l], "name", where), where + ": name");
    where += " '" + name + "'";
    profile.layers.push_back(read_layer(layers[l], where, read_seconds));
    profile.layers.back().name = name;
    index_of.emplace(name, l);
  }
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (const Json* last_read = optional(layers[l], "last_read")) {
      profile.layers[l].last_read =
          read_last_read(*last_read, index_of, layer_place(profile, l) + ": last_read");
    }
  }
  if (const Json* order = optional(root, "backward_order")) {
    expect_array(*order, "backward_order");
    for (std::size_t i = 0; i < order->size(); ++i) {
      profile.backward_order.push_back(
          layer_of((*order)[i], index_of, "backward_order[" + std::to_string(i) + "]"));
    }
    if (order->empty() && !profile.layers.empty()) {
      reject({"backward_order", "an empty array", "each layer once", "Leave it out for the reverse order"});
    }
  }
  if (const Json* sizes = optional(root, "sizes")) {
    if (*sizes != "estimated")
      reject({"sizes", text_of(*sizes), "\"estimated\"", "Leave it out for known sizes"});
    profile.sizes_are_estimated = true;
  }
  validate(profile);
  return profile;
}

std::string to_json(const Profile& profile) {
  validate(profile);
  nlohmann::ordered_json root;
  root["format"] = profile_format;
  root["time_unit"] = "s";
  root["step"] = profile.step_seconds;
  if (profile.sizes_are_estimated) root["sizes"] = "estimated";
  root["layers"] = nlohmann::ordered_json::array();
  for (const Layer& layer : profile.layers) {
    nlohmann::ordered_json& item = root["layers"].emplace_back();
    item["name"] = layer.name;
    item["forward"] = layer.forward_seconds;
    item["backward"] = layer.backward_seconds;
    if (layer.num_bytes) {
      item["num_bytes"] = *layer.num_bytes;
    }
    if (layer.transfer_seconds) {
      item["transfer"] = *layer.transfer_seconds;
    }
    switch (layer.last_read.kind) {
      case LastReadKind::own_backward:
        break;
      case LastReadKind::forward:
        item["last_read"] = "forward";
        break;
      case LastReadKind::other_backward:
        item["last_read"] = {{"backward", profile.layers[layer.last_read.layer].name}};
        break;
    }
  }
  if (!profile.backward_order.empty()) {
    for (const std::size_t l : profile.backward_order) {
      root["backward_order"].push_back(profile.layers[l].name);
    }
  }
  return root.dump(2) + "\n";
}

}  // namespace dreamddp
