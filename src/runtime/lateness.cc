#include "runtime/lateness.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <utility>

namespace dreamddp {

std::optional<std::string> LatenessReport::of(const Lateness& late) const {
  if (board->somebody_pauses()) return std::nullopt;
  const std::string missing = board->who_is_missing(late.chunk.sequence);
  if (!late.has_timed_out) {
    std::ostringstream text;
    text << "dreamddp: rank " << rank << " has been " << describe(late.chunk) << " for "
         << late.elapsed.count() << " s, half of the timeout: a peer is late: " << missing;
    c10::warn(c10::Warning(c10::UserWarning(), {"is_late", __FILE__, __LINE__}, text.str(), true));
    return std::nullopt;
  }
  std::string text = beginning(late.chunk, late.elapsed) + ", as a peer is missing: " + missing;
  board->fail(text);
  return text;
}

std::string LatenessReport::of_failure(const Chunk& chunk, std::chrono::duration<double> elapsed,
                                       const std::string& error) const {
  const std::string text = beginning(chunk, elapsed);
  board->fail(text + ": " + error);
  return text + ", as a peer has died or does something else: " + board->ask_who_is_alive() + ". " + error;
}

std::string LatenessReport::beginning(const Chunk& chunk, std::chrono::duration<double> elapsed) const {
  std::ostringstream text;
  text.precision(3);
  text << "rank " << rank << ": " << describe(chunk) << " failed after " << elapsed.count() << " s (timeout "
       << std::chrono::duration<double>(timeout).count() << " s)";
  return text.str();
}

void report_to_board(LaneOptions& options, std::shared_ptr<ProgressBoard> board) {
  options.op_begins = [board, also = std::move(options.op_begins)](std::int64_t sequence, std::size_t op) {
    board->op_begins();
    if (also) also(sequence, op);
  };
  options.op_ends = [board, also = std::move(options.op_ends)](std::int64_t sequence, std::size_t op) {
    board->op_ends();
    if (also) also(sequence, op);
  };
}

}  // namespace dreamddp
