#include "runs/disk_need.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "engine/checkpoint_saver.h"
#include "runs/trace_files.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// Of result.json and config.toml, by what grows: each number stands on a line of its own. Lengths as json_text()
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

}  // namespace fsdpbench::app
