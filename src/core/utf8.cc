#include "core/utf8.h"

#include <nlohmann/json.hpp>

namespace dreamddp {

using Json = nlohmann::json;

std::string to_utf8(std::string_view text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

bool is_utf8(std::string_view text) { return to_utf8(text) == text; }

}  // namespace dreamddp
