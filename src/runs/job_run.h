#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "launch/session.h"
#include "record/json_part.h"
#include "runs/job_watch.h"
#include "runs/trial.h"

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

/// Trains all ranks on threads of this process, for trials measured in `world`, and keeps what is done whatever
/// happens. A signal of the user's ends the run after its step, or in the middle of it if that takes longer than
/// kPatienceWithSteps_s. If a rank throws, what the ranks had done is saved in `folder` (empty: nowhere) before that is
/// rethrown. If a kernel is still busy kPatienceWithAll_s after the signal, the same is saved and the process ends
/// here.
Train train_on_kept_threads(std::filesystem::path folder, World world);

/// Trains on all processes of `job`, whose rank 0 this is, for trials measured in `world`. What it returns gives a cell
/// to all others, waits until they are ready for it, and trains. Then it throws the Error of the first rank that is not
/// ready; nobody has begun, and the job can go on with another cell. Every rank saves what it has done in `folder` if
/// the job fails (empty: nowhere). `job` must outlive the result.
Train train_on_job(Job& job, std::filesystem::path folder, World world);

/// Rank 0: the job is over, with this exit code. The others leave.
void announce_end(Job& job, int code);

/// Something else than training that all ranks do together: the part of every rank but 0. Its errors end the job.
using Service = std::function<void(Job& job, const JsonPart& order)>;
/// Services by name.
using Services = std::map<std::string, Service, std::less<>>;

/// Rank 0: all others begin the service of that name, with this order, and rank 0 does its own part. Returns at once.
void order_service(Job& job, const std::string& name, const nlohmann::json& order);

/// The part of every rank but 0: prepares and trains what rank 0 announces, and does the services that it orders, until
/// it announces the end. Returns the exit code that it gave.
int serve(Job& job, const Services& services);

}  // namespace fsdpbench::app
