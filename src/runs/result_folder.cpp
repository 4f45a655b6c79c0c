#include "runs/result_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_lock.h"
#include "config/write.h"
#include "runs/result_file.h"
#include "runs/result_json.h"
#include "runs/trace_files.h"
#include "trace/whole_file.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// Makes the missing parents of `folder` and adds them to `made`.
void make_parents(const fs::path& folder, std::vector<fs::path>& made) {
  const fs::path parent = folder.parent_path();
  std::error_code error;
  if (parent.empty() || fs::exists(parent, error)) return;
  make_parents(parent, made);
  if (fs::create_directory(parent, error)) made.push_back(parent);
}

/// True: it was not there before. False: it was, or cannot be made.
bool make(const fs::path& folder, std::vector<fs::path>& made, std::error_code& error) {
  make_parents(folder, made);
  if (!fs::create_directory(folder, error)) return false;
  made.push_back(folder);
  return true;
}

/// Two runs may start in the same second, also in two processes: who makes the folder has it.
fs::path make_new(const std::string& stem, std::vector<fs::path>& made, std::error_code& error) {
  const std::string name = fmt::format("{}-{:%Y%m%d-%H%M%S}", stem, fmt::localtime(std::time(nullptr)));
  fs::path folder = fs::path("runs") / name;
  for (int i = 2; !make(folder, made, error) && !error; ++i) folder = fs::path("runs") / fmt::format("{}-{}", name, i);
  return folder;
}

/// By a file without a name, where the file system has such: nothing is left of it, whenever the process is ended.
void prove_writable(const fs::path& folder) {
  const int nameless = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (nameless >= 0) {
    ::close(nameless);
    return;
  }
  std::string probe = (folder / ".probe-XXXXXX").string();
  const int file = mkstemp(probe.data());
  if (file < 0) throw OutputError(fmt::format("{}: cannot write there: {}.", folder.string(), std::strerror(errno)));
  close(file);
  unlink(probe.c_str());
}

/// The first of `names` that is in `folder`; empty: none.
std::string first_of(const fs::path& folder, std::initializer_list<const char*> names) {
  std::error_code error;
  for (const char* name : names) {
    if (fs::exists(folder / name, error)) return name;
  }
  return "";
}

void refuse_old_result(const fs::path& folder, OldResult old) {
  if (const std::string name = first_of(folder, {"sweep.json", "trials.jsonl"}); !name.empty()) {
    throw ConfigError(fmt::format("{} holds a sweep ({}); choose another folder with --out.", folder.string(), name));
  }
  if (old == OldResult::overwrite) return;
  if (const std::string name =
          first_of(folder, {"result.json", "compare.json", "what_if.json", "tune.json", "explain.json", "gate.json"});
      !name.empty()) {
    throw ConfigError(
        fmt::format("{} holds a result already ({}); choose another folder with --out, or replace it "
                    "with --overwrite.",
                    folder.string(), name));
  }
}

constexpr std::array<std::string_view, 17> kOurFiles{
    "result.json", "compare.json", "what_if.json",    "tune.json",      "explain.json",  "tuned.toml",
    "points.csv",  "gate.json",    "worst_step.json", "trials.jsonl",   "trace.json",    "config.toml",
    "summary.md",  "junit.xml",    "metrics.prom",    "pass_nodes.txt", "fail_nodes.txt"};

bool is_ours(std::string_view name) { return std::ranges::find(kOurFiles, name) != kOurFiles.end(); }
bool is_rank_file(std::string_view name) { return name.starts_with("rank_") && name.ends_with(".json.gz"); }

/// Name of a file while it is written (trace::WholeFile): left behind by a process that was killed.
std::string_view whole_name(std::string_view part) {
  constexpr std::size_t kEnd = sizeof(".XXXXXX") - 1;
  const bool hidden = part.size() > 1 + kEnd && part.front() == '.' && part[part.size() - kEnd] == '.';
  return hidden ? part.substr(1, part.size() - 1 - kEnd) : std::string_view();
}

