#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "launch/session.h"
#include "runs/job_watch.h"

namespace fsdpbench::app {

/// A whole configuration as text for another process, a `table.key = value` a line. Unlike a profile it needs no file
/// of a preset to be read.
std::string to_message(const config::RunConfig& config);

/// Reads what to_message() wrote. Throws BackendError if a line is not of that kind.
config::RunConfig config_from_message(std::string_view text);

/// A job of several processes, one rank each, as one of them sees it. Rank 0 executes the command; the others serve it
/// (job_run.h). Made before any other thread.
class Job {
 public:
  /// Joins the others. Throws BackendError if they do not all come.
  explicit Job(const launch::Placement& placement);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return session_->placement().rank; }
  int ranks() const { return session_->placement().ranks; }
  bool leads() const { return rank() == 0; }
  /// Lives as long as this, as do the next two.
  launch::Session& session() const { return *session_; }
  launch::ControlChannel& channel() { return session_->control(); }
  JobWatch& watch() { return watch_; }

  /// "4 ranks: one process each, as torchrun (RANK, WORLD_SIZE) says; they communicate by TCP sockets".
  std::string headline() const;

 private:
  std::unique_ptr<launch::Session> session_;
  JobWatch watch_;
};

}  // namespace fsdpbench::app
