#include "core_files.h"

#include <stdexcept>

#include "core_bindings.h"

namespace dreamddp::bindings {

namespace py = pybind11;

namespace {

// Python's own open(): its errors carry the file name and behave alike on every system.
py::object open(const py::object& path, const char* mode) {
  return py::module_::import("io").attr("open")(path, mode);
}

}  // namespace

std::string read_text_file(const py::object& path) {
  py::object file = open(path, "rb");
  const py::bytes content = file.attr("read")();
  file.attr("close")();
  try {
    // A byte order mark, which some editors write, is no part of the text.
    return content.attr("decode")("utf-8-sig").cast<std::string>();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_UnicodeDecodeError)) throw;
    throw std::invalid_argument(py::str(path).cast<std::string>() +
                                ": not a UTF-8 text file (first bad byte at " +
                                py::str(error.value().attr("start")).cast<std::string>() + ")");
  }
}

void write_text_file(const py::object& path, const std::string& text) {
  py::object file = open(path, "wb");
  file.attr("write")(py::bytes(text));
  file.attr("close")();
}

void bind_files(py::module_& module) {
  module.def("read_text_file", &read_text_file, py::arg("path"),
             "Reads a UTF-8 text file. OSError and ValueError name the path.");
  module.def("write_text_file", &write_text_file, py::arg("path"), py::arg("text"),
             "Writes a UTF-8 text file. OSError names the path.");
}

}  // namespace dreamddp::bindings
