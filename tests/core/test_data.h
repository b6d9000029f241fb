// The files under tests/data.
#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace dreamddp::testing {

/// The text of a file, by its path within tests/data.
inline std::string read_test_data(const std::string& path) {
  std::ifstream file(std::string(DREAMDDP_TEST_DATA) + "/" + path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read test data " + path);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace dreamddp::testing
