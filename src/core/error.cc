#include "dreamddp/error.h"

#include "core/utf8.h"

namespace dreamddp {

void reject(const BadInput& input) {
  std::string text = input.field + ": got " + input.value + "; expected " + input.allowed + ".";
  if (!input.remedy.empty()) {
    const char last = input.remedy.back();
    text += " " + input.remedy + (last == '.' || last == '?' ? "" : ".");
  }
  // Values are quoted as given, in any encoding; Python can only show UTF-8.
  throw std::invalid_argument(to_utf8(text));
}

}  // namespace dreamddp
