// A collective over an emulated link, under way.
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace dreamddp {

/// Completes when both the real collective has ended and the link has had its time; fails at once with the
/// first error. Thread-safe.
class EmulatedWork final : public c10d::Work {
 public:
  EmulatedWork(int rank, c10d::OpType type);

  /// The real collective has succeeded with this value (a list of tensors, or of lists).
  void collective_ends(at::IValue value);
  /// The link has carried it.
  void link_ends();
  /// What comes after the end of the work changes nothing.
  void fail(const std::exception_ptr& error);

  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override;

 private:
  void complete(const std::exception_ptr& error);

  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::mutex parts_mutex_;
  at::IValue value_;
  bool collective_has_ended_ = false;
  bool link_has_ended_ = false;
  bool is_decided_ = false;  // completes or fails, by the one thread that set it
};

}  // namespace dreamddp
