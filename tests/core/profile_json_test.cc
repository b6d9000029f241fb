#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/expect_rejected.h"
#include "dreamddp/profile.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

/// A profile file of two layers in which one field of the second, 'h.0', has the given JSON text.
std::string file_with(const std::string& field, const std::string& value) {
  std::string layer = "{\"name\": \"h.0\"";
  for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{
           {"forward", "1"}, {"backward", "2"}, {"num_bytes", "4"}, {"transfer", "3"}}) {
    layer += ", \"" + key + "\": " + (key == field ? value : text);
  }
  if (field == "last_read") {
    layer += ", \"last_read\": " + value;
  }
  const std::string step = field == "step" ? value : "1.5";
  return "{\"format\": \"dreamddp-profile/1\", \"time_unit\": \"ms\", \"step\": " + step +
         ",\n \"layers\": [{\"name\": \"wte\", \"forward\": 0, \"backward\": 0},\n  " + layer + "}]}";
}

std::string with_root(const std::string& members) {
  return "{\"format\": \"dreamddp-profile/1\"" + members + "}";
}

TEST(ParseProfile, ReadsEveryField) {
  const Profile profile = parse_profile(R"({"format": "dreamddp-profile/1", "time_unit": "ms", "step": 1.5,
    "backward_order": ["wte", "lm_head", "h.0"], "layers": [
      {"name": "wte", "forward": 0.1, "backward": 0.2, "num_bytes": 154389504, "transfer": 41.0,
       "last_read": {"backward": "lm_head"}},
      {"name": "h.0", "forward": 1, "backward": 2, "last_read": "forward"},
      {"name": "lm_head", "forward": 3, "backward": 4, "num_bytes": 0, "last_read": "backward"}]})");
  const Profile expected{{{"wte", 0.0001, 0.0002, 154389504, 0.041, {LastReadKind::other_backward, 2}},
                          {"h.0", 0.001, 0.002, std::nullopt, std::nullopt, {LastReadKind::forward, 0}},
                          {"lm_head", 0.003, 0.004, 0, std::nullopt, {}}},
                         0.0015,
                         {0, 2, 1}};
  EXPECT_EQ(profile, expected);
}

TEST(ParseProfile, TakesAWholeSizeInAnyNotation) {
  EXPECT_EQ(parse_profile(file_with("num_bytes", "1e12")).layers[1].num_bytes, 1000000000000);
  EXPECT_EQ(parse_profile(file_with("num_bytes", "4.0")).layers[1].num_bytes, 4);
  EXPECT_EQ(parse_profile(file_with("num_bytes", "9223372036854775807")).layers[1].num_bytes, INT64_MAX);
}

TEST(ParseProfile, TakesZeroAndNegativeZeroAsZero) {
  EXPECT_EQ(parse_profile(file_with("forward", "0")).layers[1].forward_seconds, 0);
  EXPECT_FALSE(std::signbit(parse_profile(file_with("forward", "-0.0")).layers[1].forward_seconds));
}

// G1: the unit of the file does not change the profile, not by a bit.
TEST(ParseProfile, GivesTheSameProfileInEveryUnit) {
  std::mt19937_64 random(7);
  const auto decimal = [&](int digits_at_most) {
    std::string digits = std::to_string(std::uniform_int_distribution<std::int64_t>(1, 9)(random));
    while (static_cast<int>(digits.size()) < digits_at_most) {
      digits += static_cast<char>('0' + random() % 10);
    }
    return digits;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> digits;
    for (int i = 0; i < 31; ++i) {
      digits.push_back(decimal(1 + static_cast<int>(random() % 15)));
    }
    const int exponent = std::uniform_int_distribution<int>(-20, -6)(random);
    const auto file = [&](const std::string& unit, int shift) {
      const auto number = [&](std::size_t i) { return digits[i] + "e" + std::to_string(exponent + shift); };
      std::string text =
          with_root(", \"time_unit\": \"" + unit + "\", \"step\": " + number(30) + ", \"layers\": [");
      for (std::size_t l = 0; l < 10; ++l) {
        text.insert(text.size() - 1, std::string(l == 0 ? "" : ", ") + "{\"name\": \"" + std::to_string(l) +
                                         "\", \"forward\": " + number(3 * l) + ", \"backward\": " +
                                         number(3 * l + 1) + ", \"transfer\": " + number(3 * l + 2) + "}");
      }
      text.insert(text.size() - 1, "]");
      return text;
    };
    const Profile in_seconds = parse_profile(file("s", 0));
    ASSERT_EQ(parse_profile(file("ms", 3)), in_seconds);
    ASSERT_EQ(parse_profile(file("us", 6)), in_seconds);
    ASSERT_EQ(parse_profile(to_json(in_seconds)), in_seconds);
  }
}

