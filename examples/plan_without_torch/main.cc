// What would partial local SGD gain? Planned with the C++ library alone, without PyTorch.
//
//   cmake --install BUILD --prefix PREFIX
//   cmake -S examples/plan_without_torch -B build/example -DCMAKE_PREFIX_PATH=PREFIX
//   cmake --build build/example && build/example/plan_without_torch 500Mbit/s
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "dreamddp/link.h"
#include "dreamddp/planner.h"
#include "dreamddp/profile.h"
#include "dreamddp/simulator.h"
#include "dreamddp/units.h"

namespace {

// A byte-level GPT-2 with 6 blocks. Its embedding is read in the forward only, so it may travel during nearly
// the whole iteration.
dreamddp::Profile make_profile() {
  dreamddp::Profile profile;
  profile.step_seconds = 2e-3;
  profile.layers.push_back({.name = "wte",
                            .forward_seconds = 0.2e-3,
                            .backward_seconds = 0.4e-3,
                            .num_bytes = 256 * 256 * 4,
                            .last_read = {.kind = dreamddp::LastReadKind::forward}});
  for (int block = 0; block < 6; ++block)
    profile.layers.push_back({.name = "h." + std::to_string(block),
                              .forward_seconds = 8e-3,
                              .backward_seconds = 16e-3,
                              .num_bytes = 12 * 256 * 256 * 4});
  profile.layers.push_back(
      {.name = "lm_head", .forward_seconds = 1e-3, .backward_seconds = 2e-3, .num_bytes = 256 * 256 * 4});
  dreamddp::validate(profile);
  return profile;
}

void print_comparison(std::string_view bandwidth) {
  const dreamddp::Profile profile = make_profile();
  const dreamddp::Link link{
      .bandwidth_bytes_per_second = dreamddp::parse_bytes_per_second(bandwidth, "bandwidth"),
      .latency_seconds = 0.2e-3,
      .workers = 4};
  std::printf("%-12s %12s %12s %12s %10s\n", "planner", "iteration", "compute", "exposed", "ops");
  for (const std::string_view planner : {"wfbp", "local-sgd", "balanced"}) {
    const dreamddp::Plan plan = dreamddp::make_plan(planner, profile, link, {.period = 5});
    const dreamddp::Simulation result = dreamddp::simulate(plan, profile, link);
    std::printf("%-12s %12s %12s %12s %10.1f\n", plan.planner.c_str(),
                dreamddp::format_seconds(result.iteration_seconds).c_str(),
                dreamddp::format_seconds(result.compute_seconds).c_str(),
                dreamddp::format_seconds(result.exposed_seconds).c_str(), result.ops_per_iteration);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    print_comparison(argc > 1 ? argv[1] : "500Mbit/s");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
