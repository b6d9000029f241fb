#include "dreamddp/error.h"

#include <gtest/gtest.h>

#include "core/expect_rejected.h"

namespace dreamddp {
namespace {

std::string text_of_rejection(const BadInput& input) {
  try {
    reject(input);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Reject, SaysFieldValueRangeAndRemedy) {
  EXPECT_EQ(text_of_rejection({"--workers", "0", "at least 1", "Use 1 for a single machine"}),
            "--workers: got 0; expected at least 1. Use 1 for a single machine.");
  EXPECT_EQ(text_of_rejection({"--workers", "0", "at least 1", "Is it set?"}),
            "--workers: got 0; expected at least 1. Is it set?");
}

TEST(Reject, ShowsTextInOtherEncodingsAsUtf8) {
  EXPECT_EQ(text_of_rejection({"name", "caf\xe9", "UTF-8", "Write it anew"}),
            "name: got caf\xef\xbf\xbd; expected UTF-8. Write it anew.");
}

}  // namespace
}  // namespace dreamddp
