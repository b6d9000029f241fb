#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <vector>

#include "runtime/parameter_watch.h"

namespace py = pybind11;

namespace dreamddp {

void bind_parameter_watch(py::module_& module) {
  py::class_<ParameterWatch>(module, "ParameterWatch", "Whether parameters are still what they were.")
      .def(py::init<const std::vector<at::Tensor>&>(), py::arg("parameters"))
      .def("first_changed", &ParameterWatch::first_changed);
}

}  // namespace dreamddp
