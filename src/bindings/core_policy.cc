#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core_bindings.h"
#include "core_enum.h"
#include "core_repr.h"
#include "dreamddp/due_plan.h"
#include "dreamddp/policy.h"

namespace dreamddp::bindings {

namespace py = pybind11;

void bind_policy(py::module_& module) {
  bind_enum<Treatment>(
      module, "Treatment", "What becomes of a layer in an iteration.",
      {{"skipped", Treatment::skipped}, {"alone", Treatment::alone}, {"merged", Treatment::merged}});

  py::class_<Decision>(module, "Decision", "Whether a layer is averaged in an iteration, and why.")
      .def_readonly("is_due", &Decision::is_due)
      .def_property_readonly(
          "rule", [](const Decision& decision) { return rule_name(decision.rule); },
          "That made the layer due, or that was asked last.")
      .def_readonly("value", &Decision::value, "What the rule looked at.")
      .def_readonly("limit", &Decision::limit, "What it was compared with.")
      .def("__repr__", [](const Decision& decision) {
        return repr_fields("Decision", {{"is_due", py::cast(decision.is_due)},
                                        {"rule", py::cast(rule_name(decision.rule))},
                                        {"value", py::cast(decision.value)},
                                        {"limit", py::cast(decision.limit)}});
      });

  py::class_<LayerPolicies>(module, "LayerPolicies",
                            "The policies of all layers of a model, with their counters.")
      .def(py::init([](const std::vector<std::string>& layers, const std::string& policies,
                       std::int64_t first_iteration) {
             return LayerPolicies(layers, parse_policies(policies), first_iteration);
           }),
           py::arg("layers"), py::arg("policies"), py::kw_only(), py::arg("first_iteration") = 0)
      .def_property_readonly("iteration", &LayerPolicies::iteration, "That the decisions are about.")
      .def_property_readonly(
          "decisions", [](const LayerPolicies& policies) { return as_tuple(policies.decisions()); },
          "For every layer.")
      .def("staleness", &LayerPolicies::staleness, py::arg("layer"))
      .def_property_readonly(
          "need_similarity",
          [](const LayerPolicies& policies) { return as_tuple(policies.need_similarity()); },
          "For every layer, whether its policy looks at the similarity.")
      .def(
          "iteration_ends",
          [](LayerPolicies& policies, const std::vector<double>& similarities,
             const std::vector<std::size_t>& out_of_turn) {
            std::vector<LayerSignal> signals;
            for (const double similarity : similarities) signals.push_back({similarity});
            policies.iteration_ends(signals, out_of_turn);
          },
          py::arg("similarities"), py::kw_only(), py::arg("out_of_turn") = std::vector<std::size_t>{},
          "Ends the iteration and decides for the next one.")
      .def("state", &LayerPolicies::state)
      .def("set_state", &LayerPolicies::set_state, py::arg("state"));

  module.def(
      "normalized_policies", [](const std::string& policies) { return to_json(parse_policies(policies)); },
      py::arg("policies"), "The same policies (JSON) with all keys. Raises ValueError.");
  module.def(
      "staggered_phases",
      [](const std::vector<std::int64_t>& periods, const std::vector<double>& num_bytes) {
        return staggered_phases(periods, num_bytes);
      },
      py::arg("periods"), py::arg("num_bytes"),
      "Phases of fixed periods, so that iterations have about equally much to send.");
  module.def("with_due_layers", &with_due_layers, py::arg("profile"), py::arg("is_due"),
             "The profile of the same computation in which only these layers have parameters.");
  module.def("plan_due_layers", &plan_due_layers, py::arg("profile"), py::arg("link"), py::arg("is_due"),
             py::kw_only(), py::arg("slack") = 0.0, py::call_guard<py::gil_scoped_release>(),
             "A plan of period 1 that averages the layers that are due and no others.");
  module.def(
      "treatments", [](const Plan& plan) { return as_tuple(treatments(plan)); }, py::arg("plan"),
      "What becomes of every layer.");
}

}  // namespace dreamddp::bindings
