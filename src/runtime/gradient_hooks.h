// Hooks on the gradients of leaf tensors. Design section 3.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace dreamddp {

/// Calls back whenever the gradient of a parameter has been accumulated in a backward.
///
/// Thread safety: construct, remove and destroy while no backward runs. The callback comes from autograd's
/// threads; an exception in it reaches the user's backward().
class GradientHooks {
 public:
  /// @param on_gradient receives the index of the parameter within `parameters`
  GradientHooks(const std::vector<at::Tensor>& parameters,
                const std::function<void(std::size_t)>& on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  struct Hook;
  std::vector<Hook> hooks_;
};

inline constexpr int no_backward = -1;

/// Number of the backward that runs on this thread, no_backward where none does; equal for all gradients of
/// one backward() call. A backward() within a backward has a number of its own.
int current_backward();

/// Runs the function at the end of the backward that runs on this thread.
void at_end_of_backward(std::function<void()> function);

}  // namespace dreamddp
