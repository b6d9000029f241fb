#include "runtime/lane_state.h"

#include <algorithm>
#include <utility>

#include "dreamddp/error.h"

namespace dreamddp {
namespace {

constexpr std::chrono::milliseconds check_interval{100};

}  // namespace

Lane::State::State(std::unique_ptr<LaneTransport> the_transport, LaneOptions the_options)
    : transport(std::move(the_transport)),
      options(std::move(the_options)),
      device(options.device.get()),
      reduces_on_device(device != nullptr && transport->reduces_on_device()) {
  if (options.num_slots < 1) {
    reject(
        {"num_slots", std::to_string(options.num_slots), "at least 1", "Use 2 or more to overlap chunks."});
  }
}

void Lane::State::launch(std::int64_t sequence, std::size_t op) {
  const bool is_kept_back = check_launch(sequence, op);
  transport->take_snapshot(sequence, op);
  EventPointer launched = record();
  const std::lock_guard lock(mutex);
  if (failure) throw_failure();
  unfinished.insert(sequence);
  if (is_kept_back) kept_back.add(sequence, op);
  last_launched = sequence;
  queue.push_back({sequence, op, std::move(launched)});
  work_arrives.notify_one();
}

void Lane::State::adopt(std::int64_t sequence, std::size_t op) {
  check_launch(sequence, op);
  EventPointer there = record();
  const std::lock_guard lock(mutex);
  unfinished.insert(sequence);
  kept_back.add(sequence, op);
  kept_back.set_reduced(sequence, std::move(there));
  last_launched = sequence;
}

bool Lane::State::check_launch(std::int64_t sequence, std::size_t op) {
  {
    const std::lock_guard lock(mutex);
    if (failure) throw_failure();
    if (last_launched && sequence <= *last_launched) {
      reject({"sequence", std::to_string(sequence), "more than " + std::to_string(*last_launched),
              "Launch ops in the order of their sequence numbers."});
    }
  }
  return transport->is_kept_back(op);
}

void Lane::State::wait_until_reduced(std::int64_t sequence) {
  std::unique_lock lock(mutex);
  const auto is_reduced = [&] { return !kept_back.contains(sequence) || kept_back.is_reduced(sequence); };
  op_finishes.wait(lock, [&] { return failure || is_reduced(); });
  if (!is_reduced()) throw_failure();
  const EventPointer event = kept_back.contains(sequence) ? kept_back.reduced_event(sequence) : nullptr;
  lock.unlock();
  await(event);
}

void Lane::State::release(std::int64_t sequence) {
  const std::lock_guard lock(mutex);
  if (failure) return;  // wait() tells
  kept_back.release(sequence);
  work_arrives.notify_one();
  op_finishes.notify_all();
}

template <typename Predicate>
void Lane::State::block_until(std::unique_lock<std::mutex>& lock, const std::function<void()>& check,
                              Predicate predicate) {
  while (!op_finishes.wait_for(lock, check_interval, predicate)) {
    if (!check) continue;
    lock.unlock();
    check();
    lock.lock();
  }
}

void Lane::State::wait_until_done(const std::function<void()>& check) {
  std::unique_lock lock(mutex);
  block_until(lock, check, [this] { return failure || is_done(); });
  if (!is_done() && !failure_is_told) throw_failure();
}

bool Lane::State::is_done() const {
  return num_issued == 0 && std::ranges::all_of(unfinished, [this](std::int64_t sequence) {
           return kept_back.contains(sequence) && kept_back.is_reduced(sequence);
         });
}

void Lane::State::wait(std::int64_t sequence, const std::function<void()>& check) {
  std::unique_lock lock(mutex);
  if (!was_launched(sequence) && !failure) {
    reject({"sequence", std::to_string(sequence), "an op that was launched",
            "Launch the op before waiting for it."});
  }
  if (kept_back.contains(sequence) && !kept_back.is_released(sequence) && !failure) {
    reject({"sequence", std::to_string(sequence), "an op that was released",
            "Release an op that is kept back before waiting for it."});
  }
  const auto may_go_on = [&] {
    return failure || finished(sequence) || kept_back.first_to_write_for(sequence);
  };
  do {
    block_until(lock, check, may_go_on);
    if (!failure && !finished(sequence)) write(*kept_back.first_to_write_for(sequence), lock);
  } while (!failure && !finished(sequence));
  if (!finished(sequence)) throw_failure();
  const auto end = ends.find(sequence);
  const EventPointer event = end == ends.end() ? nullptr : end->second;
  lock.unlock();
  await(event);
}

void Lane::State::write(std::int64_t sequence, std::unique_lock<std::mutex>& lock) {
  const std::size_t op = kept_back.begin_write(sequence);
  const EventPointer reduced_event = kept_back.reduced_event(sequence);
  const EventPointer write_before = device ? writes[op] : nullptr;
  EventPointer written;
  lock.unlock();
  const std::optional<std::string> error = error_of([&] {
    await(reduced_event);
    await(write_before);
    transport->write(sequence, op);
    written = record();
  });
  if (error) fail(*error);
  lock.lock();
  kept_back.end_write(sequence);
  if (device) writes[op] = written;
  if (!error) finish(sequence, std::move(written));
  work_arrives.notify_one();  // the next execution of the op may be written
}

void Lane::State::throw_failure() {
  failure_is_told = true;
  throw SyncError(*failure);
}

void Lane::State::finish(std::int64_t sequence, EventPointer end) {
  unfinished.erase(sequence);
  while (!ends.empty() && device->is_over(*ends.begin()->second)) ends.erase(ends.begin());
  if (end) ends.emplace(sequence, std::move(end));
  op_finishes.notify_all();
}

bool Lane::State::is_finished(std::int64_t sequence) const {
  const std::lock_guard lock(mutex);
  return finished(sequence);
}

void Lane::State::fail(const std::string& text) {
  const std::lock_guard lock(mutex);
  if (failure) return;
  failure = text;
  queue.clear();
  work_arrives.notify_one();
  op_finishes.notify_all();
}

bool Lane::State::has_failed() const {
  const std::lock_guard lock(mutex);
  return failure.has_value();
}

void Lane::State::chunk_is_reduced(std::int64_t ticket) {
  const std::lock_guard lock(mutex);
  reduced.insert(ticket);
  work_arrives.notify_one();
}

EventPointer Lane::State::record() const { return device ? device->record() : nullptr; }

void Lane::State::await(const EventPointer& event) const {
  if (event) device->wait(*event);
}

}  // namespace dreamddp
