// Slices of flattened tensors: what an op reads and writes. Design section 8.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dreamddp/plan.h"

namespace dreamddp {

/// A layer of the running model: what one module owns.
struct LayerParameters {
  std::string name;
  std::vector<at::Tensor> parameters;  ///< trainable; any shape, strides and dtype; none twice, none empty
  std::vector<at::Tensor>
      statistics;  ///< running ones, averaged with the layer; only the forward writes them
};

/// Elements [begin, end) of a tensor, counted in storage order where its elements fill their storage densely
/// (contiguous, channels-last, transposed), else in row-major order. Equal strides on all ranks make both the
/// same coordinates everywhere; the agreement check when attaching compares strides.
struct TensorSlice {
  at::Tensor tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t num_elements() const { return end - begin; }
};

/// Number of elements of all parameters of a layer.
std::int64_t num_elements(const LayerParameters& layer);
/// Bytes that the slices take on the wire.
std::int64_t num_bytes(const std::vector<TensorSlice>& slices);

/// The elements of one segment of a layer: both fractions are rounded down to elements (design section 6).
/// Complex parameters come as real ones with twice the elements.
std::vector<TensorSlice> segment_slices(const LayerParameters& layer, double begin, double end);

/// All elements of the tensors.
std::vector<TensorSlice> whole_slices(const std::vector<at::Tensor>& tensors);

/// Cuts slices into chunks of at most max_bytes, each of one dtype and device. The order is kept.
/// @param extra_elements that each slice takes on the wire beside its own
std::vector<std::vector<TensorSlice>> cut_into_chunks(const std::vector<TensorSlice>& slices,
                                                      std::int64_t max_bytes,
                                                      std::int64_t extra_elements = 0);

/// Copies the slices, one after the other, into the one-dimensional `buffer` of their dtype.
void pack(const std::vector<TensorSlice>& slices, const at::Tensor& buffer);
/// Copies `buffer` back into the slices. Strides and storage of the tensors stay; version counters grow.
void unpack(const at::Tensor& buffer, const std::vector<TensorSlice>& slices);
/// Adds `buffer` to the slices, otherwise like unpack().
void add(const at::Tensor& buffer, const std::vector<TensorSlice>& slices);

}  // namespace dreamddp
