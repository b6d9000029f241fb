// A lane on a device that does its work later and in any order that its streams and events allow.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fake_device.h"
#include "runtime/lane.h"

namespace dreamddp::testing {

inline constexpr int added_by_peers = 1000;
inline constexpr std::size_t num_slots = 2;

/// Parameters of each op, one chunk for each element. The device's thread alone reads and writes them.
struct Model {
  std::vector<std::vector<int>> parameters;
  std::set<std::size_t> kept_back = {};

  std::mutex mutex = {};
  std::set<std::string> mistakes = {};

  void expect(bool holds, const std::string& mistake) {
    const std::lock_guard lock(mutex);
    if (!holds) mistakes.insert(mistake);
  }
};

enum class Reduces { on_host, on_device };

/// Adds a number to each element, on a link that takes its time.
class DeviceTransport final : public LaneTransport {
 public:
  DeviceTransport(FakeDevice& device, Model& model, Reduces where)
      : device_(device), model_(model), where_(where) {
    for (const std::vector<int>& parameter : model.parameters) num_chunks_.push_back(parameter.size());
  }
  ~DeviceTransport() override {
    device_.drain();  // of its slots
    if (at_end) at_end();
  }

  std::size_t num_chunks(std::size_t op) override { return num_chunks_[op]; }
  bool is_kept_back(std::size_t op) override { return model_.kept_back.contains(op); }
  void take_snapshot(std::int64_t sequence, std::size_t op) override {
    if (is_kept_back(op)) device_.give([this, sequence, op] { kept_[sequence] = model_.parameters[op]; });
  }
  bool reduces_on_device() override { return where_ == Reduces::on_device; }
  void pack(const Chunk& chunk, std::size_t slot_index) override {
    if (chunk.sequence == cannot_pack) throw std::runtime_error("no such parameter");
    Slot& slot = slots_[slot_index];
    device_.give([this, &slot, chunk] {
      model_.expect(!slot.is_used, "a slot is packed again before it has been unpacked");
      slot.is_used = true;
      const auto& values = is_kept_back(chunk.op) ? kept_[chunk.sequence] : model_.parameters[chunk.op];
      const bool is_there = chunk.index < values.size();
      model_.expect(is_there, "an op is packed before its launch");
      slot.on_device = is_there ? values[chunk.index] : 0;
      if (where_ == Reduces::on_host) slot.on_host = slot.on_device;
    });
    {
      const std::lock_guard lock(mutex_);
      slot.is_reduced = false;
    }
  }
  void reduce(const Chunk& /*chunk*/, std::size_t slot_index) override {
    Slot& slot = slots_[slot_index];
    const EventPointer packed = device_.record();
    const auto scope = device_.enter("link");
    if (where_ == Reduces::on_device) {
      device_.wait(*packed);
      device_.give([&slot] { slot.on_device += added_by_peers; });
      slot.link_is_done = device_.record();
      return;
    }
    device_.give([this, &slot] {
      slot.on_host += added_by_peers;
      std::function<void()> notify;
      {
        const std::lock_guard lock(mutex_);
        slot.is_reduced = true;
        notify = std::exchange(slot.notify, nullptr);
      }
      if (notify) notify();
    });
  }
  void when_reduced(std::size_t slot_index, const std::function<void()>& notify) override {
    Slot& slot = slots_[slot_index];
    {
      const std::lock_guard lock(mutex_);
      if (where_ == Reduces::on_host && !slot.is_reduced) {
        slot.notify = notify;
        return;
      }
    }
    notify();
  }
  std::function<bool()> watch(const Chunk& chunk, std::size_t slot_index) override {
    return [this, chunk, link_is_done = slots_[slot_index].link_is_done] {
      if (!device_.is_over(*link_is_done)) return false;
      if (chunk.sequence == fails_at) throw std::runtime_error("peer 1 is gone");
      return true;
    };
  }
  void wait(const Chunk& /*chunk*/, std::size_t slot_index) override {
    if (where_ == Reduces::on_device) device_.wait(*slots_[slot_index].link_is_done);
  }
  void unpack(const Chunk& chunk, std::size_t slot_index) override {
    Slot& slot = slots_[slot_index];
    device_.give([this, &slot, chunk] {
      if (where_ == Reduces::on_host) slot.on_device = slot.on_host;
      slot.is_used = false;
      if (is_kept_back(chunk.op)) {
        kept_[chunk.sequence].resize(num_chunks(chunk.op));
        kept_[chunk.sequence][chunk.index] = slot.on_device;
      } else {
        model_.parameters[chunk.op][chunk.index] = slot.on_device;
      }
    });
  }
  void write(std::int64_t sequence, std::size_t op) override {
    device_.give([this, sequence, op] { model_.parameters[op] = kept_[sequence]; });
  }
  void abort() override {
    ++num_aborts;
    if (on_abort) on_abort();
    device_.go_on();
  }

  std::int64_t fails_at = -1;
  std::int64_t cannot_pack = -1;
  std::atomic<int> num_aborts = 0;
  std::function<void()> on_abort = nullptr;
  std::function<void()> at_end = nullptr;  ///< when it is destroyed

 private:
  std::vector<std::size_t> num_chunks_;  // the device writes the parameters while the lane asks
  struct Slot {
    bool is_used = false;
    int on_device = 0;
    int on_host = 0;
    EventPointer link_is_done = nullptr;
    bool is_reduced = false;
    std::function<void()> notify = nullptr;
  };
  FakeDevice& device_;
  Model& model_;
  const Reduces where_;
  std::array<Slot, num_slots> slots_;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<int>> kept_;  // snapshots, then means; of the device's thread
};

struct DeviceLane {
  std::shared_ptr<FakeDevice> device;
  DeviceTransport* transport;
  std::unique_ptr<Lane> lane;

  DeviceLane(Model& model, Reduces where, unsigned seed, bool is_held = false, LaneOptions options = {})
      : device(std::make_shared<FakeDevice>(seed, is_held)) {
    auto made = std::make_unique<DeviceTransport>(*device, model, where);
    transport = made.get();
    options.num_slots = num_slots;
    options.device = device;
    lane = std::make_unique<Lane>(std::move(made), std::move(options));
  }
  ~DeviceLane() {
    device->drain();
    lane.reset();
    device->drain();
  }
};

}  // namespace dreamddp::testing
