// What people see of a struct in Python.
#pragma once

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace dreamddp::bindings {

/// "Link(workers=2, in_flight=1)"
std::string repr_fields(const char* type,
                        std::initializer_list<std::pair<const char*, pybind11::object>> fields);

/// A tuple: the copy cannot be mistaken for the sequence inside the struct.
/// Include pybind11/stl.h where this is used.
template <typename T>
pybind11::tuple as_tuple(const std::vector<T>& items) {
  pybind11::tuple result(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) result[i] = pybind11::cast(items[i]);
  return result;
}

}  // namespace dreamddp::bindings
