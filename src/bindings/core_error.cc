#include <string>

#include "core_bindings.h"
#include "dreamddp/error.h"

namespace dreamddp::bindings {

void bind_error(pybind11::module_& module) {
  // Registered for all extension modules: a SyncError thrown by any of them is this one class.
  auto& sync_error = pybind11::register_exception<SyncError>(module, "SyncError", PyExc_RuntimeError);
  sync_error.doc() =
      "A synchronisation could not be carried out: a peer is dead, late or does something else.\n\n"
      "After it every coordinate of every parameter holds its local value or the mean over workers.";
  sync_error.attr("__module__") = "dreamddp";
  module.def(
      "reject",
      [](const std::string& field, const pybind11::object& value, const std::string& allowed,
         const std::string& remedy) {
        reject({field, pybind11::str(value).cast<std::string>(), allowed, remedy});
      },
      pybind11::arg("field"), pybind11::arg("value"), pybind11::arg("allowed"), pybind11::arg("remedy"),
      "Raises ValueError with the text \"<field>: got <value>; expected <allowed>. <remedy>\".");
}

}  // namespace dreamddp::bindings