TEST(ParseProfile, GivesTheSameTimeInPlainNotation) {
  const auto forward = [](const std::string& unit, const std::string& number) {
    return parse_profile(with_root(", \"time_unit\": \"" + unit +
                                   "\", \"layers\": [{\"name\": \"a\", \"forward\": " + number +
                                   ", \"backward\": 0}]"))
        .layers[0]
        .forward_seconds;
  };
  EXPECT_EQ(forward("ms", "1.5"), 0.0015);
  EXPECT_EQ(forward("us", "1500"), 0.0015);
  EXPECT_EQ(forward("s", "0.0015"), 0.0015);
  EXPECT_EQ(forward("us", "1e-320"), 0);  // below the smallest double
  EXPECT_EQ(forward("ms", "123456789"), 123456.789);
}

// G1: without a unit a file is an error.
TEST(ParseProfile, RejectsAFileWithoutATimeUnit) {
  expect_rejected([] { parse_profile(with_root(", \"layers\": []")); },
                  {"profile: time_unit: got none", "\"ms\"", "State the unit"});
  for (const std::string bad : {"", "ns", "S", "min", "msec", "1ms"}) {
    expect_rejected([&] { parse_profile(with_root(", \"time_unit\": \"" + bad + "\", \"layers\": []")); },
                    {"profile: time_unit: got \"" + bad + "\"", "\"ms\""});
  }
  expect_rejected([] { parse_profile(with_root(", \"time_unit\": null, \"layers\": []")); },
                  {"profile: time_unit: got null"});
}

// G2: what is not a time is rejected by layer and field.
class BadTimeInProfile : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};
TEST_P(BadTimeInProfile, NamesLayerAndField) {
  const auto& [field, value] = GetParam();
  expect_rejected([&, &field = field, &value = value] { parse_profile(file_with(field, value)); },
                  {"layers[1] 'h.0': " + field + ": got " + value + ";", "a number of at least 0"});
}
INSTANTIATE_TEST_SUITE_P(G2, BadTimeInProfile,
                         ::testing::Combine(::testing::Values("forward", "backward", "transfer"),
                                            ::testing::Values("NaN", "Infinity", "-Infinity", "-1", "-0.001",
                                                              "1e400", "-1e400", "null", "\"12\"", "true",
                                                              "false")));

class NoTimeInProfile : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};
TEST_P(NoTimeInProfile, NamesLayerAndField) {
  const auto& [field, value] = GetParam();
  expect_rejected([&, &field = field, &value = value] { parse_profile(file_with(field, value)); },
                  {"layers[1] 'h.0': " + field + ": got an "});
}
INSTANTIATE_TEST_SUITE_P(G2, NoTimeInProfile,
                         ::testing::Combine(::testing::Values("forward", "backward", "transfer", "num_bytes"),
                                            ::testing::Values("[]", "[1]", "{}", "{\"a\": 1}")));

class BadStepInProfile : public ::testing::TestWithParam<std::string> {};
TEST_P(BadStepInProfile, NamesTheField) {
  expect_rejected([] { parse_profile(file_with("step", GetParam())); }, {"step: got " + GetParam()});
}
INSTANTIATE_TEST_SUITE_P(G2, BadStepInProfile,
                         ::testing::Values("NaN", "Infinity", "-Infinity", "-1", "1e400", "null", "\"12\"",
                                           "true"));

class BadSizeInProfile : public ::testing::TestWithParam<std::string> {};
TEST_P(BadSizeInProfile, NamesLayerAndField) {
  expect_rejected([] { parse_profile(file_with("num_bytes", GetParam())); },
                  {"layers[1] 'h.0': num_bytes: got ", "a whole number from 0 to 9223372036854775807"});
}
INSTANTIATE_TEST_SUITE_P(G2, BadSizeInProfile,
                         ::testing::Values("NaN", "Infinity", "-1", "1.5", "9223372036854775808", "1e19",
                                           "1e400", "123456789012345678901234567890", "null", "\"12\"",
                                           "true"));

TEST(ParseProfile, TakesNaNAsZeroWhenAsked) {
  std::vector<std::string> warnings;
  const Profile profile = parse_profile(file_with("backward", "NaN"), {true, &warnings});
  EXPECT_EQ(profile.layers[1].backward_seconds, 0);
  EXPECT_EQ(warnings, (std::vector<std::string>{"layers[1] 'h.0': backward: NaN taken as 0"}));
  EXPECT_EQ(parse_profile(file_with("backward", "NaN"), {true, nullptr}), profile);
}

