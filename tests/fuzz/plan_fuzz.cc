// Any text is either rejected with std::invalid_argument or read as a plan that survives a round trip; and a
// plan that is valid for a model of its layers can be simulated.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "dreamddp/plan.h"
#include "dreamddp/simulator.h"

namespace {

/// A model of the plan's layers: those with even numbers are embeddings, one in seven has no parameters.
dreamddp::Profile profile_of(const dreamddp::Plan& plan) {
  dreamddp::Profile profile;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    dreamddp::Layer layer{plan.layers[l], 0.5, 1, 4, 0.25, {}};
    if (l % 2 == 0) layer.last_read.kind = dreamddp::LastReadKind::forward;
    if (l % 7 == 6) layer.num_bytes = 0;
    profile.layers.push_back(layer);
  }
  return profile;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const dreamddp::Plan plan = dreamddp::parse_plan(text);
    if (dreamddp::parse_plan(dreamddp::to_json(plan)) != plan) std::abort();
    const dreamddp::Profile profile = profile_of(plan);
    dreamddp::validate(plan, profile);
    if (plan.period <= 16) dreamddp::simulate(plan, profile, {.latency_seconds = 0.125, .in_flight = 2});
  } catch (const std::invalid_argument&) {
    // Rejected, as most texts should be.
  }
  return 0;
}
