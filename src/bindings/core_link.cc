#include <pybind11/stl.h>

#include <optional>

#include "core_bindings.h"
#include "core_repr.h"
#include "dreamddp/link.h"

namespace dreamddp::bindings {

namespace py = pybind11;

void bind_link(py::module_& module) {
  py::class_<Link>(module, "Link", "The link between workers. Immutable; the constructor validates.")
      .def(py::init([](std::optional<double> bandwidth_bytes_per_second, double latency_seconds, int workers,
                       int in_flight) {
             const Link link{bandwidth_bytes_per_second, latency_seconds, workers, in_flight};
             validate(link);
             return link;
           }),
           py::kw_only(), py::arg("bandwidth_bytes_per_second") = py::none(),
           py::arg("latency_seconds") = 0.0, py::arg("workers") = 2, py::arg("in_flight") = 1)
      .def_readonly("bandwidth_bytes_per_second", &Link::bandwidth_bytes_per_second,
                    "None: the profile's measured transfer times are used.")
      .def_readonly("latency_seconds", &Link::latency_seconds, "Added to every op.")
      .def_readonly("workers", &Link::workers)
      .def_readonly("in_flight", &Link::in_flight, "Ops that may be on the link at once.")
      .def(
          "__eq__",
          [](const Link& a, const Link& b) {
            return a.bandwidth_bytes_per_second == b.bandwidth_bytes_per_second &&
                   a.latency_seconds == b.latency_seconds && a.workers == b.workers &&
                   a.in_flight == b.in_flight;
          },
          py::is_operator())
      .def("__repr__", [](const Link& link) {
        return repr_fields("Link", {{"bandwidth_bytes_per_second", py::cast(link.bandwidth_bytes_per_second)},
                                    {"latency_seconds", py::cast(link.latency_seconds)},
                                    {"workers", py::cast(link.workers)},
                                    {"in_flight", py::cast(link.in_flight)}});
      });

  module.def("layer_transfer_seconds", &layer_transfer_seconds, py::arg("profile"), py::arg("link"),
             "Link time of averaging each layer, without latency.");
}

}  // namespace dreamddp::bindings