TEST(ParseProfile, TakesOnlyNaNAsZero) {
  for (const std::string value : {"Infinity", "-Infinity", "-1", "null", "\"NaN\"", "1e400"}) {
    expect_rejected(
        [&] {
          parse_profile(file_with("backward", value), {true, nullptr});
        },
        {"layers[1] 'h.0': backward: got " + value});
  }
  expect_rejected(
      [] {
        parse_profile(file_with("num_bytes", "NaN"), {true, nullptr});
      },
      {"num_bytes: got NaN"});
}

TEST(ParseProfile, LeavesStringsThatLookLikeTokensAlone) {
  const std::string text = with_root(
      ", \"time_unit\": \"s\", \"layers\": [{\"name\": \"NaN, -Infinity \\\" 1e400\", \"forward\": NaN, "
      "\"backward\": 0}]");
  EXPECT_EQ(parse_profile(text, {true, nullptr}).layers[0].name, "NaN, -Infinity \" 1e400");
}

class BadLastRead : public ::testing::TestWithParam<std::string> {};
TEST_P(BadLastRead, NamesTheLayer) {
  expect_rejected([] { parse_profile(file_with("last_read", GetParam())); }, {"layers[1] 'h.0': last_read"});
}
INSTANTIATE_TEST_SUITE_P(ParseProfile, BadLastRead,
                         ::testing::Values("null", "1", "NaN", "[]", "[\"backward\"]", "\"step\"", "\"\"",
                                           "{}", "true", "{\"forward\": \"wte\"}",
                                           "{\"backward\": \"lm_head\"}", "{\"backward\": 0}",
                                           "{\"backward\": \"h.0\"}", "{\"backward\": null}",
                                           "{\"backward\": \"wte\", \"x\": 1}"));

class BadProfileFile : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};
TEST_P(BadProfileFile, NamesThePlace) {
  const auto& [text, part] = GetParam();
  expect_rejected([&, &text = text] { parse_profile(text); }, {part});
}
INSTANTIATE_TEST_SUITE_P(
    ParseProfile, BadProfileFile,
    ::testing::Values(
        std::tuple{"[]", "profile: got an array; expected an object"}, std::tuple{"3", "profile: got 3"},
        std::tuple{"NaN", "profile: got NaN"}, std::tuple{"{}", "profile: got no \"format\""},
        std::tuple{R"({"format": 1})", "profile: format: got 1"},
        std::tuple{R"({"format": "dreamddp-plan/1"})", "expected \"dreamddp-profile/1\""},
        std::tuple{with_root(R"(, "time_unit": "s")"), "profile: got no \"layers\""},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": {})"),
                   "layers: got an object; expected an array"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": null)"), "layers: got null; expected an array"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [])"),
                   "layers: got none; expected at least one"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [1])"), "layers[0]: got 1; expected an object"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{}])"), "layers[0]: got no \"name\""},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": 1}])"), "layers[0]: name: got 1"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a"}])"),
                   "layers[0] 'a': got no \"forward\""},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forward": 1}])"),
                   "layers[0] 'a': got no \"backward\""},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "", "forward": 1, "backward": 1}])"),
                   "layers[0]: name: got \"\""},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forward": 1, "backward": 1},
                                {"name": "a", "forward": 1, "backward": 1}])"),
                   "layers[1] 'a': name"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forwards": 1}])"),
                   "layers[0]: got the unknown key \"forwards\"; expected no other keys than name, forward, "
                   "backward, num_bytes, transfer, last_read"},
        std::tuple{with_root(R"(, "unit": "s")"), "profile: got the unknown key \"unit\""},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forward": 1, "forward": 2}])"),
                   "the key \"forward\" twice"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forward": 1, "backward": 1}],
                                "backward_order": "a")"),
                   "backward_order: got \"a\"; expected an array"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forward": 1, "backward": 1}],
                                "backward_order": ["b"])"),
                   "backward_order[0]: got \"b\""},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forward": 1, "backward": 1}],
                                "backward_order": [])"),
                   "backward_order: got an empty array"},
        std::tuple{with_root(R"(, "time_unit": "s", "layers": [{"name": "a", "forward": 1, "backward": 1}],
                                "backward_order": ["a", "a"])"),
                   "backward_order: got 2 layers"}));

