#include "backend/cuda/nccl/nccl_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "backend/cuda/nccl/users_nccl_log.h"

namespace fsdpbench::backend::cuda {
namespace {

/// A pipe, and nothing stays behind however the process ends. A thread empties it, or NCCL would wait for room.
class LogPipe {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(asked_, true)) return;
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      why_not_ = std::string("not read: there is no pipe for NCCL's log: ") + std::strerror(errno) + ".";
      return;
    }
    from_ = ends[0];
    fcntl(from_, F_SETFL, O_NONBLOCK);
    user_ = std::make_unique<UsersNcclLog>();
    setenv("NCCL_DEBUG", user_->level().c_str(), 1);
    setenv("NCCL_DEBUG_SUBSYS", user_->subsystems().c_str(), 1);
    // NCCL opens it once more; this end stays open, so that it can.
    setenv("NCCL_DEBUG_FILE", ("/proc/self/fd/" + std::to_string(ends[1])).c_str(), 1);
    std::thread([this] { follow(); }).detach();
  }

  NcclLog read() {
    const std::lock_guard lock(mutex_);
    if (from_ < 0) return {"", why_not_};
    take();
    return {text_ + line_, ""};
  }

 private:
  static constexpr std::size_t kMostBytes = 16 << 20;

  [[noreturn]] void follow() {
    while (true) {
      pollfd waiting{.fd = from_, .events = POLLIN, .revents = 0};
      poll(&waiting, 1, -1);
      const std::lock_guard lock(mutex_);
      take();
    }
  }

  /// All that is in the pipe now.
  void take() {
    std::array<char, 1 << 14> part;
    for (ssize_t got = 0; (got = ::read(from_, part.data(), part.size())) > 0;) {
      std::string_view rest(part.data(), static_cast<std::size_t>(got));
      for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
        line_ += rest.substr(0, end);
        keep(line_);
        line_.clear();
      }
      line_ += rest;
    }
  }

  void keep(const std::string& line) {
    user_->show(line);
    if (text_.size() + line.size() >= kMostBytes) return;
    // A step's collectives are the next one's.
    const std::size_t said = line.find("NCCL INFO");
    if (line.find(" Bytes -> ") != std::string::npos && said != std::string::npos &&
        !chosen_.insert(line.substr(said)).second) {
      return;
    }
    text_ += line;
    text_ += '\n';
  }

  std::mutex mutex_;
  bool asked_ = false;
  std::string why_not_ = "not read: NCCL was not used.";
  int from_ = -1;
  std::unique_ptr<UsersNcclLog> user_;
  std::string line_;  ///< not at its end yet
  std::string text_;
  std::set<std::string> chosen_;
};

LogPipe& log_pipe() {
  static auto& pipe = *new LogPipe;  // its thread runs to the end of the process
  return pipe;
}

}  // namespace

void open_nccl_log() {
  log_pipe().open();
  static const int at_exit = std::atexit([] { read_nccl_log(); });  // the user's last lines
  static_cast<void>(at_exit);
}

NcclLog read_nccl_log() { return log_pipe().read(); }

}  // namespace fsdpbench::backend::cuda
