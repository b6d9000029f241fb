#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "core_bindings.h"
#include "core_enum.h"
#include "core_repr.h"
#include "dreamddp/bound.h"
#include "dreamddp/simulator.h"
#include "dreamddp/timeline.h"

namespace dreamddp::bindings {

namespace py = pybind11;

namespace {

Simulation simulate_steady(const Plan& plan, const Profile& profile, const Link& link,
                           std::int64_t staging_bytes) {
  return simulate(plan, profile, link, {.staging_bytes = staging_bytes, .timeline = nullptr});
}

std::vector<Span> simulate_timeline(const Plan& plan, const Profile& profile, const Link& link) {
  Timeline timeline;
  simulate(plan, profile, link, {.timeline = &timeline});
  return std::move(timeline.spans);
}

std::string repr_simulation(const Simulation& simulation) {
  return repr_fields("Simulation", {{"iteration_seconds", py::cast(simulation.iteration_seconds)},
                                    {"compute_seconds", py::cast(simulation.compute_seconds)},
                                    {"link_seconds", py::cast(simulation.link_seconds)},
                                    {"exposed_seconds", py::cast(simulation.exposed_seconds)},
                                    {"limit_seconds", py::cast(simulation.limit_seconds)},
                                    {"bound_seconds", py::cast(simulation.bound_seconds)},
                                    {"gap", py::cast(simulation.gap)},
                                    {"ops_per_iteration", py::cast(simulation.ops_per_iteration)},
                                    {"staging_bytes", py::cast(simulation.staging_bytes)},
                                    {"bytes_per_iteration", py::cast(simulation.bytes_per_iteration)}});
}

void bind_span(py::module_& module) {
  bind_enum<SpanKind>(module, "SpanKind", "What takes the time.",
                      {{"forward", SpanKind::forward},
                       {"backward", SpanKind::backward},
                       {"step", SpanKind::step},
                       {"wait", SpanKind::wait},
                       {"link", SpanKind::link}});

  py::class_<Span>(module, "Span", "One thing that happened on the compute or the link track, in seconds.")
      .def(py::init([](SpanKind kind, std::string name, int rank, std::int64_t iteration,
                       double begin_seconds, double end_seconds) {
             return Span{kind, std::move(name), rank, iteration, begin_seconds, end_seconds};
           }),
           py::arg("kind"), py::arg("name"), py::kw_only(), py::arg("rank") = 0, py::arg("iteration") = 0,
           py::arg("begin_seconds"), py::arg("end_seconds"))
      .def_readonly("kind", &Span::kind)
      .def_readonly("name", &Span::name, "The layer or the op.")
      .def_readonly("rank", &Span::rank)
      .def_readonly("iteration", &Span::iteration)
      .def_readonly("begin_seconds", &Span::begin_seconds)
      .def_readonly("end_seconds", &Span::end_seconds)
      .def("__repr__", [](const Span& span) {
        return repr_fields("Span", {{"kind", py::cast(span.kind)},
                                    {"name", py::cast(span.name)},
                                    {"rank", py::cast(span.rank)},
                                    {"iteration", py::cast(span.iteration)},
                                    {"begin_seconds", py::cast(span.begin_seconds)},
                                    {"end_seconds", py::cast(span.end_seconds)}});
      });
}

}  // namespace

void bind_simulator(py::module_& module) {
  bind_span(module);
  module.attr("default_staging_bytes") = default_staging_bytes;

  py::class_<Simulation>(module, "Simulation",
                         "How long a plan takes: means per iteration in the steady state.")
      .def_readonly("iteration_seconds", &Simulation::iteration_seconds)
      .def_readonly("compute_seconds", &Simulation::compute_seconds, "C")
      .def_readonly("link_seconds", &Simulation::link_seconds, "Without latency.")
      .def_readonly("exposed_seconds", &Simulation::exposed_seconds, "Compute waiting for the link.")
      .def_readonly("limit_seconds", &Simulation::limit_seconds, "max(compute, link): no plan can beat it.")
      .def_readonly("bound_seconds", &Simulation::bound_seconds)
      .def_readonly("gap", &Simulation::gap, "Iteration over bound, minus 1.")
      .def_readonly("ops_per_iteration", &Simulation::ops_per_iteration)
      .def_readonly("staging_bytes", &Simulation::staging_bytes)
      .def_readonly("bytes_per_iteration", &Simulation::bytes_per_iteration, "None where a size is unknown.")
      .def("__repr__", &repr_simulation);

  const auto release = py::call_guard<py::gil_scoped_release>();
  module.def("simulate", &simulate_steady, py::arg("plan"), py::arg("profile"), py::arg("link"),
             py::kw_only(), py::arg("staging_bytes") = default_staging_bytes, release,
             "Runs the plan on a virtual clock until the time of a period is steady.");
  module.def("simulate_timeline", &simulate_timeline, py::arg("plan"), py::arg("profile"), py::arg("link"),
             release, "The spans of the last simulated period, from time 0.");
  module.def(
      "to_chrome_trace", [](std::vector<Span> spans) { return to_chrome_trace({std::move(spans)}); },
      py::arg("spans"), "JSON that Perfetto and chrome://tracing open: one process per rank.");
  module.def(
      "bound_seconds",
      [](const Profile& profile, const std::vector<double>& transfer_seconds, std::int64_t period,
         OpMode mode, double latency_seconds, std::int64_t in_flight) {
        return bound_seconds(
            profile, transfer_seconds,
            {.period = period, .mode = mode, .latency_seconds = latency_seconds, .in_flight = in_flight});
      },
      py::arg("profile"), py::arg("transfer_seconds"), py::arg("period"), py::kw_only(),
      py::arg("mode") = OpMode::in_place, py::arg("latency_seconds") = 0.0, py::arg("in_flight") = 1,
      "Lower bound on the iteration time of every plan of that period and mode.");
}

}  // namespace dreamddp::bindings
