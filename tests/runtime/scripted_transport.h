// A transport for tests of the lane: records every call, and lets a test block or fail any of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/lane.h"

namespace dreamddp::testing {

/// Opened once. A wait that is never let through throws after a minute, so a broken lane fails a test
/// instead of hanging it; no test's outcome depends on that time.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opens_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (!opens_.wait_for(lock, std::chrono::minutes(1), [this] { return is_open_; })) {
      throw std::runtime_error("the gate was never opened");
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable opens_;
  bool is_open_ = false;
};

struct Call {
  std::string kind;  // "snapshot", "begin", "pack", "wait", "unpack", "end" or "write"
  std::int64_t sequence;
  std::size_t chunk;

  bool operator==(const Call&) const = default;
};

inline std::string to_string(const Call& call) {
  return call.kind + " " + std::to_string(call.sequence) + "." + std::to_string(call.chunk);
}

/// Outlives the lane, which owns the transport only.
struct Script {
  std::vector<std::size_t> num_chunks = {};      ///< per op of the plan
  std::function<void(const Call&)> before = {};  ///< at the start of every call; may block or throw
  std::function<void(const Call&, std::size_t)> with_slot = {};  ///< before that, for calls that have a slot
  std::function<void()> at_end = {};                             ///< when the transport is destroyed
  std::set<std::size_t> kept_back = {};                          ///< ops of the plan
  /// In place of LaneTransport::when_reduced(), when not null.
  std::function<void(const std::function<void()>&)> when_reduced = {};

  std::mutex mutex = {};
  std::vector<Call> calls = {};  ///< those that came through, in order

  void record(Call call) {
    if (before) before(call);
    const std::lock_guard lock(mutex);
    calls.push_back(std::move(call));
  }
  std::vector<Call> calls_of(const std::string& kind) {
    const std::lock_guard lock(mutex);
    std::vector<Call> found;
    for (const Call& call : calls) {
      if (call.kind == kind) found.push_back(call);
    }
    return found;
  }
};

class ScriptedTransport final : public LaneTransport {
 public:
  explicit ScriptedTransport(Script& script) : script_(script) {}
  ~ScriptedTransport() override {
    if (script_.at_end) script_.at_end();
  }

  std::size_t num_chunks(std::size_t op) override { return script_.num_chunks.at(op); }
  bool is_kept_back(std::size_t op) override { return script_.kept_back.contains(op); }
  void take_snapshot(std::int64_t sequence, std::size_t op) override {
    if (is_kept_back(op)) script_.record({"snapshot", sequence, 0});
  }
  void pack(const Chunk& chunk, std::size_t slot) override { record("pack", chunk, slot); }
  void reduce(const Chunk& /*chunk*/, std::size_t /*slot*/) override {}
  void when_reduced(std::size_t slot, const std::function<void()>& notify) override {
    script_.when_reduced ? script_.when_reduced(notify) : LaneTransport::when_reduced(slot, notify);
  }
  void wait(const Chunk& chunk, std::size_t slot) override { record("wait", chunk, slot); }
  void unpack(const Chunk& chunk, std::size_t slot) override { record("unpack", chunk, slot); }
  void write(std::int64_t sequence, std::size_t /*op*/) override { script_.record({"write", sequence, 0}); }

 private:
  void record(const char* kind, const Chunk& chunk, std::size_t slot) {
    const Call call{kind, chunk.sequence, chunk.index};
    if (script_.with_slot) script_.with_slot(call, slot);
    script_.record(call);
  }

  Script& script_;
};

/// A lane over the script, whose begins and ends of ops are recorded in it too. Its destructor waits for the
/// chunks under way, however long that takes.
inline Lane scripted_lane(Script& script, std::size_t num_slots = 2,
                          std::chrono::milliseconds grace = std::chrono::minutes(10),
                          LaneOptions options = {}) {
  options.grace = grace;
  options.num_slots = num_slots;
  options.op_begins = [&script](std::int64_t sequence, std::size_t) {
    script.record({"begin", sequence, 0});
  };
  options.op_ends = [&script](std::int64_t sequence, std::size_t) { script.record({"end", sequence, 0}); };
  return Lane(std::make_unique<ScriptedTransport>(script), std::move(options));
}

}  // namespace dreamddp::testing
