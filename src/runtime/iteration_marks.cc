#include "runtime/iteration_marks.h"

#include <algorithm>
#include <utility>

namespace dreamddp {
namespace {

/// Layers that came, in the order in which they came.
std::vector<std::pair<double, std::size_t>> in_order(const std::vector<double>& times) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    if (times[layer] != IterationMarks::never) {
      order.emplace_back(times[layer], layer);
    }
  }
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

IterationTimes iteration_times(const IterationMarks& marks) {
  IterationTimes times;
  times.forward_seconds.assign(marks.first_reads.size(), 0);
  times.backward_seconds.assign(marks.backward_ends.size(), 0);
  const auto reads = in_order(marks.first_reads);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const double next = i + 1 < reads.size() ? reads[i + 1].first : marks.forward_end;
    times.forward_seconds[reads[i].second] = std::max(next - reads[i].first, 0.0);
  }
  double previous = marks.forward_end;
  for (const auto& [end, layer] : in_order(marks.backward_ends)) {
    times.backward_seconds[layer] = std::max(end - previous, 0.0);
    previous = std::max(previous, end);
  }
  if (!reads.empty()) {
    times.loop_before_seconds = std::max(reads.front().first - marks.begin, 0.0);
  }
  times.loop_after_seconds = std::max(marks.step_begin - previous, 0.0);
  times.step_seconds = std::max(marks.step_end - marks.step_begin, 0.0);
  return times;
}

}  // namespace dreamddp
