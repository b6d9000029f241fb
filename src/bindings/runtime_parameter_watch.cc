#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/parameter_watch.h"

namespace py = pybind11;

namespace dreamddp {
namespace {

/// Whether dictionaries still hold the same objects in the same order.
class ContentsWatch {
 public:
  explicit ContentsWatch(std::vector<py::dict> dictionaries) : dictionaries_(std::move(dictionaries)) {
    for (const py::dict& dictionary : dictionaries_) {
      for (const auto& item : dictionary) values_.push_back(py::reinterpret_borrow<py::object>(item.second));
    }
  }

  bool has_changed() const {
    std::size_t index = 0;
    for (const py::dict& dictionary : dictionaries_) {
      Py_ssize_t position = 0;
      PyObject* value = nullptr;
      while (PyDict_Next(dictionary.ptr(), &position, nullptr, &value) != 0) {
        if (index == values_.size() || values_[index].ptr() != value) return true;
        ++index;
      }
    }
    return index != values_.size();
  }

 private:
  std::vector<py::dict> dictionaries_;
  std::vector<py::object> values_;
};

}  // namespace

void bind_parameter_watch(py::module_& module) {
  py::class_<ParameterWatch>(module, "ParameterWatch", "Whether parameters are still what they were.")
      .def(py::init<const std::vector<at::Tensor>&>(), py::arg("parameters"))
      .def("first_changed", &ParameterWatch::first_changed);
  py::class_<ContentsWatch>(module, "ContentsWatch", "Whether dictionaries still hold the same objects.")
      .def(py::init<std::vector<py::dict>>(), py::arg("dictionaries"))
      .def_property_readonly("has_changed", &ContentsWatch::has_changed);
}

}  // namespace dreamddp
