// The same plan on every machine and compiler: plans of every planner against the fingerprints of those that
// were made elsewhere. No hash order, pointer order or fused multiply-add may decide.
#include <gtest/gtest.h>

#include <cstdint>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "core/random_plans.h"
#include "core/test_data.h"
#include "dreamddp/planner.h"
#include "dreamddp/profile_import.h"

namespace dreamddp {
namespace {

/// FNV-1a, 64 bits.
std::uint64_t fold(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) {
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

std::string hexadecimal(std::uint64_t hash) {
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << hash;
  return text.str();
}

std::string fingerprint_on_public_profiles(std::string_view planner, const Link& link,
                                           const PlanOptions& options) {
  std::uint64_t hash = fold("");
  for (const char* run : {"a6000-resnet18", "h100-llama", "qwen2.5-7b-lora-16w-10gbit"}) {
    const auto text = [&](const char* file) {
      return testing::read_test_data(std::string("profiles/") + run + "/" + file);
    };
    const Profile profile =
        import_public_profile(text("backward.json"), text("sync.json"),
                              {.nan_as_zero = true, .assumed_bandwidth_bytes_per_second = 1e9, .workers = 8})
            .profile;
    if (planner == "brute-force" && profile.layers.size() > 20) continue;
    hash = fold(to_json(make_plan(planner, profile, link, options)), hash);
  }
  return hexadecimal(hash);
}

std::string fingerprint_on_random_profiles(std::string_view planner) {
  std::uint64_t hash = fold("");
  testing::Random random(71);
  for (int i = 0; i < 60; ++i) {
    const Profile profile = testing::random_profile(random, {.max_layers = 12});
    Link link;
    link.latency_seconds = static_cast<double>(testing::random_integer(random, 0, 3)) / 10;
    link.in_flight = static_cast<int>(testing::random_integer(random, 1, 3));
    const PlanOptions options{.period = testing::random_integer(random, 1, 6),
                              .max_delay = testing::random_integer(random, 0, 1),
                              .slack = testing::random_chance(random, 0.3) ? 0.013 : 0};
    hash = fold(to_json(make_plan(planner, profile, link, options)), hash);
  }
  return hexadecimal(hash);
}

TEST(Plans, AreTheSameOnEveryMachine) {
  nlohmann::json fingerprints;
  for (const Planner& planner : planners()) {
    auto& of_planner = fingerprints[std::string(planner.name)];
    of_planner["public"] = fingerprint_on_public_profiles(planner.name, {}, {.period = 10});
    of_planner["public, 0.2 ms"] =
        fingerprint_on_public_profiles(planner.name, {.latency_seconds = 2e-4}, {.period = 5});
    of_planner["public, 20 ms, four in flight, carried"] = fingerprint_on_public_profiles(
        planner.name, {.latency_seconds = 0.02, .in_flight = 4},
        {.period = 20, .staging_bytes = std::int64_t{1} << 30, .max_delay = 1});
    of_planner["random"] = fingerprint_on_random_profiles(planner.name);
  }
  EXPECT_EQ(fingerprints, nlohmann::json::parse(testing::read_test_data("plan_fingerprints.json")))
      << "Where a planner was changed on purpose, tests/data/plan_fingerprints.json should now be\n"
      << fingerprints.dump(2);
}

}  // namespace
}  // namespace dreamddp
