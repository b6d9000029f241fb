// The collectives of one process group on the emulated link, booked in the order of their launch.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/emulated_link.h"
#include "runtime/emulated_work.h"

namespace dreamddp {

/// A collective that waits for its time on the link.
struct EmulatedOp {
  c10::intrusive_ptr<EmulatedWork> work;
  LinkRequest request;                   ///< ready and num_bytes are agreed later
  Nanoseconds launched = 0;              ///< here
  std::chrono::milliseconds timeout{0};  ///< from the launch; 0: none

  bool is_agreed = false;  ///< all ranks have launched it, or will never
};

/// Thread-safe. Shared with the callbacks of the wrapped process group, so it must not own that.
class EmulatedGroup final : public LinkUser {
 public:
  /// @param name the same on all ranks
  EmulatedGroup(std::shared_ptr<EmulatedLink> link, std::string name);

  EmulatedLink& link() { return *link_; }

  /// @throws std::runtime_error after close()
  void require_open() const;

  /// Takes a place in the order.
  /// @pre the caller serialises the launches, in the same order on all ranks
  std::shared_ptr<EmulatedOp> launch(EmulatedOp op);

  /// All ranks have launched the op, the last of them at `ready`; it has `num_bytes` on the rank with the
  /// most.
  void agree(EmulatedOp& op, Nanoseconds ready, std::int64_t num_bytes);
  /// The ranks could not agree: the work fails, the link does not carry it.
  void fail(EmulatedOp& op, const std::exception_ptr& error);

  void close(const std::string& reason) override;

 private:
  void book_agreed();

  const std::shared_ptr<EmulatedLink> link_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::deque<std::shared_ptr<EmulatedOp>> waiting_;              // in the order of launch, not booked yet
  std::deque<c10::weak_intrusive_ptr<EmulatedWork>> under_way_;  // all that may not have ended
  std::exception_ptr closed_;
};

}  // namespace dreamddp
