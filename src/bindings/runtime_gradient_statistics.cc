#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/gradient_statistics.h"

namespace py = pybind11;

namespace dreamddp {

void bind_gradient_statistics(py::module_& module) {
  module.attr("default_sketch_size") = default_sketch_size;
  py::class_<GradientStatistic>(module, "GradientStatistic", "Of one layer in one iteration.")
      .def_readonly("norm", &GradientStatistic::norm)
      .def_readonly("last_average_similarity", &GradientStatistic::last_average_similarity,
                    "Cosine with the gradient of the last average; NaN where there is none.")
      .def_readonly("lag_similarities", &GradientStatistic::lag_similarities,
                    "Of each lag, the cosine with the gradient so many iterations ago.");

  py::class_<GradientStatistics>(module, "GradientStatistics",
                                 "How the gradients of layers turn from iteration to iteration.")
      .def(py::init([](std::vector<std::vector<at::Tensor>> layers, std::vector<std::int64_t> lags,
                       bool with_last_average, std::int64_t sketch_size) {
             return GradientStatistics(std::move(layers), {std::move(lags), with_last_average, sketch_size});
           }),
           py::arg("layers"), py::kw_only(), py::arg("lags") = std::vector<std::int64_t>{},
           py::arg("with_last_average") = true, py::arg("sketch_size") = default_sketch_size)
      .def("observe", &GradientStatistics::observe, py::arg("layer"), py::kw_only(), py::arg("is_averaged"),
           py::call_guard<py::gil_scoped_release>())
      .def("iteration_ends", &GradientStatistics::iteration_ends)
      .def("__getitem__",
           [](const GradientStatistics& statistics, std::size_t layer) { return statistics[layer]; })
      .def("__len__", &GradientStatistics::size)
      .def_property_readonly("memory_bytes", &GradientStatistics::memory_bytes)
      .def(
          "state",
          [](const GradientStatistics& statistics, std::size_t layer) {
            const auto state = statistics.state(layer);
            return std::tuple(state.rows, state.norms, state.num_iterations);
          },
          py::arg("layer"))
      .def(
          "set_state",
          [](GradientStatistics& statistics, std::size_t layer, at::Tensor rows, std::vector<double> norms,
             std::int64_t num_iterations) {
            statistics.set_state(layer, {std::move(rows), std::move(norms), num_iterations});
          },
          py::arg("layer"), py::arg("rows"), py::arg("norms"), py::arg("num_iterations"));
}

}  // namespace dreamddp
