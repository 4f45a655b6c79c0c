#pragma once

#include <stdexcept>
#include <string>

namespace fsdpbench {

/// Process exit codes; documented in README.md. Values never change meaning.
enum class ExitCode : int {
  ok = 0,
  failure = 1,         ///< anything not listed below
  bad_input = 2,       ///< profile, flag or data file is wrong
  no_resources = 3,    ///< memory or disk will not suffice
  cannot_write = 4,    ///< an output could not be written
  rank_failed = 5,     ///< a rank threw; all ranks were stopped; `watch`: the job that is watched hangs
  check_failed = 6,    ///< a measurement identity did not hold: the numbers must not be used
  slower = 7,          ///< `compare --fail-if-slower` or `gate` found something slower; not an error of the program
  diverged = 8,        ///< a loss or a final parameter is NaN or infinite
  wrong_data = 9,      ///< a collective's result was not what it should be
  below_floor = 10,    ///< slower than what was demanded of the machine; `watch`: a late rank or slow communicator
  inconclusive = 11,   ///< `accept`, `gate` or `watch` could not say: not measured, too uncertain, or unrated
  other_machine = 12,  ///< `gate`: the result is not of the machine, or not of what the baseline was measured on
  few_rated = 13,      ///< `accept`: nothing is amiss, but fewer rules could be rated than were asked for
  interrupted = 130,   ///< Ctrl-C, SIGTERM or SIGHUP; partial results were kept and marked
};

/// Base of every error that fsdpbench reports to its user. The message is a complete sentence that names
/// the file, the key or line, the value, and what would be valid.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::failure)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The user's profile, flag or data is wrong.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::bad_input) {}
};

/// Memory or disk will not suffice.
class ResourceError : public Error {
 public:
  explicit ResourceError(const std::string& message) : Error(message, ExitCode::no_resources) {}
};

/// An output file or folder could not be written.
class OutputError : public Error {
 public:
  explicit OutputError(const std::string& message) : Error(message, ExitCode::cannot_write) {}
};

/// A rank, lane or communicator failed while running; the first such message ends all ranks.
class BackendError : public Error {
 public:
  explicit BackendError(const std::string& message) : Error(message, ExitCode::rank_failed) {}
};

/// Ctrl-C or SIGTERM was seen and honoured.
class Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted", ExitCode::interrupted) {}
};

}  // namespace fsdpbench
