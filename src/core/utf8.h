// Text that may come from anywhere, made fit for messages and files.
#pragma once

#include <string>
#include <string_view>

namespace dreamddp {

/// Whether the text is well-formed UTF-8, as JSON files and Python strings need it.
bool is_utf8(std::string_view text);

/// The text with every ill-formed byte sequence replaced by U+FFFD.
std::string to_utf8(std::string_view text);

}  // namespace dreamddp
