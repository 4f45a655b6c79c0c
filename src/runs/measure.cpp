#include "runs/measure.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "account/divergence.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/load.h"
#include "hardware/other_work.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "runs/job_run.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

bool out_of_threads(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

std::string words_of(const std::system_error& error) {
  if (!out_of_threads(error)) return error.what();
  // The system says the same of both.
  constexpr std::int64_t kStack = std::int64_t{16} << 20;
  if (const auto left = address_space_left(); left && *left < kStack) {
    return fmt::format("no address space is left for another thread's stack: ulimit -v leaves {}", format_bytes(*left));
  }
  return "the system starts no more threads: see ulimit -u, and pids.max of its control group";
}

/// As open_cell(), but a signal that comes meanwhile is obeyed although the command keeps what is done: nothing is
/// here.
Cell plan_cell(const config::RunConfig& config, Job* job) {
  if (job != nullptr) {
    job->watch().doing("preparing a run", JobWatch::Work::may_be_cut);
    return open_cell(config, local_ranks(job));
  }
  const AfterInterrupt ends(kPatienceWithAll_s, [] {
    console().warning("interrupted; finished trials are kept, and the same command continues from there");
    _exit(static_cast<int>(ExitCode::interrupted));
  });
  return open_cell(config);
}

}  // namespace

const launch::Placement* placement_of(const Job* job) { return job == nullptr ? nullptr : &job->session().placement(); }

int local_ranks(const Job* job) { return job == nullptr ? 0 : placement_of(job)->local_ranks; }

Trial measure(const Cell& cell, const engine::RunHooks& hooks, Job* job, const std::filesystem::path& folder,
              std::vector<std::string> command_line) {
  const launch::Session* session = job == nullptr ? nullptr : &job->session();
  const bool simulated = cell.setup.config.device.backend == config::BackendKind::virtual_;
  if (job != nullptr && simulated) {
    throw ConfigError(
        "device.backend = \"virtual\" needs no processes, and these are several; start it without a launcher.");
  }
  World world = current_world(cell.setup.config, session, std::move(command_line));
  if (!simulated) {
    const Train train = job == nullptr ? train_on_kept_threads(folder, world) : train_on_job(*job, folder, world);
    return run_trial(cell, hooks, std::move(world), train);
  }
  // A simulation is over at once or computed for long, then with the metrics of all ranks; nothing of it is worth
  // keeping, because the same command computes it again.
  const AfterInterrupt ends(kPatienceWithAll_s, [&folder] {
    console().warning("interrupted: of a simulation that was not finished nothing is kept");
    std::error_code error;
    std::filesystem::remove(folder, error);  // if it is empty
    _exit(static_cast<int>(ExitCode::interrupted));
  });
  return run_trial(cell, hooks, std::move(world));
}

Trial whole_trial(const config::RunConfig& config, Job* job, const std::filesystem::path& keep,
                  const std::function<bool()>& enough) {
  const std::int64_t begin = now_ns();
  config::RunConfig trained = config;
  trained.checkpoint = {};  // trials of several cells would save into one folder, and each begins anew
  const Cell cell = plan_cell(trained, job);
  engine::RunHooks hooks;
  hooks.stop = [&] { return interrupt_requested() || (enough && enough()); };
  Trial trial = measure(cell, hooks, job, {}, {});
  if (trial.interrupted && (!enough || interrupt_requested())) throw Interrupted();
  if (!trial.diverged_because.empty()) throw Error("training diverged: " + trial.diverged_because, ExitCode::diverged);
  trial.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  if (!keep.empty()) {
    const ResultFolder folder("", keep.string(), OldResult::overwrite);
    write_result(folder.path(), cell.setup, trial);
  }
  return trial;
}

