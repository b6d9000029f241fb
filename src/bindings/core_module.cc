#include "core_bindings.h"

PYBIND11_MODULE(_core, module) {
  using namespace dreamddp::bindings;
  module.doc() =
      "Profiles, links, plans, planners and the simulator. Times are seconds, sizes bytes, rates bytes per "
      "second.";
  module.attr("__version__") = DREAMDDP_VERSION;
  module.attr("built_for_torch") = DREAMDDP_BUILT_FOR_TORCH;
  // In order of dependence: a signature can name only types that are bound already.
  bind_error(module);
  bind_files(module);
  bind_units(module);
  bind_profile(module);
  bind_link(module);
  bind_plan(module);
  bind_simulator(module);
  bind_planner(module);
  bind_policy(module);
}
