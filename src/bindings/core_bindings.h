// The parts of the extension module dreamddp._core: what the planning core offers to Python, without torch.
//
// Everything that crosses is immutable in Python: structs have read-only fields, sequences are tuples.
// Constructors validate. Only make_plan(), make_plan_and_report(), fill_bubbles(), simulate() and
// simulate_timeline() run long enough to release the GIL.
#pragma once

#include <pybind11/pybind11.h>

namespace dreamddp::bindings {

void bind_error(pybind11::module_& module);
void bind_files(pybind11::module_& module);
void bind_units(pybind11::module_& module);
void bind_profile(pybind11::module_& module);
void bind_link(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_simulator(pybind11::module_& module);
void bind_planner(pybind11::module_& module);
void bind_policy(pybind11::module_& module);

}  // namespace dreamddp::bindings
