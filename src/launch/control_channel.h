#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace fsdpbench::launch {

/// Why a job cannot go on.
struct JobFailure {
  int rank = -1;        ///< the rank at fault
  bool died = false;    ///< it ended without a word: killed, crashed, or its host is gone
  std::string message;  ///< a whole sentence that names the rank
  /// With which the job ends: bad_input if that rank refused the configuration, which says nothing of its machine.
  ExitCode code = ExitCode::rank_failed;
};

/// The code of a job that `failure` ends: bad_input of a ConfigError, else rank_failed.
ExitCode job_code(const std::exception_ptr& failure);

/// Small messages between rank 0 and every other rank, beside the data: decisions, results, and the news that a rank
/// has failed or died, which reaches all within seconds. A star: of sender and receiver one is rank 0.
/// Thread-safe. Payloads are bytes.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  /// This process among size() of the job.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Returns at once. Messages of one sender on one topic arrive in order.
  virtual void send(int to, std::string_view topic, std::string payload) = 0;
  /// The next message of `from` on `topic`; blocks until it is there. Throws Stopped with the failure's message if
  /// the job fails before that.
  virtual std::string receive(int from, std::string_view topic) = 0;
  /// As receive(), but at once: nothing if no message is there.
  virtual std::optional<std::string> poll(int from, std::string_view topic) = 0;

  /// Tells all ranks that this one cannot go on, and why. Messages already sent still arrive. Returns at once.
  virtual void fail(const std::string& message, ExitCode code) = 0;
  void fail(const std::string& message) { fail(message, ExitCode::rank_failed); }
  /// The first failure this rank has heard of, its own included.
  virtual std::optional<JobFailure> failure() const = 0;
  /// `listener` is called once, on another thread, when a failure becomes known; at once if one is. Empty: nobody.
  /// It must return soon: no message is read meanwhile. When this returns, the listener before is not running and will
  /// not be called.
  virtual void on_failure(std::function<void(const JobFailure&)> listener) = 0;
};

/// Rank 0 gets everybody's payload by rank; the others get an empty list. Collective.
std::vector<std::string> gather(ControlChannel& channel, std::string_view topic, std::string mine);
/// Everybody gets rank 0's payload. Collective.
std::string broadcast(ControlChannel& channel, std::string_view topic, std::string from_root);
/// Returns when all ranks have called it. Collective.
void barrier(ControlChannel& channel);

}  // namespace fsdpbench::launch
