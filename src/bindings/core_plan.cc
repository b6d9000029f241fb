#include <pybind11/stl.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core_bindings.h"
#include "core_enum.h"
#include "core_files.h"
#include "core_repr.h"
#include "dreamddp/error.h"
#include "dreamddp/plan.h"

namespace dreamddp::bindings {

namespace py = pybind11;

namespace {

void check_layers(const Op& op, std::size_t num_layers, const std::string& place) {
  const auto check = [&](std::size_t layer) {
    if (layer < num_layers) return;
    reject({.field = place + ": layer",
            .value = std::to_string(layer),
            .allowed = "an index below the number of layers, " + std::to_string(num_layers),
            .remedy = "Count layers from 0, in the order of the profile"});
  };
  for (const Segment& segment : op.segments) check(segment.layer);
  check(op.launch.layer);
  check(op.deadline.layer);
}

// The reader of plan files knows all the rules; indices are what a file cannot get wrong, as it has names.
Plan checked(const Plan& plan) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    check_layers(plan.ops[i], plan.layers.size(), "ops[" + std::to_string(i) + "]");
  return parse_plan(to_json(plan));
}

OpMode mode_of(const Op& op, const Profile& profile) {
  check_layers(op, profile.layers.size(), "op");
  return op_mode(op, EventOrder(profile));
}

std::int64_t bytes_booked(const Plan& plan, const Profile& profile) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    check_layers(plan.ops[i], profile.layers.size(), "ops[" + std::to_string(i) + "]");
  return booked_bytes(plan, profile);
}

void bind_op(py::module_& module) {
  bind_enum<Quantity>(module, "Quantity", "What an op averages.",
                      {{"parameters", Quantity::parameters}, {"gradients", Quantity::gradients}});
  bind_enum<EventKind>(module, "EventKind", "Launches are `after_..` events, deadlines `before_..` events.",
                       {{"before_forward", EventKind::before_forward},
                        {"after_forward", EventKind::after_forward},
                        {"after_backward", EventKind::after_backward},
                        {"before_step", EventKind::before_step},
                        {"after_step", EventKind::after_step}});
  bind_enum<OpMode>(module, "OpMode", "How the result of an op reaches the parameters.",
                    {{"in_place", OpMode::in_place}, {"held", OpMode::held}, {"carried", OpMode::carried}});
  bind_enum<Update>(module, "Update",
                    "When the optimizer steps a layer: with all others behind the backward, or inside the "
                    "backward, when its gradient is complete.",
                    {{"step", Update::step}, {"fused", Update::fused}});

  py::class_<Segment>(module, "Segment", "A slice of one layer's flattened parameters, as fractions of it.")
      .def(py::init([](std::size_t layer, double begin, double end) {
             return Segment{layer, begin, end};
           }),
           py::arg("layer"), py::arg("begin") = 0.0, py::arg("end") = 1.0)
      .def_readonly("layer", &Segment::layer)
      .def_readonly("begin", &Segment::begin)
      .def_readonly("end", &Segment::end)
      .def(
          "__eq__", [](const Segment& a, const Segment& b) { return a == b; }, py::is_operator())
      .def("__repr__", [](const Segment& segment) {
        return repr_fields("Segment", {{"layer", py::cast(segment.layer)},
                                       {"begin", py::cast(segment.begin)},
                                       {"end", py::cast(segment.end)}});
      });

  py::class_<Event>(module, "Event", "A moment of one iteration; a deadline may lie in the next period.")
      .def(py::init([](std::int64_t iteration, EventKind kind, std::size_t layer) {
             return Event{iteration, kind, layer};
           }),
           py::arg("iteration"), py::arg("kind"), py::arg("layer") = 0)
      .def_readonly("iteration", &Event::iteration)
      .def_readonly("kind", &Event::kind)
      .def_readonly("layer", &Event::layer, "0 for the events of a step.")
      .def(
          "__eq__", [](const Event& a, const Event& b) { return a == b; }, py::is_operator())
      .def("__repr__", [](const Event& event) {
        return repr_fields("Event", {{"iteration", py::cast(event.iteration)},
                                     {"kind", py::cast(event.kind)},
                                     {"layer", py::cast(event.layer)}});
      });

  py::class_<Op>(module, "Op", "One all-reduce, from its launch event to its deadline.")
      .def(py::init([](std::vector<Segment> segments, Event launch, Event deadline, Quantity quantity) {
             return Op{quantity, std::move(segments), launch, deadline};
           }),
           py::arg("segments"), py::kw_only(), py::arg("launch"), py::arg("deadline"),
           py::arg("quantity") = Quantity::parameters)
      .def_readonly("quantity", &Op::quantity)
      .def_property_readonly("segments", [](const Op& op) { return as_tuple(op.segments); })
      .def_readonly("launch", &Op::launch)
      .def_readonly("deadline", &Op::deadline)
      .def_property_readonly("num_steps_crossed", &num_steps_crossed,
                             "Optimizer steps behind the backward between launch and deadline.")
      .def(
          "__eq__", [](const Op& a, const Op& b) { return a == b; }, py::is_operator())
      .def("__repr__", [](const Op& op) {
        return repr_fields("Op", {{"segments", as_tuple(op.segments)},
                                  {"launch", py::cast(op.launch)},
                                  {"deadline", py::cast(op.deadline)},
                                  {"quantity", py::cast(op.quantity)}});
      });
}

}  // namespace

