#include "launch/rendezvous_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "launch/addresses.h"
#include "launch/socket.h"

namespace fsdpbench::launch {
namespace {

constexpr const char* kTitle = "fsdpbench-rendezvous-3";
constexpr std::size_t kMostFileBytes = std::size_t{16} << 10;

/// Open files are sockets' kin: this closes one.
using File = Socket;

/// Whether nobody but this user may use it.
bool ours_alone(const struct stat& state) {
  return state.st_uid == geteuid() && (state.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

RendezvousFile::RendezvousFile(std::string path, const Meeting& meeting) : path_(std::move(path)) {
  // A name that nobody can have put there before: O_EXCL follows no link.
  const std::string draft = fmt::format("{}.{}", path_, random_token());
  const std::string text =
      fmt::format("{} {} {} {}\n", kTitle, meeting.secret, meeting.port, fmt::join(meeting.hosts, " "));
  const File file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  errno = file ? ENOSPC : errno;  // of what is written in part
  if (file && ::write(file.fd(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::rename(draft.c_str(), path_.c_str()) == 0) {
    return;
  }
  const int why = errno;
  (void)::unlink(draft.c_str());
  throw BackendError(fmt::format("rank 0 cannot write the rendezvous file '{}' ({}): {}", path_, kRendezvousFolder,
                                 std::strerror(why)));
}

RendezvousFile::~RendezvousFile() { (void)::unlink(path_.c_str()); }

std::optional<Meeting> parse_rendezvous(const std::string& text) {
  std::istringstream words(text);
  std::string title;
  Meeting meeting;
  if (!text.ends_with('\n') || !(words >> title >> meeting.secret >> meeting.port) || title != kTitle)
    return std::nullopt;
  for (std::string host; words >> host;) meeting.hosts.push_back(host);
  if (meeting.port < 1 || meeting.port > kMostPort || meeting.hosts.empty()) return std::nullopt;
  return meeting;
}

std::optional<Meeting> read_rendezvous(const std::string& path, std::string& reason) {
  const File file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    reason = errno == ENOENT ? fmt::format("there is no rendezvous file '{}' so far ({})", path, kRendezvousFolder)
                             : fmt::format("the rendezvous file '{}' cannot be read: {}", path, std::strerror(errno));
    return std::nullopt;
  }
  struct stat state {};
  if (::fstat(file.fd(), &state) != 0 || !S_ISREG(state.st_mode) || !ours_alone(state)) {
    reason = fmt::format("'{}' is not trusted: it is no file that only this user may read and write", path);
    return std::nullopt;
  }
  std::string text(kMostFileBytes, '\0');
  text.resize(std::max<ssize_t>(0, ::read(file.fd(), text.data(), text.size())));
  std::optional<Meeting> meeting = parse_rendezvous(text);
  if (!meeting) reason = fmt::format("'{}' is no rendezvous file of this version of fsdpbench", path);
  return meeting;
}

std::string rendezvous_path(const std::string& folder, const std::string& job) {
  std::string name = "fsdpbench-" + (job.empty() ? "job" : job) + "-rendezvous";
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  return folder + "/" + name;
}

std::string private_folder(const Environment& environment) {
  const std::string runtime = Variables(environment).text("XDG_RUNTIME_DIR");
  const std::string folder = runtime.empty() ? fmt::format("/tmp/fsdpbench-{}", geteuid()) : runtime;
  if (runtime.empty()) (void)::mkdir(folder.c_str(), S_IRWXU);
  struct stat state {};
  if (::lstat(folder.c_str(), &state) == 0 && S_ISDIR(state.st_mode) && ours_alone(state)) return folder;
  throw BackendError(
      fmt::format("{}{} is no folder that only this user may use, so the ranks cannot share a secret there; "
                  "set FSDPBENCH_SECRET to the same random text for all of them",
                  folder, runtime.empty() ? "" : " (XDG_RUNTIME_DIR)"));
}

}  // namespace fsdpbench::launch