SweepGrid expand_for_job(config::SweepFile file, std::vector<std::string> overrides, const Job* job) {
  if (job == nullptr) return expand_sweep(std::move(file), overrides);
  const auto is_ranks = [](const auto& entry) { return entry.first == "mesh.ranks"; };
  const bool varies = std::ranges::any_of(file.axes, [](const config::SweepAxis& a) { return a.key == "mesh.ranks"; });
  const bool fixed = std::ranges::any_of(file.set, is_ranks) ||
                     std::ranges::any_of(
                         overrides, [](const std::string& s) { return config::read_override(s).name == "mesh.ranks"; });
  if (!varies && !fixed) overrides.push_back(fmt::format("mesh.ranks={}", job->ranks()));
  SweepGrid grid = expand_sweep(std::move(file), overrides);
  if (!varies) load_config(grid.file.base, grid.base_overrides, placement_of(job));  // says at once if no cell can run
  return grid;
}

config::RunConfig cell_config(const SweepGrid& grid, const SweepCell& cell, const Job* job) {
  std::vector<std::string> overrides = grid.base_overrides;
  overrides.insert(overrides.end(), cell.overrides.begin(), cell.overrides.end());
  return load_config(grid.file.base, overrides, placement_of(job));
}

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.what(), error.code()};
  } catch (const std::bad_alloc&) {
    return {"memory ran out: the machine's, or what ulimit -v, ulimit -d or a control group grants",
            ExitCode::no_resources};
  } catch (const std::system_error& error) {
    return {words_of(error), out_of_threads(error) ? ExitCode::no_resources : ExitCode::failure};
  } catch (const std::exception& error) {
    return {error.what(), ExitCode::failure};
  }
}

int guarded(bool speaks, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception&) {
    const Failure failure = current_failure();
    if (speaks) console().error(failure.words);
    return static_cast<int>(failure.code);
  }
}

int in_job(const launch::Placement& placement, bool quiet, const Services& services,
           const std::function<int(Job&)>& lead) {
  Job job(placement);
  keep_what_is_done(!job.leads() || quiet);
  try {
    if (!job.leads()) return serve(job, services);
    console().info(job.headline());
    const int code = lead(job);
    announce_end(job, code);
    return code;
  } catch (const BackendError& error) {
    // A lost rank shows in the data first, and in the channel a moment later.
    if (const std::optional<int> code = job.watch().failure_code(1)) return *code;
    job.channel().fail(error.what());
    return job.watch().failure_code().value_or(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    if (const std::optional<int> code = job.watch().failure_code()) return *code;
    if (!job.leads()) {
      job.channel().fail(error.what(), launch::job_code(std::current_exception()));
      return job.watch().failure_code().value_or(static_cast<int>(ExitCode::rank_failed));
    }
    const int code = guarded(true, []() -> int { throw; });
    announce_end(job, code);
    return code;
  }
}

Progress::Progress(Console& console, std::int64_t steps, std::int64_t now_ns)
    : console_(console), steps_(steps), begin_ns_(now_ns), next_ns_(now_ns) {}

void Progress::update(std::int64_t done, const std::optional<engine::StepLoss>& loss, std::int64_t now_ns) {
  if (now_ns < next_ns_ && done != steps_) return;
  next_ns_ = now_ns + (console_.terminal() ? 100'000'000 : 2'000'000'000);
  std::string line = fmt::format("step {:>{}}/{}", done, fmt::formatted_size("{}", steps_), steps_);
  if (loss) {  // other ranks may not have told theirs of this step yet
    line += fmt::format("  loss {}", account::loss_text(loss->mean));
    if (loss->steps != done) line += fmt::format(" (step {})", loss->steps);
  }
  if (done > 0) {
    const double seconds = static_cast<double>(now_ns - begin_ns_) * 1e-9;
    line += done == steps_ ? fmt::format("  {}", format_duration(seconds))
                           : fmt::format("  {} left", format_duration(seconds / static_cast<double>(done) *
                                                                      static_cast<double>(steps_ - done)));
  }
  console_.progress(line);
}

std::string format_duration(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace fsdpbench::app
