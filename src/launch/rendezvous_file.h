#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/addresses.h"

namespace fsdpbench::launch {

/// Address of rank 0, and the proof that it is ours.
struct Meeting {
  std::vector<std::string> hosts;  ///< names or numeric addresses, tried in turn
  int port = 0;
  std::string secret;
};

/// The file in which rank 0 says this while the ranks gather. Only its user may read it (mode 600). It appears with all
/// it says, replaces one that an earlier job has left, and goes with this object.
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

/// Contents of the file at `path`; nothing, with the reason, if there is none, or if it is no regular file of this
/// user's alone: then somebody else may have put it there.
std::optional<Meeting> read_rendezvous(const std::string& path, std::string& reason);
/// Contents of such a file; nothing if it is none.
std::optional<Meeting> parse_rendezvous(const std::string& text);

/// Names a folder that all ranks share.
inline constexpr const char* kRendezvousFolder = "FSDPBENCH_RENDEZVOUS";
/// "<folder>/fsdpbench-<job>-rendezvous", where all that is not fit for a file name is replaced.
std::string rendezvous_path(const std::string& folder, const std::string& job);
/// A folder of this host that only this user may use: XDG_RUNTIME_DIR of `environment`, or a folder of its own in
/// /tmp, which is made if it is missing. Throws BackendError if that is not this user's alone.
std::string private_folder(const Environment& environment);

}  // namespace fsdpbench::launch
