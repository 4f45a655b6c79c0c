#include "launch/rendezvous_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>

#include "launch/host_identity.h"
#include "launch/variables.h"

namespace fsdpbench::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitle = "fsdpbench-rendezvous-2";
constexpr std::size_t kMostFileBytes = std::size_t{16} << 10;
constexpr std::size_t kMostHosts = 64;

/// Open files are sockets' kin: this closes one.
using File = Socket;

/// Whether nobody but this user may use it.
bool ours_alone(const struct stat& state) {
  return state.st_uid == geteuid() && (state.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string read_all(int file) {
  std::string text(kMostFileBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

/// The words of a text, and where it ends.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}
  std::string_view next() {
    const std::size_t begin = std::min(text_.find_first_not_of(" \n"), text_.size());
    text_.remove_prefix(begin);
    const std::size_t size = std::min(text_.find_first_of(" \n"), text_.size());
    const std::string_view word = text_.substr(0, size);
    text_.remove_prefix(size);
    return word;
  }

 private:
  std::string_view text_;
};

std::optional<long> number_between(std::string_view word, long least, long most) {
  long value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < least || value > most) return std::nullopt;
  return value;
}

}  // namespace

RendezvousFile::RendezvousFile(std::string path, const Meeting& meeting) : path_(std::move(path)) {
  // A name that nobody can have put there before: O_EXCL follows no link.
  const std::string draft = fmt::format("{}.{}", path_, random_token());
  std::string text = fmt::format("{} {} {} {}", kTitle, meeting.secret.text(), meeting.port, getpid());
  for (const std::string& host : meeting.hosts) text += ' ' + host;
  text += '\n';
  File file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  bool written = file && write_all(file.fd(), text);
  int why = written ? 0 : errno;
  file.close();
  if (written && ::rename(draft.c_str(), path_.c_str()) != 0) {
    why = errno;
    written = false;
  }
  if (written) return;
  (void)::unlink(draft.c_str());
  throw BackendError(fmt::format("rank 0 cannot write the rendezvous file '{}' (FSDPBENCH_RENDEZVOUS): {}", path_,
                                 std::strerror(why)));
}

RendezvousFile::~RendezvousFile() { (void)::unlink(path_.c_str()); }

std::optional<Meeting> parse_rendezvous(std::string_view text) {
  if (text.size() > kMostFileBytes || !text.ends_with('\n')) return std::nullopt;
  Words words(text);
  if (words.next() != kTitle) return std::nullopt;
  const std::optional<Secret> secret = Secret::from_text(words.next());
  const std::optional<long> port = number_between(words.next(), 1, kMostPort);
  const std::optional<long> pid = number_between(words.next(), 1, std::numeric_limits<pid_t>::max());
  if (!secret || !port || !pid) return std::nullopt;
  Meeting meeting{{}, static_cast<int>(*port), *secret, fmt::format("pid {}", *pid)};
  for (std::string_view host = words.next(); !host.empty(); host = words.next()) meeting.hosts.emplace_back(host);
  if (meeting.hosts.empty() || meeting.hosts.size() > kMostHosts) return std::nullopt;
  return meeting;
}

std::optional<Meeting> read_rendezvous(const std::string& path, std::string& reason) {
  const File file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    reason = errno == ENOENT ? fmt::format("there is no rendezvous file '{}' so far (FSDPBENCH_RENDEZVOUS)", path)
                             : fmt::format("the rendezvous file '{}' cannot be read: {}", path, std::strerror(errno));
    return std::nullopt;
  }
  struct stat state {};
  if (::fstat(file.fd(), &state) != 0 || !S_ISREG(state.st_mode) || !ours_alone(state)) {
    reason = fmt::format("'{}' is not trusted: it is no file that only this user may read and write", path);
    return std::nullopt;
  }
  std::optional<Meeting> meeting = parse_rendezvous(read_all(file.fd()));
  if (!meeting) {
    reason = fmt::format("'{}' is no rendezvous file of this version of fsdpbench", path);
    return std::nullopt;
  }
  meeting->source = fmt::format("'{}', written by {}", path, meeting->source);
  return meeting;
}

std::string rendezvous_path(const std::string& folder, const std::string& job) {
  std::string name = "fsdpbench-" + (job.empty() ? "job" : job) + "-rendezvous";
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  return (fs::path(folder) / name).string();
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

Joined join_through_file(const std::string& folder, const Placement& placement, const Introduction& self,
                         Deadline deadline, const Environment& environment) {
  const std::string path = rendezvous_path(folder, placement.job);
  if (placement.rank != 0) {
    return keep_trying([&](std::string& reason) { return read_rendezvous(path, reason); }, self, deadline);
  }
  OpenDoor door = open_door(placement.local_ranks == placement.ranks, environment);
  const RendezvousFile file(path, door.meeting);
  return take_in_all(std::move(door.listener), self, door.meeting.secret, deadline);
}

}  // namespace fsdpbench::launch
