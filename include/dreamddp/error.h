// Errors of the library.
//
// There is one error system: exceptions. Bad input (a file, a flag, an argument) throws
// std::invalid_argument, which Python sees as ValueError. A failure of the run itself (a dead peer, a
// timeout) throws SyncError, which Python sees as dreamddp.SyncError, a RuntimeError.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace dreamddp {

/// A synchronisation could not be carried out: a peer is dead, late or does something else.
///
/// After it every coordinate of every parameter holds its local value or the mean over workers,
/// nothing in between (design section 8).
class SyncError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What is wrong with one piece of user input.
struct BadInput {
  std::string field;    ///< where: "layers[2] 'h.0': forward", "--bandwidth"
  std::string value;    ///< what was given, as the user wrote it
  std::string allowed;  ///< the allowed range: "a number of at least 0"
  std::string remedy;   ///< what to change, never empty: "Use 1 for a single machine"
};

/// Throws std::invalid_argument with the text "<field>: got <value>; expected <allowed>. <remedy>".
[[noreturn]] void reject(const BadInput& input);

}  // namespace dreamddp
