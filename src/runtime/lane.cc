#include "runtime/lane.h"

#include <utility>

#include "runtime/lane_state.h"

namespace dreamddp {

Lane::Lane(std::unique_ptr<LaneTransport> transport, LaneOptions options)
    : state_(std::make_shared<State>(std::move(transport), std::move(options))),
      thread_([state = state_] { state->run(); }) {}

Lane::~Lane() {
  state_->fail("the lane was closed");
  std::unique_lock lock(state_->mutex);
  const bool ended =
      state_->thread_ends.wait_for(lock, state_->options.grace, [this] { return state_->has_ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Lane::launch(std::int64_t sequence, std::size_t op) { state_->launch(sequence, op); }

void Lane::release(std::int64_t sequence) { state_->release(sequence); }

void Lane::wait(std::int64_t sequence, const std::function<void()>& check) { state_->wait(sequence, check); }

void Lane::wait_until_done(const std::function<void()>& check) { state_->wait_until_done(check); }

void Lane::wait_until_reduced(std::int64_t sequence) { state_->wait_until_reduced(sequence); }

void Lane::adopt(std::int64_t sequence, std::size_t op) { state_->adopt(sequence, op); }

LaneTransport& Lane::transport() { return *state_->transport; }

bool Lane::is_finished(std::int64_t sequence) const { return state_->is_finished(sequence); }

bool Lane::has_failed() const { return state_->has_failed(); }

void Lane::abort(const std::string& reason) { state_->fail(reason); }

}  // namespace dreamddp
