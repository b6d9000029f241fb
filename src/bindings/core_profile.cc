#include <pybind11/stl.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core_bindings.h"
#include "core_enum.h"
#include "core_files.h"
#include "core_repr.h"
#include "dreamddp/profile.h"
#include "dreamddp/profile_import.h"

namespace dreamddp::bindings {

namespace py = pybind11;

namespace {

// Replaced values become Python warnings, which a caller can silence or turn into errors.
Profile parse_with_warnings(std::string_view json, bool nan_as_zero) {
  std::vector<std::string> warnings;
  Profile profile = parse_profile(json, {.nan_as_zero = nan_as_zero, .warnings = &warnings});
  for (const std::string& warning : warnings) {
    if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), 1) != 0) throw py::error_already_set();
  }
  return profile;
}

std::string repr_layer(const Layer& layer) {
  return repr_fields("Layer", {{"name", py::cast(layer.name)},
                               {"forward_seconds", py::cast(layer.forward_seconds)},
                               {"backward_seconds", py::cast(layer.backward_seconds)},
                               {"num_bytes", py::cast(layer.num_bytes)},
                               {"transfer_seconds", py::cast(layer.transfer_seconds)},
                               {"last_read", py::cast(layer.last_read)}});
}

void bind_layer(py::module_& module) {
  bind_enum<LastReadKind>(module, "LastReadKind", "When a layer's parameters are read for the last time.",
                          {{"own_backward", LastReadKind::own_backward},
                           {"forward", LastReadKind::forward},
                           {"other_backward", LastReadKind::other_backward}});

  py::class_<LastRead>(module, "LastRead", "The last read of a layer's parameters in an iteration.")
      .def(py::init([](LastReadKind kind, std::size_t layer) {
             return LastRead{kind, layer};
           }),
           py::arg("kind"), py::arg("layer") = 0)
      .def_readonly("kind", &LastRead::kind)
      .def_readonly("layer", &LastRead::layer, "The other layer's index, for other_backward; else 0.")
      .def(
          "__eq__", [](const LastRead& a, const LastRead& b) { return a == b; }, py::is_operator())
      .def("__repr__", [](const LastRead& last_read) {
        return repr_fields("LastRead",
                           {{"kind", py::cast(last_read.kind)}, {"layer", py::cast(last_read.layer)}});
      });

  py::class_<Layer>(module, "Layer", "One layer: times in seconds, size in bytes; None where unknown.")
      .def(py::init([](std::string name, double forward_seconds, double backward_seconds,
                       std::optional<std::int64_t> num_bytes, std::optional<double> transfer_seconds,
                       LastRead last_read) {
             return Layer{std::move(name), forward_seconds,  backward_seconds,
                          num_bytes,       transfer_seconds, last_read};
           }),
           py::arg("name"), py::kw_only(), py::arg("forward_seconds") = 0.0,
           py::arg("backward_seconds") = 0.0, py::arg("num_bytes") = py::none(),
           py::arg("transfer_seconds") = py::none(), py::arg("last_read") = LastRead{})
      .def_readonly("name", &Layer::name)
      .def_readonly("forward_seconds", &Layer::forward_seconds,
                    "From this layer's first read to the next one's.")
      .def_readonly("backward_seconds", &Layer::backward_seconds,
                    "From the end of the backward before it to the end of its own.")
      .def_readonly("num_bytes", &Layer::num_bytes)
      .def_readonly("transfer_seconds", &Layer::transfer_seconds, "Measured link time, without latency.")
      .def_readonly("last_read", &Layer::last_read)
      .def(
          "__eq__", [](const Layer& a, const Layer& b) { return a == b; }, py::is_operator())
      .def("__repr__", &repr_layer);
}

}  // namespace

void bind_profile(py::module_& module) {
  bind_layer(module);

  py::class_<Profile>(module, "Profile", "What a model costs. Immutable; the constructor validates.")
      .def(py::init(
               [](std::vector<Layer> layers, double step_seconds, std::vector<std::size_t> backward_order) {
                 Profile profile{.layers = std::move(layers),
                                 .step_seconds = step_seconds,
                                 .backward_order = std::move(backward_order)};
                 validate(profile);
                 return profile;
               }),
           py::arg("layers"), py::kw_only(), py::arg("step_seconds") = 0.0,
           py::arg("backward_order") = std::vector<std::size_t>{})
      .def_property_readonly("layers", [](const Profile& profile) { return as_tuple(profile.layers); })
      .def_readonly("step_seconds", &Profile::step_seconds, "The optimizer step.")
      .def_readonly("sizes_are_estimated", &Profile::sizes_are_estimated,
                    "Whether num_bytes were computed from link times, not read off a model.")
      .def_property_readonly(
          "backward_order", [](const Profile& profile) { return as_tuple(profile.backward_order); },
          "Layer indices in the order of their backwards; empty where that is the reverse of the forward.")
      .def_static("from_json", &parse_with_warnings, py::arg("text"), py::kw_only(),
                  py::arg("nan_as_zero") = false,
                  "Parses \"dreamddp-profile/1\". With nan_as_zero, bare NaN is 0 and warned about.")
      .def("to_json", [](const Profile& profile) { return to_json(profile); })
      .def_static(
          "load",
          [](const py::object& path, bool nan_as_zero) {
            return load(path, [&](std::string_view json) { return parse_with_warnings(json, nan_as_zero); });
          },
          py::arg("path"), py::kw_only(), py::arg("nan_as_zero") = false,
          "Reads a profile file. OSError and ValueError name the path.")
      .def(
          "save",
          [](const Profile& profile, const py::object& path) { write_text_file(path, to_json(profile)); },
          py::arg("path"))
      .def(
          "__eq__", [](const Profile& a, const Profile& b) { return a == b; }, py::is_operator())
      .def("__repr__",
           [](const Profile& profile) {
             return "<Profile of " + std::to_string(profile.layers.size()) + " layers, compute " +
                    py::repr(py::cast(compute_seconds(profile))).cast<std::string>() + " s>";
           })
      .def(py::pickle([](const Profile& profile) { return to_json(profile); },
                      [](const std::string& json) { return parse_profile(json); }));

  module.def("compute_seconds", &compute_seconds, py::arg("profile"),
             "C: forward, backward and optimizer step.");
  module.def(
      "import_public_profile",
      [](std::string_view backward_json, std::string_view sync_json, double forward_ratio, bool nan_as_zero,
         std::optional<double> assumed_bandwidth_bytes_per_second, int workers) {
        ImportedProfile imported =
            import_public_profile(backward_json, sync_json,
                                  {.forward_ratio = forward_ratio,
                                   .nan_as_zero = nan_as_zero,
                                   .assumed_bandwidth_bytes_per_second = assumed_bandwidth_bytes_per_second,
                                   .workers = workers});
        return std::pair(std::move(imported.profile), std::move(imported.warnings));
      },
      py::arg("backward_json"), py::arg("sync_json"), py::kw_only(), py::arg("forward_ratio") = 0.5,
      py::arg("nan_as_zero") = false, py::arg("assumed_bandwidth_bytes_per_second") = py::none(),
      py::arg("workers") = 2,
      "The profile in the texts of `backward.json` and `sync.json`, and one warning for each thing matched, "
      "filled in or left out. With an assumed bandwidth, sizes are estimated from the link times.");
}

}  // namespace dreamddp::bindings
