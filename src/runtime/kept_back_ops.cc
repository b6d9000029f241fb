#include "runtime/kept_back_ops.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {

void KeptBackOps::add(std::int64_t sequence, std::size_t op) { ops_.emplace(sequence, Execution{.op = op}); }

void KeptBackOps::set_reduced(std::int64_t sequence, EventPointer event) {
  Execution& execution = ops_.at(sequence);
  execution.is_reduced = true;
  execution.reduced = std::move(event);
}

void KeptBackOps::release(std::int64_t sequence) {
  const auto found = ops_.find(sequence);
  if (found == ops_.end()) {
    reject({"sequence", std::to_string(sequence), "an op that is kept back", "Release each op once."});
  }
  found->second.is_released = true;
}

bool KeptBackOps::may_be_written(Executions::const_iterator execution) const {
  const Execution& it = execution->second;
  return it.is_reduced && it.is_released && !it.is_being_written &&
         std::none_of(ops_.begin(), execution,
                      [&](const auto& earlier) { return earlier.second.op == it.op; });
}

std::optional<std::int64_t> KeptBackOps::first_to_write() const {
  for (auto execution = ops_.begin(); execution != ops_.end(); ++execution) {
    if (may_be_written(execution)) return execution->first;
  }
  return std::nullopt;
}

std::optional<std::int64_t> KeptBackOps::first_to_write_for(std::int64_t sequence) const {
  const auto last = ops_.find(sequence);
  if (last == ops_.end()) return std::nullopt;
  for (auto execution = ops_.begin(); execution != std::next(last); ++execution) {
    if (execution->second.op == last->second.op && may_be_written(execution)) return execution->first;
  }
  return std::nullopt;
}

std::size_t KeptBackOps::begin_write(std::int64_t sequence) {
  Execution& execution = ops_.at(sequence);
  execution.is_being_written = true;
  return execution.op;
}

}  // namespace dreamddp
