// Bad input must be rejected with an error that says what is wrong.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace dreamddp::testing {

/// Expects std::invalid_argument with every one of `parts` in its text.
inline void expect_rejected(const std::function<void()>& call, std::initializer_list<std::string> parts) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
    }
    return;
  }
  std::string wanted;
  for (const std::string& part : parts) {
    wanted += " \"" + part + "\"";
  }
  ADD_FAILURE() << "not rejected; expected an error with" << wanted;
}

}  // namespace dreamddp::testing
