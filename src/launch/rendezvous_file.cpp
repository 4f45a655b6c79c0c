#include "launch/rendezvous_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launch/host_identity.h"

namespace fsdpbench::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitle = "fsdpbench-rendezvous-1";

/// The file while the ranks are gathering. All at once: nobody reads half of it.
class RendezvousFile {
 public:
  RendezvousFile(std::string path, const Meeting& meeting) : path_(std::move(path)) {
    const std::string draft = fmt::format("{}.{}.{}", path_, host_name(), getpid());
    std::ofstream out(draft);
    out << kTitle << ' ' << meeting.token << ' ' << meeting.port << ' ' << getpid();
    for (const std::string& host : meeting.hosts) out << ' ' << host;
    out << '\n';
    out.close();
    std::error_code error;
    if (out) fs::rename(draft, path_, error);
    if (!out || error) {
      std::error_code ignored;
      fs::remove(draft, ignored);
      throw BackendError(fmt::format("rank 0 cannot write the rendezvous file '{}' (FSDPBENCH_RENDEZVOUS): {}", path_,
                                     error ? error.message() : "the folder cannot be written"));
    }
  }
  ~RendezvousFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

 private:
  const std::string path_;
};

std::optional<Meeting> read(const std::string& path, std::string& reason) {
  std::ifstream file(path);
  Meeting meeting;
  std::string title;
  long pid = 0;
  file >> title >> meeting.token >> meeting.port >> pid;
  for (std::string host; file >> host;) meeting.hosts.push_back(host);
  meeting.source = fmt::format("'{}', written by pid {}", path, pid);
  if (title == kTitle && !meeting.hosts.empty()) return meeting;
  reason = fmt::format("there is no rendezvous file '{}' so far (FSDPBENCH_RENDEZVOUS)", path);
  return std::nullopt;
}

}  // namespace

std::string rendezvous_path(const std::string& folder, const std::string& job) {
  std::string name = "fsdpbench-" + (job.empty() ? "job" : job) + "-rendezvous";
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  return (fs::path(folder) / name).string();
}

Joined join_through_file(const std::string& folder, const Placement& placement, const Introduction& self,
                         Deadline deadline) {
  const std::string path = rendezvous_path(folder, placement.job);
  if (placement.rank != 0) {
    return keep_trying([&](std::string& reason) { return read(path, reason); }, self, deadline);
  }
  OpenDoor door = open_door(placement.local_ranks == placement.ranks);
  Introduction root = self;
  root.token = door.meeting.token;
  const RendezvousFile file(path, door.meeting);
  return take_in_all(std::move(door.listener), root, deadline);
}

}  // namespace fsdpbench::launch
