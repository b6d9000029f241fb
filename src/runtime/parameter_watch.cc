#include "runtime/parameter_watch.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace dreamddp {

struct ParameterWatch::State {
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  at::Tensor tensor;
  bool is_trained;
  at::TensorOptions options;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  Accumulator accumulator;  // null where the parameter is not trained

  explicit State(const at::Tensor& parameter)
      : tensor(parameter),
        is_trained(parameter.requires_grad()),
        options(parameter.options()),
        sizes(parameter.sizes().vec()),
        strides(is_strided() ? parameter.strides().vec() : sizes) {
    if (is_trained) accumulator = torch::autograd::impl::grad_accumulator(parameter);
  }

  bool is_strided() const { return options.layout() == at::kStrided; }

  bool has_changed() const {
    if (tensor.requires_grad() != is_trained) return true;
    // A frozen parameter is not averaged.
    if (!is_trained) return false;
    return !tensor.options().type_equal(options) || tensor.device() != options.device() ||
           tensor.sizes() != sizes || (is_strided() && tensor.strides() != strides) ||
           torch::autograd::impl::try_get_grad_accumulator(tensor) != accumulator;
  }
};

ParameterWatch::ParameterWatch(const std::vector<at::Tensor>& parameters)
    : states_(parameters.begin(), parameters.end()) {}

ParameterWatch::~ParameterWatch() = default;

std::optional<std::size_t> ParameterWatch::first_changed() const {
  const auto changed = std::ranges::find_if(states_, &State::has_changed);
  if (changed == states_.end()) return std::nullopt;
  return static_cast<std::size_t>(changed - states_.begin());
}

}  // namespace dreamddp
