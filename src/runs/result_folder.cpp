#include "runs/result_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>
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

#include "base/bytes.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "config/write.h"
#include "engine/checkpoint_folder.h"
#include "runs/result_json.h"
#include "runs/result_schema.h"
#include "runs/trace_files.h"
#include "runs/trial_log.h"
#include "trace/whole_file.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// Size of result.json and config.toml, by what grows: each number stands on a line of its own. Lengths as json_text()
/// writes them, with all digits that such a number can have.
double numbers_bytes(const engine::Setup& p) {
  constexpr double kFixed = 24 << 10;   // configuration twice, world, metrics, causes
  constexpr double kStepTime = 24;      // "          1234.567891,\n"
  constexpr double kLoss = 28;          // "      4.1234567891234567,\n"
  constexpr double kRank = 1200;        // its metrics, its device
  constexpr double kCollective = 640;   // 13 lines
  constexpr double kUnit = 640;         // in "units", and in what is alive at the peak
  constexpr double kMemoryLevel = 220;  // a time and six categories
  constexpr double kInterval = 180;     // in which nothing was computed: at most two a collective or wait
  const schedule::Schedule& steady = p.schedules.steady();
  const auto is_collective = [](const schedule::Op& op) { return op.is_collective(); };
  const auto moves_memory = [](const schedule::Op& op) { return !op.allocates.empty() || !op.frees.empty(); };
  const auto collectives = static_cast<double>(std::ranges::count_if(steady.ops, is_collective));
  const auto levels = static_cast<double>(std::ranges::count_if(steady.ops, moves_memory));
  const auto steps = static_cast<double>(p.config.train.steps), warmup = static_cast<double>(p.config.train.warmup);
  const double ranks = recorded_ranks(p);
  return kFixed + kStepTime * steps * (ranks + 1) + kLoss * (steps + warmup) + kRank * ranks +
         (kCollective + 2 * kInterval) * collectives + kUnit * static_cast<double>(p.plan.units.size()) +
         kMemoryLevel * 2 * levels;
}

}  // namespace

DiskNeed predict_disk_need(const engine::Setup& setup) {
  const TraceBytes traces = predict_trace_bytes(setup);
  const auto numbers = static_cast<std::int64_t>(std::min(numbers_bytes(setup), 4e18));
  DiskNeed need{traces.all + numbers, traces.timeline, "trace.json"};
  if (traces.rank_file > need.largest) need = {need.all, traces.rank_file, "a rank's trace"};
  if (numbers > need.largest) need = {need.all, numbers, "result.json"};
  return need;
}

void check_space(const fs::path& folder, std::int64_t bytes, const char* what, const char* advice) {
  std::error_code error;
  fs::path there = fs::absolute(folder, error);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  const fs::space_info space = fs::space(there, error);
  if (error || static_cast<std::uintmax_t>(bytes) <= space.available) return;
  throw ResourceError(fmt::format("{} need up to {} of disk, and {} are free in {}; {}.", what, format_bytes(bytes),
                                  format_bytes(static_cast<std::int64_t>(space.available)), folder.string(), advice));
}

void check_disk(const fs::path& folder, const engine::Setup& setup) {
  const DiskNeed need = predict_disk_need(setup);
  constexpr const char* kAdvice =
      "use fewer steps (train.steps) or ranks, or show fewer ranks in trace.json (trace.ranks)";
  check_space(folder, need.all, "the results of this run", kAdvice);
  if (const config::Checkpointing& c = setup.config.checkpoint; !c.folder.empty()) {
    // The newest is complete before the oldest goes.
    const std::int64_t bytes = engine::CheckpointSaver::file_bytes(setup.config, setup.plan);
    const bool several = c.every > 0 && c.every <= setup.config.train.warmup + setup.config.train.steps;
    check_space(c.folder, bytes * (several ? c.keep + 1 : 1), "the checkpoints of this run",
                "keep fewer (checkpoint.keep), or save elsewhere (checkpoint.folder)");
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<std::uint64_t>(need.largest) > limit.rlim_cur) {
    throw ResourceError(fmt::format("{} may need up to {}, and the limit on the size of files (`ulimit -f`) is {}; {}.",
                                    need.largest_name, format_bytes(need.largest),
                                    format_bytes(static_cast<std::int64_t>(limit.rlim_cur)), kAdvice));
  }
}
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
  const fs::path log = folder / "trials.jsonl";
  const bool begun = is_begun_log(log);
  const bool replaceable = begun || kind_of_log(log) == "comparison";
  if (const std::string name = first_of(folder, {"sweep.json", replaceable ? "sweep.json" : "trials.jsonl"});
      !name.empty()) {
    throw ConfigError(fmt::format("{} holds a sweep ({}); choose another folder with --out.", folder.string(), name));
  }
  if (old == OldResult::overwrite) return;
  if (const std::string name = first_of(folder, {"result.json", "compare.json", "what_if.json", "tune.json",
                                                 "explain.json", "gate.json", begun ? "compare.json" : "trials.jsonl"});
      !name.empty()) {
    throw ConfigError(
        fmt::format("{} holds a result already ({}); choose another folder with --out, or replace it "
                    "with --overwrite.",
                    folder.string(), name));
  }
}

constexpr std::array<std::string_view, 18> kOurFiles{
    "result.json", "compare.json", "what_if.json",    "tune.json",    "explain.json",   "tuned.toml",
    "points.csv",  "gate.json",    "worst_step.json", "trials.jsonl", "trace.json",     "config.toml",
    "SHA256SUMS",  "summary.md",   "junit.xml",       "metrics.prom", "pass_nodes.txt", "fail_nodes.txt"};

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
  if (overwrite || !path_exists(path)) return;
  throw ConfigError(
      fmt::format("{} is there already; replace it with --overwrite, or choose another {}.", path.string(), option));
}

ResultFolder::ResultFolder(const std::string& stem, const std::string& out, OldResult old) : path_(out) {
  try {
    std::error_code error;
    if (out.empty()) {
      path_ = make_new(stem, made_, error);
    } else {
      make(path_, made_, error);
    }
    if (error || !fs::is_directory(path_)) {
      throw OutputError(fmt::format("{}: the result folder cannot be made: {}.", path_.string(),
                                    error ? error.message() : "there is a file of that name"));
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
