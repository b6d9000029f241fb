#include "dreamddp/profile_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/expect_rejected.h"
#include "core/test_data.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;
using testing::read_test_data;

ImportedProfile import_run(const std::string& run, const ProfileImport& options = {}) {
  return import_public_profile(read_test_data("profiles/" + run + "/backward.json"),
                               read_test_data("profiles/" + run + "/sync.json"), options);
}

/// The one warning that has `part` in it; empty where there are none or several.
std::string warning_with(const ImportedProfile& imported, const std::string& part) {
  std::string found;
  for (const std::string& warning : imported.warnings) {
    if (warning.find(part) != std::string::npos) {
      if (!found.empty()) {
        return "";
      }
      found = warning;
    }
  }
  return found;
}

TEST(ProfileImport, TakesTimesByNameInTheOrderOfTheBackwardFile) {
  const auto imported =
      import_public_profile(R"({"b": 0.2, "a": 0.4})", R"({"a": 3, "b": 5})", {0.25, false});
  const Profile expected{
      {{"b", 0.05, 0.2, std::nullopt, 5.0, {}}, {"a", 0.1, 0.4, std::nullopt, 3.0, {}}}, 0, {}};
  EXPECT_EQ(imported.profile, expected);
  EXPECT_EQ(imported.warnings.size(), 2u);
  EXPECT_NE(warning_with(imported, "0.25 times the backward time"), "");
  EXPECT_NE(warning_with(imported, "optimizer step"), "");
}

TEST(ProfileImport, MatchesAdapterNamesEitherWay) {
  const auto imported = import_public_profile(R"({"q.lora_A.default": 1, "q.lora_B": 2})",
                                              R"({"q.lora_A": 3, "q.lora_B.default": 4})");
  EXPECT_EQ(imported.profile.layers[0].name, "q.lora_A.default");
  EXPECT_EQ(imported.profile.layers[0].transfer_seconds, 3);
  EXPECT_EQ(imported.profile.layers[1].transfer_seconds, 4);
  EXPECT_NE(warning_with(imported, ".default: 2 modules: 'q.lora_A', 'q.lora_B.default'"), "");
}

TEST(ProfileImport, PrefersEqualNamesToAdapterNames) {
  const auto imported = import_public_profile(R"({"x.default": 1, "x": 2})", R"({"x": 3, "x.default": 4})");
  EXPECT_EQ(imported.profile.layers[0].transfer_seconds, 4);
  EXPECT_EQ(imported.profile.layers[1].transfer_seconds, 3);
  expect_rejected([] { import_public_profile(R"({"x": 1})", R"({"x.default": 3, "x": 4})"); },
                  {"sync.json", "'x.default'"});
}

TEST(ProfileImport, TakesModulesThatAreNotSynchronisedAsWithoutParameters) {
  const auto imported = import_public_profile(R"({"a": 1, "act": 2, "drop": 3})", R"({"a": 3})");
  EXPECT_EQ(imported.profile.layers[1].num_bytes, 0);
  EXPECT_EQ(imported.profile.layers[1].transfer_seconds, 0);
  EXPECT_EQ(imported.profile.layers[1].backward_seconds, 2);
  EXPECT_NE(warning_with(imported,
                         "in backward.json only, taken as without trainable parameters: 2 modules: 'act'"),
            "");
}

TEST(ProfileImport, RejectsModulesThatNeverRan) {
  expect_rejected([] { import_public_profile(R"({"a": 1})", R"({"a": 3, "lora_A": 1, "lora_B": 1})"); },
                  {"sync.json: got 2 modules: 'lora_A', 'lora_B'", "the same run"});
}

