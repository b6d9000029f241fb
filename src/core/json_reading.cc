#include "core/json_reading.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/json_tokens.h"
#include "dreamddp/error.h"

namespace dreamddp {
namespace {

bool is_marked(const Json& value) {
  return value.is_string() && is_marker(value.get_ref<const std::string&>());
}

[[noreturn]] void reject_syntax(const Json::parse_error& error, std::string_view text,
                                std::string_view what) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing value -
  // unexpected end of input; expected '}'"
  std::string found = error.what();
  std::string expected = "valid JSON";
  if (const std::size_t dash = found.find(" - "); dash != std::string::npos) {
    found = found.substr(dash + 3);
  }
  if (const std::size_t wanted = found.find("; expected "); wanted != std::string::npos) {
    expected = found.substr(wanted + 11);
    found.resize(wanted);
  }
  std::replace(found.begin(), found.end(), marker_byte, '?');
  const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
  reject({place_in_text(text, offset, what), found, expected,
          offset >= text.size() ? "Is the file complete?" : "Correct the syntax there"});
}

}  // namespace

JsonDocument read_json(std::string_view text, std::string_view what) {
  if (text.empty()) {
    reject({place_in_text(text, 0, what), "an empty text", "JSON", "Is the file complete?"});
  }
  MarkedText marked = mark_non_finite(text, what);
  JsonDocument document;
  std::vector<std::unordered_set<std::string>> seen;  // keys of the objects that are open
  std::size_t next_token = 0;
  const auto note = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      seen.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      seen.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (is_marker(key)) {
        reject(
            {std::string(what), "the key " + marked.tokens[next_token], "a string", "Put the key in quotes"});
      }
      if (!seen.back().insert(key).second) {
        reject({std::string(what), "the key \"" + key + "\" twice in one object", "each key once",
                "Remove one of the two"});
      }
      if (depth == 1) {
        document.keys.push_back(key);
      }
    } else if (event == Json::parse_event_t::value && is_marked(parsed)) {
      parsed = std::string(1, marker_byte) + marked.tokens[next_token++];
    }
    return true;
  };
  try {
    document.root = Json::parse(marked.text, note);
  } catch (const Json::parse_error& error) {
    reject_syntax(error, text, what);
  } catch (const Json::exception& error) {
    reject({std::string(what), error.what(), "valid JSON", "Write the file anew"});
  }
  return document;
}

bool is_nan_token(const Json& value) {
  return is_marked(value) && value.get_ref<const std::string&>().substr(1) == "NaN";
}

std::string text_of(const Json& value) {
  if (value.is_object()) {
    return "an object";
  }
  if (value.is_array()) {
    return "an array";
  }
  std::string text = is_marked(value) ? value.get_ref<const std::string&>().substr(1) : value.dump();
  constexpr std::size_t longest = 60;
  if (text.size() > longest) {
    text.resize(longest);
    text += "..";
  }
  return text;
}

void expect_object(const Json& value, const std::string& where,
                   std::initializer_list<std::string_view> allowed) {
  if (!value.is_object()) {
    reject({where, text_of(value), "an object", "Write keys and values in braces"});
  }
  for (const auto& [key, unused] : value.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      std::string keys;
      for (const std::string_view name : allowed) {
        keys += (keys.empty() ? "" : ", ") + std::string(name);
      }
      reject(
          {where, "the unknown key \"" + key + "\"", "no other keys than " + keys, "Correct or remove it"});
    }
  }
}

void expect_array(const Json& value, const std::string& where) {
  if (!value.is_array()) {
    reject({where, text_of(value), "an array", "Write the values in brackets"});
  }
}

const Json& required(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) {
    reject({where, "no \"" + std::string(key) + "\"", "one", "Add the key \"" + std::string(key) + "\""});
  }
  return *found;
}

const Json* optional(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

double read_number(const Json& value, const std::string& where) {
  if (!value.is_number() || value.get<double>() < 0) {
    reject({where, text_of(value), "a number of at least 0",
            value.is_string() && !is_marked(value) ? "Write the number without quotes"
                                                   : "Write a plain number"});
  }
  return value.get<double>() + 0.0;  // -0 becomes 0
}

std::int64_t read_count(const Json& value, const std::string& where) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX}) {
    return value.get<std::int64_t>();
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number >= 0 && number < 0x1p63 && number == std::floor(number)) {
      return static_cast<std::int64_t>(number);
    }
  }
  reject({where, text_of(value), "a whole number from 0 to 9223372036854775807",
          "Write it without sign, fraction or quotes"});
}

const std::string& read_string(const Json& value, const std::string& where) {
  if (!value.is_string() || is_marked(value)) {
    reject({where, text_of(value), "a string", "Write it in double quotes"});
  }
  return value.get_ref<const std::string&>();
}

void expect_format(const Json& root, std::string_view format, std::string_view what) {
  const std::string where(what);
  if (!root.is_object()) {
    reject({where, text_of(root), "an object", "Is it a file of another kind?"});
  }
  const std::string& given = read_string(required(root, "format", where), where + ": format");
  if (given != format) {
    reject({where + ": format", "\"" + given + "\"", "\"" + std::string(format) + "\"",
            "Is it a file of another kind or of a newer version?"});
  }
}

}  // namespace dreamddp
