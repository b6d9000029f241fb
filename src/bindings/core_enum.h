// Enumerations that are Python enumerations.
#pragma once

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <utility>

#if __has_include(<pybind11/native_enum.h>)
#include <pybind11/native_enum.h>
#endif

namespace dreamddp::bindings {

/// Binds E as an enum.Enum; as pybind11's own kind of enumeration where PyTorch bundles a pybind11 before 3.
template <typename E>
void bind_enum(pybind11::module_& module, const char* name, const char* doc,
               std::initializer_list<std::pair<const char*, E>> members) {
#if __has_include(<pybind11/native_enum.h>)
  pybind11::native_enum<E> bound(module, name, "enum.Enum", doc);
#else
  pybind11::enum_<E> bound(module, name, doc);
#endif
  for (const auto& [member, value] : members) bound.value(member, value);
#if __has_include(<pybind11/native_enum.h>)
  bound.finalize();
#endif
}

}  // namespace dreamddp::bindings
