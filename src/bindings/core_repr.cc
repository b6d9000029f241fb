#include "core_repr.h"

namespace dreamddp::bindings {

std::string repr_fields(const char* type,
                        std::initializer_list<std::pair<const char*, pybind11::object>> fields) {
  std::string text = std::string(type) + "(";
  const char* separator = "";
  for (const auto& [name, value] : fields) {
    text += separator;
    text += name;
    text += "=";
    text += pybind11::repr(value).cast<std::string>();
    separator = ", ";
  }
  return text + ")";
}

}  // namespace dreamddp::bindings
