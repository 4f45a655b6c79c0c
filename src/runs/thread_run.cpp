#include "runs/thread_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "launch/abort.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "runs/result_json.h"
#include "runs/run_rescue.h"

namespace fsdpbench::app {
namespace {

/// Saves, and says so; what cannot be saved is said, too.
void save(RunRescue& rescue, const launch::JobFailure* failure) {
  try {
    if (const std::string saved = rescue.save(failure); !saved.empty()) console().warning(saved);
  } catch (const std::exception& error) {
    console().warning(fmt::format("what was measured could not be saved: {}", error.what()));
  }
}

/// A lane says which rank it is of: "rank 2, lane compute, op forward 1: …"; a host thread has left a note.
int rank_that_failed(std::string_view message, const RunRescue& rescue) {
  constexpr std::string_view kRank = "rank ";
  int rank = -1;
  if (message.starts_with(kRank)) {
    std::from_chars(message.data() + kRank.size(), message.data() + message.size(), rank);
  }
  return rank >= 0 ? rank : std::max(0, rescue.failed_rank());
}

}  // namespace

Train train_on_kept_threads(std::filesystem::path folder, World world) {
  return [folder = std::move(folder), world = std::move(world)](const Cell& cell, const engine::RunHooks& given) {
    const auto ranks = static_cast<int>(cell.setup.config.mesh.ranks);
    RunRescue rescue(folder, folder.empty() ? nlohmann::json() : result_frame(cell.setup, world), cell.setup, 0, ranks);
    const auto measured = [&] { return !rescue.done()->snapshot().trace.steps.empty(); };
    std::atomic<bool> over = false;
    launch::Abort now;
    const AfterInterrupt cuts(kPatienceWithSteps_s, [&] {
      if (!over) now.set(std::make_exception_ptr(Interrupted()));
    });
    const AfterInterrupt ends(kPatienceWithAll_s, [&] {
      if (over) return;
      console().warning("interrupted in the middle of a step");
      if (measured()) save(rescue, nullptr);
      _exit(static_cast<int>(ExitCode::interrupted));
    });
    engine::RunHooks hooks = given;
    hooks.done = rescue.done();
    hooks.interrupt = &now;
    hooks.steps_over = [&] { over = true; };
    try {
      engine::Measurement measurement = train_on_threads(cell, hooks);
      over = true;  // also if it was cut short
      rescue.close();
      return measurement;
    } catch (const std::exception& error) {
      if (!measured()) throw;
      const launch::JobFailure failure{rank_that_failed(error.what(), rescue), false, error.what()};
      save(rescue, &failure);
      throw;
    }
  };
}

}  // namespace fsdpbench::app
