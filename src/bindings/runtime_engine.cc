// The engine as Python sees it: converts and forwards. Calls that block release the GIL.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "dreamddp/plan.h"
#include "dreamddp/profile.h"
#include "runtime/engine.h"

namespace py = pybind11;

namespace dreamddp {
namespace {

using Layers = std::vector<std::size_t>;

/// Makes C++ throw the Python error that is set, so that a backward() raises it as it is.
[[noreturn]] void throw_python_error() {
  python_error raised;
  raised.persist();
  throw raised;
}

/// Ends a wait on Ctrl-C.
void check_interrupt() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw_python_error();
}

/// Calls a function that blocks, without the GIL.
template <typename Function>
void block(Function function) {
  try {
    const py::gil_scoped_release release;
    function();
  } catch (python_error& error) {
    error.restore();
    throw py::error_already_set();
  }
}

/// (op, iteration, means, snapshots), as Python sees a PendingOp.
using PendingTuple = std::tuple<std::size_t, std::int64_t, std::vector<at::Tensor>, std::vector<at::Tensor>>;

void set_plan(Engine& engine, const std::string& plan, const std::string& profile,
              std::int64_t first_iteration, bool after_backward, const std::vector<PendingTuple>& pending) {
  std::vector<PendingOp> ops;
  for (const auto& [op, iteration, means, snapshots] : pending) {
    ops.push_back({iteration, {.op = op, .means = means, .snapshots = snapshots}});
  }
  block([&] {
    engine.set_plan(parse_plan(plan), parse_profile(profile), first_iteration, after_backward,
                    std::move(ops));
  });
}

std::vector<PendingTuple> pending(Engine& engine) {
  std::vector<PendingOp> ops;
  block([&] { ops = engine.pending(); });
  std::vector<PendingTuple> tuples;
  for (PendingOp& op : ops) {
    tuples.emplace_back(op.kept.op, op.iteration, std::move(op.kept.means), std::move(op.kept.snapshots));
  }
  return tuples;
}

/// Rows, norms and number of iterations of each layer; see GradientStatistics.
using StatisticsTuple = std::tuple<at::Tensor, std::vector<double>, std::int64_t>;
using PolicyStateTuple = std::tuple<std::string, std::vector<StatisticsTuple>, std::optional<at::Tensor>>;

void set_policy(Engine& engine, const std::string& policies, const std::string& profile,
                const std::tuple<std::optional<double>, double, int, int>& link, double slack,
                std::int64_t sketch_size, const std::optional<PolicyStateTuple>& state) {
  PolicyRunOptions options{.rules = parse_policies(policies), .slack = slack, .sketch_size = sketch_size};
  const auto& [bandwidth, latency, in_flight, workers] = link;
  Link planned;
  planned.bandwidth_bytes_per_second = bandwidth;
  planned.latency_seconds = latency;
  planned.in_flight = in_flight;
  planned.workers = workers;
  PolicyState restored;
  if (state) {
    restored.policies = std::get<0>(*state);
    for (const auto& [rows, norms, iterations] : std::get<1>(*state))
      restored.statistics.push_back({rows, norms, iterations});
    if (std::get<2>(*state)) restored.signals = *std::get<2>(*state);
  }
  engine.set_policy(parse_profile(profile), planned, std::move(options), state ? &restored : nullptr);
}

PolicyStateTuple policy_state(Engine& engine) {
  PolicyState state;
  block([&] { state = engine.policy_state(); });
  std::vector<StatisticsTuple> statistics;
  for (auto& layer : state.statistics)
    statistics.emplace_back(layer.rows, std::move(layer.norms), layer.num_iterations);
  std::optional<at::Tensor> signals;
  if (state.signals.defined()) signals = state.signals;
  return {state.policies, std::move(statistics), std::move(signals)};
}

/// Of each iteration: its number; of each layer whether it was due, rule, value, limit, treatment, and what
/// was agreed in the iteration before: similarity and norm, where there was one.
py::list decisions(const Engine& engine, std::int64_t first_iteration) {
  py::list result;
  for (const IterationDecisions& iteration : engine.decisions(first_iteration)) {
    py::list layers;
    for (std::size_t i = 0; i < iteration.decisions.size(); ++i) {
      const Decision& decision = iteration.decisions[i];
      const bool has_seen = i < iteration.similarities.size();
      layers.append(py::make_tuple(decision.is_due, rule_name(decision.rule), decision.value, decision.limit,
                                   treatment_name(iteration.treatments[i]),
                                   has_seen ? py::cast(iteration.similarities[i]) : py::none(),
                                   has_seen ? py::cast(iteration.gradient_norms[i]) : py::none()));
    }
    result.append(py::make_tuple(iteration.iteration, layers));
  }
  return result;
}

/// Carries out an event that says whether it must be waited for.
template <typename Event>
void wait_after(Engine& engine, Event event) {
  block([&] {
    if (event()) engine.wait();
  });
}

/// A method that blocks, as Python calls it.
template <typename... Arguments>
auto blocking(void (Engine::*method)(Arguments...)) {
  return [method](Engine& engine, Arguments... arguments) { block([&] { (engine.*method)(arguments...); }); };
}

/// The type that Python sees; engines are shared with the hooks that they hand out.
using EnginePointer = std::shared_ptr<Engine>;

/// A Python callable for use in a backward; released with the GIL held.
template <typename... Arguments>
std::function<void(Arguments...)> callback_in_backward(py::object callable) {
  const std::shared_ptr<py::object> held(new py::object(std::move(callable)), [](py::object* object) {
    const py::gil_scoped_acquire gil;
    delete object;
  });
  return [held](Arguments... arguments) {
    const py::gil_scoped_acquire gil;
    try {
      (*held)(arguments...);
    } catch (py::error_already_set& error) {
      error.restore();
      throw_python_error();
    }
  };
}

using NamedTensors = std::tuple<std::string, std::vector<at::Tensor>, std::vector<at::Tensor>>;

EnginePointer make_engine(const std::vector<NamedTensors>& layers,
                          c10::intrusive_ptr<c10d::ProcessGroup> group, std::int64_t staging_bytes,
                          double timeout_seconds, std::int64_t attachment) {
  std::vector<LayerParameters> parameters;
  for (const auto& [name, trainable, statistics] : layers) {
    parameters.push_back({name, trainable, statistics});
  }
  EngineOptions options;
  options.throw_in_backward = [](const SyncError& error) {
    const py::gil_scoped_acquire gil;
    const py::object type = py::module_::import("dreamddp._core").attr("SyncError");
    PyErr_SetString(type.ptr(), error.what());
    throw_python_error();
  };
  options.check_interrupt = check_interrupt;
  options.attachment = attachment;
  options.staging_bytes = staging_bytes;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1000));
  return std::make_shared<Engine>(std::move(parameters), std::move(group), options);
}

}  // namespace

