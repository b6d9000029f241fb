// What the lane has been given, by sequence number: for errors, timelines and traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/running_plan.h"

namespace dreamddp {

/// Thread-safe. Remembers the latest launches: more than can be under way.
class LaunchLog {
 public:
  struct Launch {
    std::shared_ptr<const RunningPlan> running;
    std::size_t op = 0;  ///< of its plan
    std::int64_t iteration = 0;

    const std::string& label() const { return running->labels[op]; }
    /// "averaging 'h.2' and 1 more (op 3 of the plan, step 17)"
    std::string description() const {
      return running->doing[op] + ", step " + std::to_string(iteration) + ")";
    }
  };

  void note(std::int64_t sequence, Launch launch) {
    const std::lock_guard lock(mutex_);
    launches_.insert_or_assign(sequence, std::move(launch));
    if (launches_.size() > most_launches) launches_.erase(launches_.begin());
  }

  /// @throws std::out_of_range for what was not noted, or has been forgotten
  Launch operator[](std::int64_t sequence) const {
    const std::lock_guard lock(mutex_);
    return launches_.at(sequence);
  }

 private:
  static constexpr std::size_t most_launches = 65'536;

  mutable std::mutex mutex_;
  std::map<std::int64_t, Launch> launches_;
};

}  // namespace dreamddp