TEST(ProfileImport, TakesNaNAsZeroWhenAsked) {
  expect_rejected([] { import_public_profile(R"({"a": 1, "rotary": NaN})", R"({"a": 3})"); },
                  {"backward.json: 'rotary': got NaN"});
  expect_rejected([] { import_public_profile(R"({"a": 1})", R"({"a": NaN})"); }, {"sync.json: 'a': got NaN"});
  const auto imported = import_public_profile(R"({"a": 1, "rotary": NaN})", R"({"a": NaN})", {0.5, true});
  EXPECT_EQ(imported.profile.layers[1].backward_seconds, 0);
  EXPECT_EQ(imported.profile.layers[0].transfer_seconds, 0);
  EXPECT_NE(warning_with(imported, "NaN in backward.json (did not run), taken as 0: 1 module: 'rotary'"), "");
  EXPECT_NE(warning_with(imported, "NaN in sync.json, taken as 0: 1 module: 'a'"), "");
}

TEST(ProfileImport, RejectsOtherValuesByFileAndModule) {
  for (const std::string value : {"-1", "null", "\"12\"", "Infinity", "1e400", "true"}) {
    expect_rejected(
        [&] {
          import_public_profile("{\"h.0\": " + value + "}", R"({"h.0": 3})", {0.5, true});
        },
        {"backward.json: 'h.0': got " + value});
    expect_rejected(
        [&] {
          import_public_profile(R"({"h.0": 3})", "{\"h.0\": " + value + "}", {0.5, true});
        },
        {"sync.json: 'h.0': got " + value});
  }
  expect_rejected([] { import_public_profile("{\"a\": 1", "{}"); }, {"backward.json, line 1, column 8"});
  expect_rejected([] { import_public_profile("{\"a\": 1}", "[]"); }, {"sync.json: got an array"});
  expect_rejected([] { import_public_profile("{}", "{}"); }, {"layers: got none"});
  expect_rejected([] { import_public_profile(R"({"a": 1, "a": 2})", "{}"); },
                  {"backward.json", "\"a\" twice"});
}

TEST(ProfileImport, RejectsForwardRatiosOutOfRange) {
  for (const double ratio : {-0.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    expect_rejected(
        [&] {
          import_public_profile(R"({"a": 1})", R"({"a": 1})", {ratio, false});
        },
        {"forward_ratio"});
  }
}

TEST(PublicRun, ResNet18ImportsAsItIs) {
  const auto imported = import_run("a6000-resnet18");
  ASSERT_EQ(imported.profile.layers.size(), 46u);
  EXPECT_EQ(imported.profile.layers.front().name, "conv1");
  EXPECT_EQ(imported.profile.layers.back().name, "linear");
  EXPECT_EQ(imported.warnings.size(), 2u);
  EXPECT_EQ(parse_profile(to_json(imported.profile)), imported.profile);
}

TEST(PublicRun, LlamaKeepsItsEmbeddingAsALayerLikeOthers) {
  const auto imported = import_run("h100-llama");
  ASSERT_EQ(imported.profile.layers.size(), 84u);
  EXPECT_EQ(imported.profile.layers[0].name, "model.embed_tokens");
  EXPECT_EQ(imported.profile.layers[0].last_read, LastRead{});
  EXPECT_FALSE(imported.profile.layers[0].num_bytes.has_value());
}

TEST(PublicRun, QwenAdaptersSynchroniseAndTheFrozenBaseDoesNot) {
  expect_rejected([] { import_run("qwen2.5-7b-lora-16w-10gbit"); },
                  {"backward.json: 'base_model.model.model.embed_tokens': got NaN"});
  const auto imported = import_run("qwen2.5-7b-lora-16w-10gbit", {0.5, true});
  ASSERT_EQ(imported.profile.layers.size(), 1291u);
  EXPECT_NE(warning_with(imported, "428 modules"), "");
  EXPECT_NE(warning_with(imported, "899 modules"), "");
  EXPECT_EQ(imported.warnings.size(), 4u);
  for (const Layer& layer : imported.profile.layers) {
    const bool is_adapter = layer.name.ends_with(".lora_A") || layer.name.ends_with(".lora_B");
    EXPECT_EQ(layer.transfer_seconds.value() > 0, is_adapter) << layer.name;
    EXPECT_EQ(layer.num_bytes != 0, is_adapter) << layer.name;
  }
}

}  // namespace
}  // namespace dreamddp
