#include <torch/csrc/utils/pybind.h>

namespace dreamddp {
void bind_emulated_link(pybind11::module_& module);
void bind_engine(pybind11::module_& module);
void bind_gradient_statistics(pybind11::module_& module);
void bind_parameter_watch(pybind11::module_& module);
}  // namespace dreamddp

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "The engine that carries plans out, and the emulated link.";
  dreamddp::bind_emulated_link(module);
  dreamddp::bind_engine(module);
  dreamddp::bind_gradient_statistics(module);
  dreamddp::bind_parameter_watch(module);
}
