#include "app/report/result_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// A name that no run has used yet: two runs may start in the same second.
fs::path unused_folder(const std::string& profile) {
  const std::string name =
      fmt::format("{}-{:%Y%m%d-%H%M%S}", fs::path(profile).stem().string(), fmt::localtime(std::time(nullptr)));
  fs::path folder = fs::path("runs") / name;
  for (int i = 2; fs::exists(folder); ++i) folder = fs::path("runs") / fmt::format("{}-{}", name, i);
  return folder;
}

}  // namespace

fs::path make_result_folder(const std::string& profile, const std::string& out) {
  const fs::path folder = out.empty() ? unused_folder(profile) : fs::path(out);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    throw OutputError(fmt::format("{}: the result folder cannot be made: {}.", folder.string(),
                                  error ? error.message() : "there is a file of that name"));
  }
  std::string probe = (folder / ".probe-XXXXXX").string();
  const int file = mkstemp(probe.data());
  if (file < 0) throw OutputError(fmt::format("{}: cannot write there: {}.", folder.string(), std::strerror(errno)));
  close(file);
  unlink(probe.c_str());
  return folder;
}

}  // namespace fsdpbench::app
