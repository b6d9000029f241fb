// Text files, with errors that name the path.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace dreamddp::bindings {

/// Reads a UTF-8 text file.
/// @param path str or os.PathLike
/// @throws OSError with its `filename` set (missing, a folder, not readable); ValueError naming the path
///   where the bytes are not UTF-8
std::string read_text_file(const pybind11::object& path);

/// Writes a UTF-8 text file.
/// @throws OSError with its `filename` set
void write_text_file(const pybind11::object& path, const std::string& text);

/// Reads `path` and parses it. What parse rejects is reported with the path in front.
template <typename Parse>
auto load(const pybind11::object& path, Parse parse) {
  const std::string text = read_text_file(path);
  try {
    return parse(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(pybind11::str(path).cast<std::string>() + ": " + error.what());
  }
}

}  // namespace dreamddp::bindings
