// The emulated link as Python sees it: converts and forwards.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <string>

#include "runtime/emulated_backend.h"

namespace py = pybind11;

namespace dreamddp {
namespace {

std::shared_ptr<EmulatedLink> make_link(double bandwidth_bytes_per_second, double latency_seconds,
                                        int in_flight, double jitter_seconds, std::uint64_t seed) {
  EmulatedLinkOptions options;
  options.link.bandwidth_bytes_per_second = bandwidth_bytes_per_second;
  options.link.latency_seconds = latency_seconds;
  options.link.in_flight = in_flight;
  options.jitter_seconds = jitter_seconds;
  options.seed = seed;
  return std::make_shared<EmulatedLink>(options);
}

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::barrier:
      return "barrier";
  }
  return "";
}

}  // namespace

void bind_emulated_link(py::module_& module) {
  py::class_<LinkStatistics>(module, "LinkStatistics", "What an emulated link of this process has carried.")
      .def_readonly("ops", &LinkStatistics::num_ops, "Number of collectives.")
      .def_readonly("num_bytes", &LinkStatistics::num_bytes,
                    "Sum of their tensors' bytes: what was averaged or sent, not the traffic of a ring.")
      .def_readonly("busy_seconds", &LinkStatistics::busy_seconds,
                    "Time in which the link was taken, without latencies.");

  py::class_<LinkBooking>(module, "LinkBooking",
                          "A collective on the link. Times are nanoseconds of the machine's steady clock.")
      .def_property_readonly("collective",
                             [](const LinkBooking& booking) { return name_of(booking.request.collective); })
      .def_property_readonly("num_bytes",
                             [](const LinkBooking& booking) { return booking.request.num_bytes; })
      .def_property_readonly("workers", [](const LinkBooking& booking) { return booking.request.workers; })
      .def_property_readonly(
          "ready", [](const LinkBooking& booking) { return booking.request.ready; },
          "When the last rank had launched it and no rank's link was taken by other groups.")
      .def_property_readonly("jitter", [](const LinkBooking& booking) { return booking.request.jitter; })
      .def_readonly("start", &LinkBooking::start)
      .def_readonly("transfer", &LinkBooking::transfer, "The time for which it took the link.")
      .def_readonly("finish", &LinkBooking::finish);

  py::class_<EmulatedLink, std::shared_ptr<EmulatedLink>>(module, "EmulatedLink",
                                                          "A link clock of this process.")
      .def(py::init(&make_link), py::kw_only(), py::arg("bandwidth_bytes_per_second"),
           py::arg("latency_seconds"), py::arg("in_flight"), py::arg("jitter_seconds"), py::arg("seed"))
      .def("statistics", &EmulatedLink::statistics)
      .def("recent", &EmulatedLink::recent, "The latest 4096 collectives, oldest first.")
      .def("close", &EmulatedLink::close, py::call_guard<py::gil_scoped_release>(),
           "Fails collectives under way and later ones, and ends the link's thread.")
      .def(
          "backend",
          [](std::shared_ptr<EmulatedLink> link, c10::intrusive_ptr<c10d::Backend> wrapped,
             std::chrono::milliseconds timeout, const std::string& name) {
            // Python knows backends by their base class.
            return c10::intrusive_ptr<c10d::Backend>(
                c10::make_intrusive<EmulatedBackend>(std::move(link), std::move(wrapped), timeout, name));
          },
          py::arg("wrapped"), py::arg("timeout"), py::arg("name"),
          "A backend whose collectives are carried out by `wrapped` and take the time that this link needs.");
}

}  // namespace dreamddp