void bind_plan(py::module_& module) {
  module.attr("longest_period") = longest_period;
  bind_op(module);

  py::class_<Plan>(
      module, "Plan",
      "Which part of the model is averaged when. Immutable; the constructor checks all that can be "
      "checked without a profile.")
      .def(py::init([](std::string planner, std::int64_t period, std::vector<std::string> layers,
                       std::vector<Op> ops, Update update) {
             return checked(Plan{std::move(planner), period, std::move(layers), std::move(ops), update});
           }),
           py::kw_only(), py::arg("planner"), py::arg("period"), py::arg("layers"), py::arg("ops"),
           py::arg("update") = Update::step)
      .def_readonly("planner", &Plan::planner)
      .def_readonly("period", &Plan::period, "H, in iterations.")
      .def_readonly("update", &Plan::update, "What the training that carries it out does.")
      .def_property_readonly("layers", [](const Plan& plan) { return as_tuple(plan.layers); })
      .def_property_readonly(
          "ops", [](const Plan& plan) { return as_tuple(plan.ops); }, "In launch order.")
      .def_static(
          "from_json", [](std::string_view text) { return parse_plan(text); }, py::arg("text"),
          "Parses \"dreamddp-plan/1\".")
      .def("to_json", [](const Plan& plan) { return to_json(plan); })
      .def_static(
          "load",
          [](const py::object& path) {
            return load(path, [](std::string_view json) { return parse_plan(json); });
          },
          py::arg("path"), "Reads a plan file. OSError and ValueError name the path.")
      .def(
          "save", [](const Plan& plan, const py::object& path) { write_text_file(path, to_json(plan)); },
          py::arg("path"))
      .def(
          "__eq__", [](const Plan& a, const Plan& b) { return a == b; }, py::is_operator())
      .def("__repr__",
           [](const Plan& plan) {
             return "<Plan by " + py::repr(py::cast(plan.planner)).cast<std::string>() + ", period " +
                    std::to_string(plan.period) + ", " + std::to_string(plan.ops.size()) + " ops>";
           })
      .def(py::pickle([](const Plan& plan) { return to_json(plan); },
                      [](const std::string& json) { return parse_plan(json); }));

  module.def(
      "validate_plan", [](const Plan& plan, const Profile& profile) { validate(plan, profile); },
      py::arg("plan"), py::arg("profile"), "ValueError where the plan would lose or corrupt parameters.");
  module.def("op_mode", &mode_of, py::arg("op"), py::arg("profile"),
             "ValueError where the op has a layer that the profile lacks.");
  module.def("booked_bytes", &bytes_booked, py::arg("plan"), py::arg("profile"),
             "Bytes that held and carried ops book at most at one time, beyond the staging ring.");
}

}  // namespace dreamddp::bindings
