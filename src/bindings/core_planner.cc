#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core_bindings.h"
#include "core_repr.h"
#include "dreamddp/bubbles.h"
#include "dreamddp/planner.h"

namespace dreamddp::bindings {

namespace py = pybind11;

namespace {

std::vector<std::pair<std::string, std::string>> planner_summaries() {
  std::vector<std::pair<std::string, std::string>> summaries;
  for (const Planner& planner : planners()) summaries.emplace_back(planner.name, planner.summary);
  return summaries;
}

/// Ends a search on Ctrl-C.
void check_interrupt() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

std::pair<Plan, std::optional<SearchStatistics>> make_plan_and_report(
    const std::string& planner, const Profile& profile, const Link& link, std::int64_t period,
    std::int64_t staging_bytes, std::int64_t max_delay, double slack, bool fill_bubbles,
    std::vector<double> drift, SearchOptions search, bool fused_update) {
  std::optional<SearchStatistics> statistics;
  search.check_interrupt = check_interrupt;
  Plan plan = make_plan(planner, profile, link,
                        {.period = period,
                         .staging_bytes = staging_bytes,
                         .max_delay = max_delay,
                         .update = fused_update ? Update::fused : Update::step,
                         .slack = slack,
                         .fill_bubbles = fill_bubbles,
                         .drift = std::move(drift),
                         .search = std::move(search),
                         .search_statistics = &statistics});
  return {std::move(plan), statistics};
}

Plan make_plan_by_name(const std::string& planner, const Profile& profile, const Link& link,
                       std::int64_t period, std::int64_t staging_bytes, std::int64_t max_delay, double slack,
                       bool fill_bubbles, std::vector<double> drift, const SearchOptions& search,
                       bool fused_update) {
  return make_plan_and_report(planner, profile, link, period, staging_bytes, max_delay, slack, fill_bubbles,
                              std::move(drift), search, fused_update)
      .first;
}

template <typename Function>
void def_planning(py::module_& module, const char* name, Function function, const char* doc) {
  const PlanOptions defaults;
  module.def(name, function, py::arg("planner"), py::arg("profile"), py::arg("link"), py::kw_only(),
             py::arg("period") = defaults.period, py::arg("staging_bytes") = defaults.staging_bytes,
             py::arg("max_delay") = defaults.max_delay, py::arg("slack") = defaults.slack,
             py::arg("fill_bubbles") = defaults.fill_bubbles, py::arg("drift") = defaults.drift,
             py::arg("search") = defaults.search, py::arg("fused_update") = false,
             py::call_guard<py::gil_scoped_release>(), doc);
}

void bind_search(py::module_& module) {
  const SearchOptions defaults;
  py::class_<SearchOptions>(module, "SearchOptions", "How far the planner `dreamddp` searches.")
      .def(py::init([](std::int64_t max_nodes, std::optional<double> max_seconds, bool at_least_one,
                       bool optimal_hiding, bool delayed_overflow) {
             return SearchOptions{max_nodes, max_seconds, {at_least_one, optimal_hiding, delayed_overflow}};
           }),
           py::kw_only(), py::arg("max_nodes") = defaults.max_nodes,
           py::arg("max_seconds") = defaults.max_seconds,
           py::arg("at_least_one") = defaults.prunings.at_least_one,
           py::arg("optimal_hiding") = defaults.prunings.optimal_hiding,
           py::arg("delayed_overflow") = defaults.prunings.delayed_overflow)
      .def_readonly("max_nodes", &SearchOptions::max_nodes, "The same limit gives the same plan everywhere.")
      .def_readonly("max_seconds", &SearchOptions::max_seconds,
                    "None: no limit. Plans depend on the machine.")
      .def_property_readonly(
          "at_least_one", [](const SearchOptions& options) { return options.prunings.at_least_one; },
          "Pruning: an empty set takes the next layer.")
      .def_property_readonly(
          "optimal_hiding", [](const SearchOptions& options) { return options.prunings.optimal_hiding; },
          "Pruning: a set that still hides with the next layer takes it.")
      .def_property_readonly(
          "delayed_overflow", [](const SearchOptions& options) { return options.prunings.delayed_overflow; },
          "Pruning: a set that does not hide takes no more.")
      .def("__repr__", [](const SearchOptions& options) {
        return repr_fields("SearchOptions",
                           {{"max_nodes", py::cast(options.max_nodes)},
                            {"max_seconds", py::cast(options.max_seconds)},
                            {"at_least_one", py::cast(options.prunings.at_least_one)},
                            {"optimal_hiding", py::cast(options.prunings.optimal_hiding)},
                            {"delayed_overflow", py::cast(options.prunings.delayed_overflow)}});
      });

  py::class_<SearchStatistics>(module, "SearchStatistics", "What a search for a plan did.")
      .def_readonly("nodes", &SearchStatistics::nodes, "States that were visited.")
      .def_readonly("complete_solutions", &SearchStatistics::complete_solutions)
      .def_readonly("seconds", &SearchStatistics::seconds, "Of wall-clock time.")
      .def_readonly("complete", &SearchStatistics::complete,
                    "Whether it ended by itself; else the plan is the best found so far.")
      .def("__repr__", [](const SearchStatistics& statistics) {
        return repr_fields("SearchStatistics",
                           {{"nodes", py::cast(statistics.nodes)},
                            {"complete_solutions", py::cast(statistics.complete_solutions)},
                            {"seconds", py::cast(statistics.seconds)},
                            {"complete", py::cast(statistics.complete)}});
      });
}

}  // namespace

void bind_planner(py::module_& module) {
  bind_search(module);
  const PeriodOptions period_defaults;
  module.attr("training_slack") = training_slack;
  module.def("planners", &planner_summaries, "Name and one-line summary of every planner, in listing order.");
  module.def(
      "planner_quantity", [](const std::string& planner) { return find_planner(planner).quantity; },
      py::arg("planner"), "What the plans of a planner average.");
  module.def(
      "planner_can_fuse", [](const std::string& planner) { return find_planner(planner).can_fuse; },
      py::arg("planner"), "Whether a planner makes plans with fused updates.");
  def_planning(
      module, "make_plan", &make_plan_by_name,
      "Makes a valid plan; the same arguments give the same plan on every machine, unless a search "
      "is limited in seconds.\n\n"
      "staging_bytes: memory for the ring and for held averages. max_delay: steps that a carried "
      "average may cross; 0 for none. slack: fraction of the compute time by which windows are planned "
      "shorter than they are, as iterations vary. fill_bubbles: whether fill_bubbles() is applied, with "
      "drift. fused_update: whether the optimizer steps each layer inside the backward.");
  def_planning(module, "make_plan_and_report", &make_plan_and_report,
               "make_plan(), and what its search did; None where the planner does not search.");
  module.def(
      "fill_bubbles",
      [](const Plan& plan, const Profile& profile, const Link& link, const std::vector<double>& drift) {
        return fill_bubbles(plan, profile, link, drift);
      },
      py::arg("plan"), py::arg("profile"), py::arg("link"), py::kw_only(),
      py::arg("drift") = std::vector<double>{}, py::call_guard<py::gil_scoped_release>(),
      "Averages layers more often, those with the largest drift first, while the simulated time stays the "
      "same.\n\ndrift: one number per layer; layers with equal drift are taken from the output side on.");
  module.def(
      "choose_period",
      [](const Profile& profile, const Link& link, double margin, std::int64_t max_period, double slack,
         bool fused_update) {
        return choose_period(profile, link,
                             {.margin = margin,
                              .max_period = max_period,
                              .slack = slack,
                              .update = fused_update ? Update::fused : Update::step});
      },
      py::arg("profile"), py::arg("link"), py::kw_only(), py::arg("margin") = period_defaults.margin,
      py::arg("max_period") = period_defaults.max_period, py::arg("slack") = period_defaults.slack,
      py::arg("fused_update") = false,
      "The smallest period whose bound is within (1 + margin) of the compute time, both with windows shorter "
      "by the slack.");
}

}  // namespace dreamddp::bindings
