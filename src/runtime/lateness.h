// What is said when an op of the lane is late or fails: which one, for how long, and who is missing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/lane.h"
#include "runtime/progress_board.h"

namespace dreamddp {

/// Called from the lane's thread; of_failure() may block for about two seconds.
struct LatenessReport {
  std::shared_ptr<ProgressBoard> board;
  /// "averaging 'h.2' (op 3 of the plan, step 17)"
  std::function<std::string(const Chunk&)> describe;
  int rank = 0;
  std::chrono::milliseconds timeout{0};

  /// LaneOptions::is_late: warns at half of the timeout. At the timeout it gives a text, or nothing while a
  /// rank pauses.
  std::optional<std::string> of(const Lateness& late) const;
  /// TransportOptions::describe_failure
  std::string of_failure(const Chunk& chunk, std::chrono::duration<double> elapsed,
                         const std::string& error) const;

 private:
  std::string beginning(const Chunk& chunk, std::chrono::duration<double> elapsed) const;
};

/// Has the lane tell the board when ops begin and end, beside what it calls already.
void report_to_board(LaneOptions& options, std::shared_ptr<ProgressBoard> board);

}  // namespace dreamddp
