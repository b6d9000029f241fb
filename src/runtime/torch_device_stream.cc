#include "runtime/torch_device_stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace dreamddp {
namespace {

using Guard = c10::impl::VirtualGuardImpl;

class TorchEvent final : public DeviceEvent {
 public:
  TorchEvent(const c10::Stream& stream, bool is_timed)
      : event_(stream.device_type(),
               is_timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT) {
    event_.record(stream);
  }

  static const c10::Event& of(const DeviceEvent& event) {
    return static_cast<const TorchEvent&>(event).event_;
  }

 private:
  c10::Event event_;  // never recorded again: then its uses are safe from any thread
};

class StreamScope final : public DeviceStream::Scope {
 public:
  explicit StreamScope(const c10::Stream& stream) : guard_(stream) {}

 private:
  c10::StreamGuard guard_;
};

class TorchDeviceStream final : public DeviceStream {
 public:
  /// The copies of the lane are short, so its stream comes first where the device has a choice.
  explicit TorchDeviceStream(c10::Device device)
      : device_(device), stream_(Guard(device.type()).getNewStream(device, high_priority)) {}

  std::unique_ptr<Scope> enter() override { return std::make_unique<StreamScope>(stream_); }
  EventPointer record(bool is_timed) override {
    return std::make_shared<TorchEvent>(current_stream(device_), is_timed);
  }
  void wait(const DeviceEvent& event) override { TorchEvent::of(event).block(current_stream(device_)); }
  bool is_over(const DeviceEvent& event) override { return TorchEvent::of(event).query(); }
  void synchronise(const DeviceEvent& event) override { TorchEvent::of(event).synchronize(); }
  double seconds_between(const DeviceEvent& begin, const DeviceEvent& end) override {
    return TorchEvent::of(begin).elapsedTime(TorchEvent::of(end)) / 1000;  // of milliseconds
  }

 private:
  static constexpr int high_priority = -1;

  const c10::Device device_;
  const c10::Stream stream_;
};

}  // namespace

std::shared_ptr<DeviceStream> make_device_stream(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return nullptr;
  return std::make_shared<TorchDeviceStream>(device);
}

c10::Stream current_stream(c10::Device device) { return Guard(device.type()).getStream(device); }

void keep_for(const c10::Stream& stream, const at::Tensor& tensor) {
  if (tensor.is_cpu() || !tensor.has_storage()) return;
  Guard(tensor.device().type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

void keep_for_current_stream(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  keep_for(current_stream(tensor.device()), tensor);
}

}  // namespace dreamddp