void bind_engine(py::module_& module) {
  py::class_<IterationTimes>(module, "IterationTimes", "Compute times of one iteration, in seconds.")
      .def_readonly("forward_seconds", &IterationTimes::forward_seconds)
      .def_readonly("backward_seconds", &IterationTimes::backward_seconds)
      .def_readonly("step_seconds", &IterationTimes::step_seconds)
      .def_readonly("loop_before_seconds", &IterationTimes::loop_before_seconds)
      .def_readonly("loop_after_seconds", &IterationTimes::loop_after_seconds);

  py::class_<TrainingStatistics>(module, "TrainingStatistics", "Sums since the last reset.")
      .def_readonly("iterations", &TrainingStatistics::iterations)
      .def_readonly("seconds", &TrainingStatistics::seconds)
      .def_readonly("exposed_seconds", &TrainingStatistics::exposed_seconds)
      .def_readonly("link_seconds", &TrainingStatistics::link_seconds)
      .def_readonly("ops", &TrainingStatistics::ops)
      .def_readonly("num_bytes", &TrainingStatistics::num_bytes);

  py::class_<Engine, EnginePointer>(module, "Engine", "Carries a plan out in a running training.")
      .def(py::init(&make_engine), py::arg("layers"), py::arg("process_group"), py::kw_only(),
           py::arg("staging_bytes"), py::arg("timeout_seconds"), py::arg("attachment") = 0)
      .def("attach", &Engine::attach)
      .def(
          "set_repeated", [](Engine& engine, const Layers& layers) { engine.set_repeated(layers); },
          py::arg("layers"))
      .def("detach", &Engine::detach)
      .def("close", &Engine::close, py::call_guard<py::gil_scoped_release>())
      .def(
          "on_unplanned_backward",
          [](Engine& engine, py::object callback) {
            engine.on_unplanned_backward(callback_in_backward<>(std::move(callback)));
          },
          py::arg("callback"), "Called at the end of final backwards, while there is no plan.")
      .def(
          "on_layer_update",
          [](Engine& engine, py::object callback) {
            engine.on_layer_update(callback_in_backward<std::size_t>(std::move(callback)));
          },
          py::arg("callback"), "Called in final backwards to step a layer.")
      .def("set_plan", &set_plan, py::arg("plan"), py::arg("profile"), py::kw_only(),
           py::arg("first_iteration"), py::arg("after_backward"),
           py::arg("pending") = std::vector<PendingTuple>{},
           "Carries out a plan (JSON) for a profile (JSON) from now on. Blocks while the plan before ends.")
      .def("set_policy", &set_policy, py::arg("policies"), py::arg("profile"), py::arg("link"), py::kw_only(),
           py::arg("slack"), py::arg("sketch_size"), py::arg("state") = py::none(),
           "Lets policies (JSON) decide from the next backward on. Collective in effect.")
      .def("policy_state", &policy_state, "Blocks until signals under way are agreed.")
      .def("all_are_averaged", &Engine::all_are_averaged)
      .def("staleness", &Engine::staleness)
      .def("decisions", &decisions, py::arg("first_iteration") = 0)
      .def("pending", &pending, "Held and carried ops in flight, as set_plan() takes them. Blocks.")
      .def(
          "forward_pre_hook",
          [](const EnginePointer& engine, Layers layers) {
            return py::cpp_function([engine, layers = std::move(layers)](const py::args& /*module, args*/) {
              wait_after(*engine, [&] { return engine->forward_begins(layers); });
            });
          },
          py::arg("layers"), "A module's forward pre-hook: waits until the layers may be read.")
      .def(
          "forward_hook",
          [](const EnginePointer& engine, Layers layers) {
            return py::cpp_function(
                [engine, layers = std::move(layers)](const py::args& /*module, args, output*/) {
                  block([&] { engine->forward_ends(layers); });
                });
          },
          py::arg("layers"), "A module's forward hook: the layers have been read for the last time.")
      .def("forward_starts",
           [](Engine& engine) { wait_after(engine, [&] { return engine.forward_starts(); }); })
      .def("module_begins", blocking(&Engine::module_begins))
      .def("forward_finishes", &Engine::forward_finishes)
      .def("backward_without_data", blocking(&Engine::backward_without_data))
      .def("reader_backward_ends", blocking(&Engine::reader_backward_ends), py::arg("layer"))
      .def("step_begins", [](Engine& engine) { wait_after(engine, [&] { return engine.step_begins(); }); })
      .def("step_ends", blocking(&Engine::step_ends))
      .def("finish", blocking(&Engine::finish))
      .def(
          "average",
          [](Engine& engine, const std::vector<at::Tensor>& tensors) {
            block([&] { engine.average(tensors); });
          },
          py::arg("tensors"), "Averages floating-point tensors over all ranks, in place; blocks.")
      .def("set_paused", &Engine::set_paused, py::arg("is_paused"))
      .def(
          "meet", [](Engine& engine, const std::string& doing) { block([&] { engine.meet(doing); }); },
          py::arg("doing"), "Blocks until all ranks have called this as often.")
      .def("rest", &Engine::rest)
      .def_property_readonly("has_failed", &Engine::has_failed)
      .def("set_no_sync", &Engine::set_no_sync, py::arg("active"))
      .def_property_readonly("iteration", &Engine::iteration)
      .def_property_readonly("awaits_step", &Engine::awaits_step)
      .def("set_sampling", &Engine::set_sampling, py::arg("active"))
      .def("take_samples",
           [](Engine& engine) {
             std::vector<IterationTimes> samples;
             block([&] { samples = engine.take_samples(); });
             return samples;
           })
      .def("record", blocking(&Engine::record), py::arg("num_iterations"))
      .def("spans",
           [](const Engine& engine) {
             std::vector<Span> recorded;
             block([&] { recorded = engine.spans(); });
             std::vector<std::tuple<int, std::string, int, std::int64_t, double, double>> spans;
             for (const Span& span : recorded) {
               spans.emplace_back(static_cast<int>(span.kind), span.name, span.rank, span.iteration,
                                  span.begin_seconds, span.end_seconds);
             }
             return spans;
           })
      .def("statistics", &Engine::statistics)
      .def("reset_statistics", &Engine::reset_statistics);
}

}  // namespace dreamddp
