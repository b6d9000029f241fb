#include "runtime/profiler_spans.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <memory>
#include <utility>

namespace dreamddp {

void ProfilerSpans::begin(std::int64_t sequence, const std::function<std::string()>& name) {
  const auto span = std::make_shared<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (!span->isActive()) return;
  span->_setAsync();  // ends on another thread
  span->before(name());
  const std::lock_guard lock(mutex_);
  ends_[sequence] = at::wrapPropagateTLSState([span] { span->end(); });
}

void ProfilerSpans::end(std::int64_t sequence) {
  std::unique_lock lock(mutex_);
  const auto found = ends_.extract(sequence);
  lock.unlock();
  if (found) found.mapped()();
}

}  // namespace dreamddp
