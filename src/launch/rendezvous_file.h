#pragma once

#include <optional>
#include <string>

#include "launch/joining.h"

namespace fsdpbench::launch {

/// The file in which rank 0 says where it listens and what the job's secret is, while the ranks gather. Only its user
/// may read it (mode 600). It appears with all it says, replaces one that an earlier job has left, and goes with this
/// object.
class RendezvousFile {
 public:
  /// Throws BackendError if it cannot be written.
  RendezvousFile(std::string path, const Meeting& meeting);
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

 private:
  const std::string path_;
};

/// What the file at `path` says now; nothing, with the reason, if there is none, or if it is no regular file of this
/// user's alone: then somebody else may have put it there.
std::optional<Meeting> read_rendezvous(const std::string& path, std::string& reason);
/// What such a file says; nothing if it is none.
std::optional<Meeting> parse_rendezvous(std::string_view text);

/// "<folder>/fsdpbench-<job>-rendezvous", where all that is not fit for a file name is replaced.
std::string rendezvous_path(const std::string& folder, const std::string& job);
/// A folder of this host that only this user may use: XDG_RUNTIME_DIR of `environment`, or a folder of its own in
/// /tmp, which is made if it is missing. Throws BackendError if that is not this user's alone.
std::string private_folder(const Environment& environment);

/// Joins where ranks share nothing but the folder `folder`. A file that a job before has left is found out, because
/// nobody who answers there has its secret.
Joined join_through_file(const std::string& folder, const Placement& placement, const Introduction& self,
                         Deadline deadline, const Environment& environment);

}  // namespace fsdpbench::launch
