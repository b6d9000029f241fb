// Spans in the traces of torch.profiler: compute waiting for an op, and ops from launch to end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace dreamddp {

/// Ops that a profiler sees. Costs next to nothing where none is active. Thread-safe.
class ProfilerSpans {
 public:
  /// The op is launched, on a thread that the profiler watches; `name` is called where one is active.
  void begin(std::int64_t sequence, const std::function<std::string()>& name);
  /// It has ended; from any thread.
  void end(std::int64_t sequence);

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::function<void()>> ends_;  // of ops under way that a profiler sees
};

}  // namespace dreamddp
