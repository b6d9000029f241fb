#include <pybind11/stl.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core_bindings.h"
#include "dreamddp/planner.h"

namespace dreamddp::bindings {

namespace py = pybind11;

namespace {

std::vector<std::pair<std::string, std::string>> planner_summaries() {
  std::vector<std::pair<std::string, std::string>> summaries;
  for (const Planner& planner : planners()) summaries.emplace_back(planner.name, planner.summary);
  return summaries;
}

Plan make_plan_by_name(const std::string& planner, const Profile& profile, const Link& link,
                       std::int64_t period, std::int64_t staging_bytes, std::int64_t max_delay) {
  return make_plan(planner, profile, link,
                   {.period = period, .staging_bytes = staging_bytes, .max_delay = max_delay});
}

}  // namespace

void bind_planner(py::module_& module) {
  const PlanOptions defaults;
  const PeriodOptions period_defaults;
  module.def("planners", &planner_summaries, "Name and one-line summary of every planner, in listing order.");
  module.def("make_plan", &make_plan_by_name, py::arg("planner"), py::arg("profile"), py::arg("link"),
             py::kw_only(), py::arg("period") = defaults.period,
             py::arg("staging_bytes") = defaults.staging_bytes, py::arg("max_delay") = defaults.max_delay,
             py::call_guard<py::gil_scoped_release>(),
             "Makes a valid plan; the same arguments give the same plan on every machine.\n\n"
             "staging_bytes: memory for the ring and for held averages. max_delay: steps that a carried "
             "average may cross; 0 for none.");
  module.def(
      "choose_period",
      [](const Profile& profile, const Link& link, double margin, std::int64_t max_period) {
        return choose_period(profile, link, {.margin = margin, .max_period = max_period});
      },
      py::arg("profile"), py::arg("link"), py::kw_only(), py::arg("margin") = period_defaults.margin,
      py::arg("max_period") = period_defaults.max_period,
      "The smallest period whose bound is within (1 + margin) of the compute time.");
}

}  // namespace dreamddp::bindings
