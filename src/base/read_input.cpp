#include "base/read_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench {
namespace {

/// What is no regular file; "" for one.
std::string other_kind(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "is a folder";
  if (S_ISFIFO(mode)) return "is a pipe, as <(...) is; write what comes out of it to a regular file first";
  if (S_ISSOCK(mode)) return "is a socket, and no regular file";
  return "is a device, and no regular file";
}

std::string why_not(int error) {
  return error == ENOENT || error == ENOTDIR ? "there is no such file"
                                             : fmt::format("cannot be read: {}", std::strerror(error));
}

}  // namespace

Input::Input(std::filesystem::path path, std::string_view expected) : path_(std::move(path)), expected_(expected) {
  struct stat status {};
  // Before it is opened, which alone may do something to a device; and after, because another may be there by then.
  if (::stat(path_.c_str(), &status) != 0) fail(why_not(errno));
  if (const std::string kind = other_kind(status.st_mode); !kind.empty()) fail(kind);
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file_ < 0) fail(why_not(errno));
  const bool known = ::fstat(file_, &status) == 0;
  const std::string why = known ? other_kind(status.st_mode) : why_not(errno);
  if (!why.empty()) {
    ::close(std::exchange(file_, -1));
    fail(why);
  }
  bytes_ = status.st_size;
}

Input::~Input() {
  if (file_ >= 0) ::close(file_);
}

int Input::release() { return std::exchange(file_, -1); }

void Input::fail(const std::string& why) const {
  throw ConfigError(fmt::format("{}: {}{}{}.", path_.string(), why, expected_.empty() ? "" : "; ", expected_));
}

std::string Input::text(std::int64_t most) const {
  const auto refuse = [&](std::int64_t bytes) {
    fail(fmt::format("has {}, and of such a file at most {} are read", format_bytes(bytes), format_bytes(most)));
  };
  if (bytes_ > most) refuse(bytes_);  // before anything of it is in memory
  std::string text = read(most + 1);
  if (std::cmp_greater(text.size(), most)) refuse(std::ssize(text));
  return text;
}

std::string Input::beginning(std::size_t most) const { return read(static_cast<std::int64_t>(most)); }

std::string Input::part(std::int64_t offset, std::size_t most) const {
  return read(static_cast<std::int64_t>(most), offset);
}

std::string Input::read(std::int64_t most, std::int64_t offset) const {
  constexpr std::int64_t kPiece = 1 << 20;  // files of /proc say that they have no bytes
  std::string text;
  for (;;) {
    const auto have = std::ssize(text);
    const std::int64_t wanted = std::min(most - have, std::max(kPiece, bytes_ - offset - have));
    if (wanted <= 0) return text;
    text.resize(static_cast<std::size_t>(have + wanted));
    ssize_t got = 0;
    do {
      got = ::pread(file_, text.data() + have, static_cast<std::size_t>(wanted), offset + have);
    } while (got < 0 && errno == EINTR);
    if (got < 0) fail(fmt::format("cannot be read: {}", std::strerror(errno)));
    text.resize(static_cast<std::size_t>(have + got));
    if (got == 0) return text;
  }
}

std::string read_input(const std::filesystem::path& path, std::int64_t most, std::string_view expected) {
  return Input(path, expected).text(most);
}

}  // namespace fsdpbench
