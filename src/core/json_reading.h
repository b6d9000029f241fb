// Reading JSON files that people and other programs wrote: every mistake names its place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dreamddp {

using Json = nlohmann::json;

struct JsonDocument {
  Json root;
  std::vector<std::string> keys;  ///< of the outermost object, in the order of the text
};

/// Parses a JSON text.
///
/// The tokens NaN, Infinity and -Infinity, and numbers beyond the range of a double, are taken where a value
/// may stand; the field readers below reject them by name of the field, and is_nan_token() tells NaN.
/// @param what names the text in errors: "profile"
/// @throws std::invalid_argument with line and column, also for a key that an object has twice and for more
///   than 64 levels of nesting
JsonDocument read_json(std::string_view text, std::string_view what);

/// Whether the value is a bare NaN.
bool is_nan_token(const Json& value);

/// The value as the user wrote it, cut short where it is long: for error messages.
std::string text_of(const Json& value);

/// Rejects anything but an object with no other keys than those of `allowed`.
/// @param where the place of the object, such as "ops[3].launch"
void expect_object(const Json& value, const std::string& where,
                   std::initializer_list<std::string_view> allowed);
void expect_array(const Json& value, const std::string& where);

/// The value of a key that must be there.
const Json& required(const Json& object, const char* key, const std::string& where);
/// Null where the object does not have the key.
const Json* optional(const Json& object, const char* key);

/// A finite number of at least 0.
double read_number(const Json& value, const std::string& where);
/// A whole number from 0 to 2^63 - 1; 1e12 is one.
std::int64_t read_count(const Json& value, const std::string& where);
const std::string& read_string(const Json& value, const std::string& where);

/// Rejects a file whose "format" is another one.
void expect_format(const Json& root, std::string_view format, std::string_view what);

}  // namespace dreamddp
