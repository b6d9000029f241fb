// Whether the parameters of a model are still what they were. Design section 3.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace dreamddp {

/// Remembers what an engine relies on: that a parameter is trained or not, its dtype, device, shape and
/// strides, and the node that accumulates its gradient, which carries the engine's hook. Values and storage
/// may change: tensors are looked up whenever they are averaged.
///
/// Not thread-safe: use it while no backward runs. It is cheap enough for every iteration.
class ParameterWatch {
 public:
  explicit ParameterWatch(const std::vector<at::Tensor>& parameters);
  ~ParameterWatch();
  ParameterWatch(const ParameterWatch&) = delete;
  ParameterWatch& operator=(const ParameterWatch&) = delete;

  /// Index of the first parameter that is no longer what it was.
  std::optional<std::size_t> first_changed();

 private:
  struct State;
  std::vector<State> states_;
};

}  // namespace dreamddp
