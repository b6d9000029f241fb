// What the scheduler has to know of every op and layer of a plan, worked out once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dreamddp/plan.h"
#include "dreamddp/profile.h"

namespace dreamddp {

/// A list for each of n keys, in one piece of memory.
class Lists {
 public:
  Lists() = default;
  /// @param entries (key, value); values of one key keep their order
  Lists(std::size_t num_keys, const std::vector<std::pair<std::size_t, std::uint32_t>>& entries);

  std::span<const std::uint32_t> operator[](std::size_t key) const {
    return {values_.data() + begins_[key], values_.data() + begins_[key + 1]};
  }

 private:
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> values_;
};

struct OpRules {
  bool is_gradient = false;
  OpMode mode = OpMode::in_place;  ///< in_place for gradient ops: nobody else reads them before the step
  Event launch;
  std::int64_t deadline_delay = 0;  ///< iterations from launch to deadline
  /// In-place in a window in front of the reads of the launch's iteration: goes while none has begun.
  bool precedes_reads = false;
};

/// Immutable. All lists are of indices of ops or layers.
struct ScheduleRules {
  ScheduleRules(const Plan& plan, const Profile& profile);

  std::vector<OpRules> ops;
  Lists layers;          ///< op -> the layers it carries, each once
  Lists writers;         ///< layer -> in-place and held parameter ops that carry it
  Lists due_at_forward;  ///< layer -> ops with a deadline before its forward, or before that of a layer in
                         ///< front of it if the op is carried: a read in another order may not come first
  /// op -> ops on the same coordinates whose deadline, before a forward of the iteration of this op's
  /// launch, lies in front of it: still in flight if that forward never came.
  Lists predecessors;
  Lists last_read_at_backward;             ///< layer -> layers read for the last time in its backward
  std::vector<bool> last_read_at_forward;  ///< layer -> whether its last read is its own forward
};

}  // namespace dreamddp
