#include "runtime/tensor_slices.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

using CopyPart = std::function<void(const at::Tensor& part, std::int64_t offset)>;

/// Calls `copy` for views that make up elements [begin, end) of `tensor` in row-major order: a partial
/// first row, whole rows, a partial last row.
void visit_row_major(const at::Tensor& tensor, std::int64_t begin, std::int64_t end, std::int64_t offset,
                     const CopyPart& copy) {
  if (begin >= end) {
    return;
  }
  if (begin == 0 && end == tensor.numel()) {
    copy(tensor, offset);
    return;
  }
  if (tensor.dim() == 1) {
    copy(tensor.narrow(0, begin, end - begin), offset);
    return;
  }
  const std::int64_t row_elements = tensor.numel() / tensor.size(0);
  const std::int64_t first_row = begin / row_elements;
  const std::int64_t last_row = (end - 1) / row_elements;
  if (first_row == last_row) {
    const std::int64_t base = first_row * row_elements;
    visit_row_major(tensor.select(0, first_row), begin - base, end - base, offset, copy);
    return;
  }
  const std::int64_t whole_begin = (begin + row_elements - 1) / row_elements;
  const std::int64_t whole_end = end / row_elements;
  if (whole_begin > first_row) {
    visit_row_major(tensor.select(0, first_row), begin - first_row * row_elements, row_elements, offset,
                    copy);
  }
  if (whole_end > whole_begin) {
    copy(tensor.narrow(0, whole_begin, whole_end - whole_begin), offset + whole_begin * row_elements - begin);
  }
  if (last_row >= whole_end) {
    visit_row_major(tensor.select(0, last_row), 0, end - last_row * row_elements,
                    offset + last_row * row_elements - begin, copy);
  }
}

void visit_parts(const TensorSlice& slice, std::int64_t offset, const CopyPart& copy) {
  // Views of detach() share storage and version counter with the parameter.
  at::Tensor tensor = slice.tensor.detach();
  if (tensor.is_complex()) {
    tensor = at::view_as_real(tensor);
  }
  if (slice.end > tensor.numel()) {
    reject(
        {.field = "parameter",
         .value = std::to_string(tensor.numel()) + " elements, shape " + c10::str(tensor.sizes()),
         .allowed = "at least the " + std::to_string(slice.end) + " that it had when DreamDDP was attached",
         .remedy = "Call detach() before a parameter changes its shape, and attach again."});
  }
  if (tensor.is_non_overlapping_and_dense()) {
    copy(tensor.as_strided({slice.num_elements()}, {1}, tensor.storage_offset() + slice.begin), offset);
  } else {
    visit_row_major(tensor, slice.begin, slice.end, offset, copy);
  }
}

at::ScalarType real_type(const at::Tensor& tensor) { return c10::toRealValueType(tensor.scalar_type()); }

std::int64_t element_bytes(const TensorSlice& slice) {
  return static_cast<std::int64_t>(c10::elementSize(real_type(slice.tensor)));
}

}  // namespace

std::int64_t num_elements(const LayerParameters& layer) {
  std::int64_t total = 0;
  for (const at::Tensor& parameter : layer.parameters) {
    total += parameter.numel();
  }
  return total;
}

std::int64_t num_bytes(const std::vector<TensorSlice>& slices) {
  std::int64_t total = 0;
  for (const TensorSlice& slice : slices) {
    total += slice.num_elements() * element_bytes(slice);
  }
  return total;
}

std::vector<TensorSlice> segment_slices(const LayerParameters& layer, double begin, double end) {
  const std::int64_t total = num_elements(layer);
  const auto to_element = [total](double fraction) {
    const auto element = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(total)));
    return fraction >= 1 ? total : std::clamp<std::int64_t>(element, 0, total);
  };
  const std::int64_t first = to_element(begin);
  const std::int64_t last = to_element(end);
  std::vector<TensorSlice> slices;
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : layer.parameters) {
    const std::int64_t from = std::max(first - offset, std::int64_t{0});
    const std::int64_t to = std::min(last - offset, parameter.numel());
    if (from < to) {
      const std::int64_t parts = parameter.is_complex() ? 2 : 1;
      slices.push_back({parameter, from * parts, to * parts});
    }
    offset += parameter.numel();
  }
  return slices;
}

std::vector<TensorSlice> whole_slices(const std::vector<at::Tensor>& tensors) {
  return segment_slices({.name = "", .parameters = tensors, .statistics = {}}, 0, 1);
}

std::vector<std::vector<TensorSlice>> cut_into_chunks(const std::vector<TensorSlice>& slices,
                                                      std::int64_t max_bytes, std::int64_t extra_elements) {
  std::vector<std::vector<TensorSlice>> chunks;
  std::int64_t room = 0;
  for (TensorSlice slice : slices) {
    const std::int64_t size = element_bytes(slice);
    while (slice.num_elements() > 0) {
      const std::int64_t least = (1 + extra_elements) * size;
      const bool fits = !chunks.empty() && room >= least &&
                        real_type(chunks.back().back().tensor) == real_type(slice.tensor) &&
                        chunks.back().back().tensor.device() == slice.tensor.device();
      if (!fits) {
        chunks.emplace_back();
        room = std::max(max_bytes, least);
      }
      const std::int64_t count = std::min(slice.num_elements(), room / size - extra_elements);
      chunks.back().push_back({slice.tensor, slice.begin, slice.begin + count});
      slice.begin += count;
      room -= (count + extra_elements) * size;
    }
  }
  return chunks;
}

namespace {

/// Calls `visit` for the parts of the slices, each with a view of its place in the buffer.
template <typename Visit>
void visit_with_buffer(const std::vector<TensorSlice>& slices, const at::Tensor& buffer, const Visit& visit) {
  const at::NoGradGuard no_grad;
  std::int64_t offset = 0;
  for (const TensorSlice& slice : slices) {
    visit_parts(slice, offset, [&](const at::Tensor& part, std::int64_t at) {
      visit(part, buffer.narrow(0, at, part.numel()).view(part.sizes()));
    });
    offset += slice.num_elements();
  }
}

}  // namespace

void pack(const std::vector<TensorSlice>& slices, const at::Tensor& buffer) {
  visit_with_buffer(slices, buffer,
                    [](const at::Tensor& part, const at::Tensor& place) { place.copy_(part); });
}

void unpack(const at::Tensor& buffer, const std::vector<TensorSlice>& slices) {
  visit_with_buffer(slices, buffer,
                    [](const at::Tensor& part, const at::Tensor& place) { part.copy_(place); });
}

void add(const at::Tensor& buffer, const std::vector<TensorSlice>& slices) {
  visit_with_buffer(slices, buffer,
                    [](const at::Tensor& part, const at::Tensor& place) { part.add_(place); });
}

}  // namespace dreamddp
