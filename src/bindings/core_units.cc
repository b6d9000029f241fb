#include <string>

#include "core_bindings.h"
#include "dreamddp/units.h"

namespace dreamddp::bindings {

namespace py = pybind11;

void bind_units(py::module_& module) {
  const auto text = py::arg("text");
  const auto field = py::arg("field");
  module.def("parse_seconds", &parse_seconds, text, field,
             "\"0.2ms\" in seconds; units s, ms, us, ns. ValueError names `field`.");
  module.def("parse_num_bytes", &parse_num_bytes, text, field,
             "\"8MiB\" in bytes; units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB. ValueError names `field`.");
  module.def("parse_bytes_per_second", &parse_bytes_per_second, text, field,
             "\"100Mbit/s\" or \"10MB/s\" in bytes per second. ValueError names `field`.");
  module.def("format_seconds", &format_seconds, py::arg("seconds"), "\"1.25 ms\"");
  module.def("format_num_bytes", &format_num_bytes, py::arg("num_bytes"), "\"8.0 MiB\"");
  module.def("format_bytes_per_second", &format_bytes_per_second, py::arg("bytes_per_second"),
             "\"12.5 MB/s\"");
}

}  // namespace dreamddp::bindings
