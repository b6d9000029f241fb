#include "dreamddp/error.h"

#include "core/utf8.h"

namespace dreamddp {

void reject(const BadInput& input) {
  std::string text =
      input.field + ": got " + input.value + "; expected " + input.allowed + ". " + input.remedy;
  if (!input.remedy.ends_with('.') && !input.remedy.ends_with('?')) text += ".";
  // Values are quoted as given, in any encoding; Python can only show UTF-8.
  throw std::invalid_argument(to_utf8(text));
}

}  // namespace dreamddp
