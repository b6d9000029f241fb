#include "runtime/parameter_watch.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace dreamddp {

struct ParameterWatch::State {
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  using Storage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  at::Tensor tensor;
  bool is_trained;
  caffe2::TypeMeta dtype;
  c10::Device device;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  Accumulator accumulator;  // null where the parameter is not trained, and is not averaged
  // Does not keep the values, but its address: a conversion always brings another one.
  Storage storage;

  explicit State(const at::Tensor& parameter)
      : tensor(parameter),
        is_trained(parameter.requires_grad() && parameter.layout() == at::kStrided),
        dtype(parameter.dtype()),
        device(parameter.device()),
        storage(c10::intrusive_ptr<c10::StorageImpl>()) {
    if (!is_trained) return;
    sizes = parameter.sizes().vec();
    strides = parameter.strides().vec();
    accumulator = torch::autograd::impl::grad_accumulator(parameter);
    note_storage();
  }

  void note_storage() { storage = Storage(tensor.storage().getWeakStorageImpl()); }

  bool has_changed() {
    if (tensor.requires_grad() != is_trained) return true;
    if (!is_trained) return false;
    if (tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage._unsafe_get_target())
      return tensor.sizes() != sizes || tensor.strides() != strides;
    if (tensor.dtype() != dtype || tensor.device() != device || tensor.sizes() != sizes ||
        tensor.strides() != strides || torch::autograd::impl::try_get_grad_accumulator(tensor) != accumulator)
      return true;
    note_storage();
    return false;
  }
};

ParameterWatch::ParameterWatch(const std::vector<at::Tensor>& parameters)
    : states_(parameters.begin(), parameters.end()) {}

ParameterWatch::~ParameterWatch() = default;

std::optional<std::size_t> ParameterWatch::first_changed() {
  const auto changed = std::ranges::find_if(states_, [](State& state) { return state.has_changed(); });
  if (changed == states_.end()) return std::nullopt;
  return static_cast<std::size_t>(changed - states_.begin());
}

}  // namespace dreamddp
