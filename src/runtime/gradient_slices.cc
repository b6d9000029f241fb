#include "runtime/gradient_slices.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

/// Whether elements of the gradient lie as those of its parameter do, so that a slice means the same.
bool lies_like(const at::Tensor& gradient, const at::Tensor& parameter) {
  return gradient.strides() == parameter.strides() && gradient.scalar_type() == parameter.scalar_type();
}

/// A tensor without values, laid out like the parameter.
at::Tensor empty_like_parameter(const at::Tensor& parameter) {
  return at::empty_strided(parameter.sizes(), parameter.strides(), parameter.options().requires_grad(false));
}

/// The gradient itself, or a copy of it that lies like the parameter.
at::Tensor laid_out(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (gradient.layout() != at::kStrided) {
    reject({"gradient of a parameter", "sparse", "dense",
            "Build the embedding with sparse=False, or take a planner of parameters, such as `balanced`."});
  }
  return lies_like(gradient, parameter) ? gradient : empty_like_parameter(parameter).copy_(gradient);
}

std::int64_t num_values(const std::vector<TensorSlice>& slices) {
  std::int64_t total = 0;
  for (const TensorSlice& slice : slices) total += slice.num_elements();
  return total;
}

}  // namespace

std::int64_t num_gradient_elements(const std::vector<TensorSlice>& slices) {
  return num_values(slices) + static_cast<std::int64_t>(slices.size());
}

void pack_gradients(const std::vector<TensorSlice>& slices, const at::Tensor& buffer) {
  const at::NoGradGuard no_grad;
  std::int64_t offset = 0;
  std::int64_t flag = num_values(slices);
  for (const TensorSlice& slice : slices) {
    const at::Tensor& gradient = slice.tensor.grad();
    const at::Tensor place = buffer.narrow(0, offset, slice.num_elements());
    if (gradient.defined()) {
      pack({{laid_out(gradient, slice.tensor), slice.begin, slice.end}}, place);
    } else {
      place.zero_();
    }
    buffer.narrow(0, flag++, 1).fill_(gradient.defined() ? 1 : 0);
    offset += slice.num_elements();
  }
}

std::vector<at::Tensor> unpack_gradients(const at::Tensor& buffer, const at::Tensor& counts,
                                         const std::vector<TensorSlice>& slices) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> made;
  std::int64_t offset = 0;
  std::int64_t flag = num_values(slices);
  for (const TensorSlice& slice : slices) {
    at::Tensor& gradient = slice.tensor.mutable_grad();
    const at::Tensor place = buffer.narrow(0, offset, slice.num_elements());
    // What another rank has is looked up only where it is missing here: on a GPU, that may wait for it.
    if (!gradient.defined() && counts[flag].item<double>() > 0) {
      gradient = empty_like_parameter(slice.tensor).zero_();
      made.push_back(gradient);
    }
    if (gradient.defined()) {
      const at::Tensor target = laid_out(gradient, slice.tensor);
      unpack(place, {{target, slice.begin, slice.end}});
      if (!target.is_same(gradient)) gradient.copy_(target);
    }
    ++flag;
    offset += slice.num_elements();
  }
  return made;
}

}  // namespace dreamddp
