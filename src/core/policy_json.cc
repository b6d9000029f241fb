#include <nlohmann/json.hpp>

#include "core/decimal.h"
#include "core/json_reading.h"
#include "dreamddp/error.h"
#include "dreamddp/policy.h"

namespace dreamddp {
namespace {

/// A number of any sign: the policy itself checks its range.
double read_any_number(const Json& value, const std::string& where) {
  if (!value.is_number()) {
    reject({where, text_of(value), "a number", "Write it without quotes"});
  }
  return value.get<double>();
}

double number_or(const Json& object, const char* key, double otherwise, const std::string& where) {
  const Json* value = optional(object, key);
  return value == nullptr ? otherwise : read_any_number(*value, where + ": " + key);
}

std::int64_t required_count(const Json& object, const char* key, const std::string& where) {
  return read_count(required(object, key, where), where + ": " + key);
}

std::unique_ptr<Policy> read_policy(const Json& object, const std::string& where);

std::unique_ptr<Policy> read_combined(const Json& object, const std::string& where) {
  expect_object(object, where, {"policy", "most_staleness", "under"});
  const Json* under = optional(object, "under");
  return combined(under == nullptr ? direction_threshold() : read_policy(*under, where + ": under"),
                  required_count(object, "most_staleness", where));
}

std::unique_ptr<Policy> read_kind(const std::string& kind, const Json& object, const std::string& where) {
  DirectionOptions options;
  if (kind == "fixed-period") {
    expect_object(object, where, {"policy", "period", "phase"});
    const Json* phase = optional(object, "phase");
    return fixed_period(required_count(object, "period", where),
                        phase == nullptr ? 0 : read_count(*phase, where + ": phase"));
  }
  if (kind == "bounded-staleness") {
    expect_object(object, where, {"policy", "most"});
    return bounded_staleness(required_count(object, "most", where));
  }
  if (kind == "combined") {
    return read_combined(object, where);
  }
  if (kind != "direction" && kind != "adaptive-direction") {
    reject({where + ": policy", "\"" + kind + "\"",
            "\"fixed-period\", \"bounded-staleness\", \"direction\", \"adaptive-direction\" or \"combined\"",
            "Choose one of them"});
  }
  const bool is_adaptive = kind == "adaptive-direction";
  if (is_adaptive) {
    expect_object(object, where, {"policy", "threshold", "smoothing", "history_smoothing"});
  } else {
    expect_object(object, where, {"policy", "threshold", "smoothing"});
  }
  options.threshold = number_or(object, "threshold", options.threshold, where);
  options.smoothing = number_or(object, "smoothing", options.smoothing, where);
  options.history_smoothing = number_or(object, "history_smoothing", options.history_smoothing, where);
  return is_adaptive ? adaptive_threshold(options) : direction_threshold(options);
}

std::unique_ptr<Policy> read_policy(const Json& object, const std::string& where) {
  expect_object(object, where,
                {"policy", "period", "phase", "most", "most_staleness", "under", "threshold", "smoothing",
                 "history_smoothing"});
  return read_kind(read_string(required(object, "policy", where), where + ": policy"), object, where);
}

}  // namespace

std::vector<PolicyRule> parse_policies(std::string_view json) {
  const JsonDocument document = read_json(json, "policies");
  if (!document.root.is_object() || document.keys.empty()) {
    reject({"policies", text_of(document.root), "an object with at least one pattern",
            "Write {\"*\": {\"policy\": ..}}"});
  }
  std::vector<PolicyRule> rules;
  for (const std::string& pattern : document.keys) {
    rules.emplace_back(pattern,
                       read_policy(document.root.at(pattern), "policies: pattern '" + pattern + "'"));
  }
  return rules;
}

std::string to_json(std::span<const PolicyRule> rules) {
  auto root = nlohmann::ordered_json::object();
  for (const auto& [pattern, policy] : rules) {
    root[pattern] = nlohmann::ordered_json::parse(policy->to_json());
  }
  return root.dump();
}

bool matches(std::string_view pattern, std::string_view name) {
  // On a mismatch the last `*` takes one character more.
  std::size_t at_pattern = 0;
  std::size_t at_name = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_end = 0;
  while (at_name < name.size()) {
    if (at_pattern < pattern.size() && pattern[at_pattern] == '*') {
      star = at_pattern++;
      star_end = at_name;
    } else if (at_pattern < pattern.size() &&
               (pattern[at_pattern] == '?' || pattern[at_pattern] == name[at_name])) {
      ++at_pattern;
      ++at_name;
    } else if (star != std::string_view::npos) {
      at_pattern = star + 1;
      at_name = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at_pattern) == std::string_view::npos;
}

}  // namespace dreamddp