// G4: errors of syntax have their position.
TEST(JsonSyntax, HasLineAndColumn) {
  expect_rejected([] { parse_profile(""); }, {"profile, line 1, column 1: got an empty text"});
  expect_rejected([] { parse_profile("{\n  \"format\": \"dreamddp-profile/1\",\n  \"step\": 1"); },
                  {"profile, line 3, column 12: got unexpected end of input", "Is the file complete?"});
  expect_rejected([] { parse_profile("{\"format\": x}"); },
                  {"profile, line 1, column 12: got invalid literal"});
  expect_rejected([] { parse_profile("{\"step\": NaN, \"layers\": [NaN,\n NaN x]}"); },
                  {"profile, line 2, column 6"});
  expect_rejected([] { parse_profile("{\"step\": 1} 2"); },
                  {"profile, line 1, column 13", "expected end of input"});
  expect_rejected([] { parse_profile("{NaN: 1}"); }, {"the key NaN"});
  expect_rejected([] { parse_profile("{\"step\": nan}"); }, {"profile, line 1, column 11"});
  expect_rejected([] { parse_profile("{\"step\": NaNs}"); }, {"profile, line 1, column 10"});
}

// G4: wherever a file is cut off, the error has a position at its end.
TEST(JsonSyntax, TruncatedFilesAreRejectedWithAPosition) {
  const std::string text = file_with("last_read", "{\"backward\": \"wte\"}");
  ASSERT_NO_THROW(parse_profile(text));
  for (std::size_t size = 0; size < text.size(); ++size) {
    const std::string cut = text.substr(0, size);
    const auto line = 1 + std::count(cut.begin(), cut.end(), '\n');
    expect_rejected([&] { parse_profile(cut); }, {"profile, line " + std::to_string(line) + ", column "});
  }
}

TEST(JsonSyntax, DeepNestingIsRejected) {
  const std::string deep(1'000'000, '[');
  expect_rejected([&] { parse_profile(deep); }, {"profile, line 1, column 65", "nesting"});
  expect_rejected(
      [&] { parse_profile("{\"layers\": " + std::string(100, '[') + std::string(100, ']') + "}"); },
      {"nesting"});
}

TEST(JsonSyntax, BytesThatAreNoTextAreRejected) {
  expect_rejected([] { parse_profile("\xff\xfe{"); }, {"profile, line 1, column 1"});
  expect_rejected([] { parse_profile("{\"caf\xe9\": 1}"); }, {"profile, line 1, column 7", "UTF-8"});
  expect_rejected([] { parse_profile(std::string("{\"a\0b\": 1}", 10)); }, {"profile, line 1, column 4"});
  expect_rejected([] { parse_profile("{\"a\x7f\": 1}"); }, {"profile, line 1, column 4", "U+007F"});
  expect_rejected([] { parse_profile("{\"a\\u007F\": 1}"); }, {"profile, line 1, column 4", "U+007F"});
}

// Any bytes are either a profile or std::invalid_argument.
TEST(JsonSyntax, DamagedFilesNeverCrash) {
  const std::string text = file_with("last_read", "{\"backward\": \"wte\"}");
  const std::string bytes = "\"{}[]:,\\NaInfinity-+.eE019 \n\x7f\xff\x01\x00utl";
  std::mt19937_64 random(11);
  int rejected = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = text;
    for (std::uint64_t i = 0; i <= random() % 3; ++i) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = bytes[random() % bytes.size()];
          break;
        case 1:
          damaged.erase(at, 1 + random() % 8);
          break;
        default:
          damaged.insert(at, 1, bytes[random() % bytes.size()]);
          break;
      }
    }
    try {
      validate(parse_profile(damaged, {random() % 2 == 0, nullptr}));
    } catch (const std::invalid_argument&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 10000);
}

TEST(ProfileToJson, RoundTripsExactly) {
  const Profile profile{{{"wte \"é\"", 0.1, 1.0 / 3, 154389504, 5e-324, {LastReadKind::other_backward, 2}},
                         {"h.0", 1e300, 0, std::nullopt, std::nullopt, {LastReadKind::forward, 0}},
                         {"lm_head", 3, 4, 0, 0.0, {}}},
                        1e-9,
                        {0, 2, 1}};
  EXPECT_EQ(parse_profile(to_json(profile)), profile);
}

TEST(ProfileToJson, RejectsWhatCouldNotBeReadBack) {
  expect_rejected(
      [] {
        to_json(Profile{{{"a", -1, 0, {}, {}, {}}}, 0, {}, false});
      },
      {"layers[0] 'a': forward"});
}

}  // namespace
}  // namespace dreamddp
