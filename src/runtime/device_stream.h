// Work that a device carries out later, as the lane sees it: streams, which run in order, and events.
//
// Design section 8. A CPU carries work out at once and has none of this: there is no DeviceStream then.
#pragma once

#include <memory>

namespace dreamddp {

/// A place in the work of a stream: behind all that had been given to it when the event was recorded.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};
using EventPointer = std::shared_ptr<const DeviceEvent>;

/// The stream of the lane, and how it and the streams of other threads wait for each other.
///
/// Each thread has a current stream, to which its work goes. Thread-safe. Only synchronise() blocks.
class DeviceStream {
 public:
  class Scope {
   public:
    virtual ~Scope() = default;
  };

  virtual ~DeviceStream() = default;

  /// The lane's stream is the calling thread's current one until the scope ends, on the same thread.
  virtual std::unique_ptr<Scope> enter() = 0;
  /// Behind the work of the calling thread's current stream.
  /// @param is_timed for seconds_between()
  virtual EventPointer record(bool is_timed = false) = 0;
  /// Work given to the calling thread's current stream from now on begins when the event is over.
  virtual void wait(const DeviceEvent& event) = 0;
  /// Whether the device has got there.
  virtual bool is_over(const DeviceEvent& event) = 0;
  /// Blocks until the event is over.
  virtual void synchronise(const DeviceEvent& event) = 0;
  /// Of two timed events that are over.
  virtual double seconds_between(const DeviceEvent& begin, const DeviceEvent& end) = 0;
};

}  // namespace dreamddp