/// Removes files that run, compare and report have written; beside new results it would be taken for theirs.
void remove_ours(const fs::path& folder) {
  const auto remove_from = [](const fs::path& place, bool (*ours)(std::string_view)) {
    std::error_code error;
    std::vector<fs::path> all;
    for (const auto& file : fs::directory_iterator(place, error)) {
      const std::string name = file.path().filename().string();
      if (!file.is_directory(error) && (ours(name) || ours(whole_name(name)))) all.push_back(file.path());
    }
    for (const fs::path& file : all) fs::remove(file, error);
  };
  remove_from(folder, is_ours);
  remove_from(folder / "trace", is_rank_file);
  std::error_code error;
  fs::remove(folder / "trace", error);  // if nothing else is in it
  if (fs::exists(folder / "report/report.html", error)) fs::remove_all(folder / "report", error);
}

void remove_empty(const std::vector<fs::path>& made) {
  std::error_code error;
  for (auto folder = made.rbegin(); folder != made.rend(); ++folder) fs::remove(*folder, error);  // not if it is not
}

}  // namespace

void write_file(const fs::path& path, const std::string& text) {
  trace::WholeFile file(path.string());
  file.write(text);
  file.commit();
}

void refuse_old_file(const fs::path& path, bool overwrite, const std::string& option) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw OutputError(fmt::format("{}: is a folder; expected a file: choose another {}.", path.string(), option));
  }
  if (overwrite || !path_exists(path)) return;
  throw ConfigError(
      fmt::format("{} is there already; replace it with --overwrite, or choose another {}.", path.string(), option));
}

void refuse_file_as_folder(const fs::path& folder) {
  std::error_code error;
  for (fs::path path = folder; path.has_relative_path(); path = path.parent_path()) {
    if (!fs::exists(path, error) || fs::is_directory(path, error)) continue;
    throw OutputError(fmt::format("{}: {}is a file; expected a folder for the results, which is made if need be.",
                                  folder.string(), path == folder ? "" : path.string() + " "));
  }
}

namespace {

void refuse_read(const fs::path& out, const std::vector<std::string>& reads) {
  std::error_code error;
  const fs::path folder = fs::canonical(out, error);
  for (const std::string& given : reads) {
    const fs::path read = fs::canonical(given, error);
    if (error || (read != folder && read.parent_path() != folder)) continue;
    throw ConfigError(
        fmt::format("--out {} is what the answer is from, and would be lost; choose another folder.", out.string()));
  }
}

}  // namespace

ResultFolder::ResultFolder(const std::string& stem, const std::string& out, OldResult old,
                           const std::vector<std::string>& reads)
    : path_(out) {
  try {
    refuse_file_as_folder(path_);
    std::error_code error;
    if (old == OldResult::overwrite && fs::exists(path_ / "result.json", error)) refuse_read(path_, reads);
    if (out.empty()) {
      path_ = make_new(stem, made_, error);
    } else {
      make(path_, made_, error);
    }
    if (error) {
      throw OutputError(fmt::format("{}: the result folder cannot be made: {}.", path_.string(), error.message()));
    }
    // A folder that this one made and another process locked first is the other's: it must not be removed, though
    // empty.
    const std::vector<fs::path> made = std::exchange(made_, {});
    lock_ =
        open_locked_folder(path_, "another process is writing its results there; choose another folder with --out.");
    made_ = made;
    if (old != OldResult::keep) refuse_old_result(path_, old);
    prove_writable(path_);
    if (old != OldResult::keep) remove_ours(path_);
  } catch (...) {
    remove_empty(made_);
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
}

ResultFolder::~ResultFolder() {
  remove_empty(made_);
  ::close(lock_);
}

void write_result(const fs::path& folder, const engine::Setup& setup, const Trial& trial) {
  AllFiles files;
  files.write([&] { write_file(folder / "result.json", result_text(result_json(setup, trial))); });
  files.write([&] { write_file(folder / "config.toml", config::to_toml(setup.config)); });
  if (trial.metrics) files.write([&] { write_trace_files(folder, setup, trial); });
  files.finish();
}

}  // namespace fsdpbench::app
