#include "runtime/emulated_work.h"

#include <stdexcept>
#include <utility>

namespace dreamddp {

EmulatedWork::EmulatedWork(int rank, c10d::OpType type)
    : Work(rank, type),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void EmulatedWork::collective_ends(at::IValue value) {
  {
    const std::lock_guard lock(parts_mutex_);
    value_ = std::move(value);
    collective_has_ended_ = true;
    if (!link_has_ended_ || std::exchange(is_decided_, true)) return;
  }
  complete(nullptr);
}

void EmulatedWork::link_ends() {
  {
    const std::lock_guard lock(parts_mutex_);
    link_has_ended_ = true;
    if (!collective_has_ended_ || std::exchange(is_decided_, true)) return;
  }
  complete(nullptr);
}

void EmulatedWork::fail(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(parts_mutex_);
    if (std::exchange(is_decided_, true)) return;
  }
  complete(error);
}

void EmulatedWork::abort() {
  fail(std::make_exception_ptr(std::runtime_error("the collective over the emulated link was aborted")));
}

std::vector<at::Tensor> EmulatedWork::result() {
  TORCH_CHECK(isCompleted(), "the collective has not ended: call wait() before result()");
  return future_->value().toTensorVector();
}

// The future comes first, as in the process groups of PyTorch: its value is there when wait() returns.
void EmulatedWork::complete(const std::exception_ptr& error) {
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(value_);
  }
  finish(error);
}

}  // namespace dreamddp
