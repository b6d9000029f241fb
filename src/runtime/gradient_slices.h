// Gradients on the wire: slices of parameters stand for the same elements of their gradients. Design
// section 6.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/tensor_slices.h"

namespace dreamddp {

// Note [Gradients that are absent]
//
// A parameter that a rank did not use has no gradient there. It counts as zero in the mean, and where no rank
// has one, there is none afterwards either: an optimizer then leaves the parameter alone, as it would in one
// process. So behind the values of all slices follows, for each slice, how many ranks have its gradient.

/// Elements that the gradients of the slices take on the wire.
std::int64_t num_gradient_elements(const std::vector<TensorSlice>& slices);

/// Copies the gradients of the slices into the one-dimensional `buffer` of their dtype.
/// @throws std::invalid_argument for a gradient that is not dense
void pack_gradients(const std::vector<TensorSlice>& slices, const at::Tensor& buffer);

/// Copies the means back. A gradient that this rank lacks and another one has is made.
/// @param counts the same buffer, or a copy that need not be waited for: how many ranks have gradients is
///   read from here; the scale does not matter
/// @return the gradients that it has made
std::vector<at::Tensor> unpack_gradients(const at::Tensor& buffer, const at::Tensor& counts,
                                         const std::vector<TensorSlice>& slices);

}  // namespace dreamddp
