// Ops whose means the lane keeps until they may be written: held and carried averages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "runtime/device_stream.h"

namespace dreamddp {

/// Executions of ops that are kept back, from launch to write, by sequence. Executions of one op are written
/// one after the other: what is written may change what the next one keeps. Not thread-safe.
class KeptBackOps {
 public:
  void add(std::int64_t sequence, std::size_t op);
  bool contains(std::int64_t sequence) const { return ops_.contains(sequence); }
  /// Its means are there.
  /// @param event where a device has them; may be null
  void set_reduced(std::int64_t sequence, EventPointer event);
  bool is_reduced(std::int64_t sequence) const { return ops_.at(sequence).is_reduced; }
  EventPointer reduced_event(std::int64_t sequence) const { return ops_.at(sequence).reduced; }
  /// @throws std::invalid_argument for an execution that is not here
  void release(std::int64_t sequence);
  bool is_released(std::int64_t sequence) const { return ops_.at(sequence).is_released; }

  /// The first execution that may be written now.
  std::optional<std::int64_t> first_to_write() const;
  /// The first execution of the same op, up to this one, that may be written now.
  std::optional<std::int64_t> first_to_write_for(std::int64_t sequence) const;
  /// Nobody else may write it from now on.
  /// @return the op
  std::size_t begin_write(std::int64_t sequence);
  void end_write(std::int64_t sequence) { ops_.erase(sequence); }

 private:
  struct Execution {
    std::size_t op;
    bool is_reduced = false;
    bool is_released = false;
    bool is_being_written = false;
    EventPointer reduced = nullptr;
  };
  using Executions = std::map<std::int64_t, Execution>;

  bool may_be_written(Executions::const_iterator execution) const;

  Executions ops_;
};

}  // namespace dreamddp
