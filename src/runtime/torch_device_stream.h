// Streams and events of the device that a model is on, for whatever device PyTorch has been built for.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>

#include "runtime/device_stream.h"

namespace dreamddp {

/// A stream of its own on `device`; null where work is done at once (CPU).
std::shared_ptr<DeviceStream> make_device_stream(c10::Device device);

/// The calling thread's current stream on the device.
c10::Stream current_stream(c10::Device device);

/// Keeps the allocator from using the tensor's memory again before the work that the stream has been given
/// until the tensor is released. Nothing on a CPU.
void keep_for(const c10::Stream& stream, const at::Tensor& tensor);
/// For the calling thread's current stream.
void keep_for_current_stream(const at::Tensor& tensor);

}  // namespace dreamddp
