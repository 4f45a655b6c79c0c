// The cells of a sweep as benchmark cases (docs/sweep.md):
//
//   bench_fsdp [--sweep FILE] [--set KEY=VALUE]... [--benchmark_…]
//
// One iteration is one trial, and its time is what the sweep counts a trial as: the median of its steps, each that of
// its slowest rank. So Google's median over repetitions is the sweep's over trials. Started by mpirun, torchrun or
// srun, rank 0 measures and reports, and the others serve it.
#include <fmt/format.h>

#include <benchmark/benchmark.h>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/find_file.h"
#include "config/sweep_file.h"
#include "config/write.h"
#include "launch/interrupt.h"
#include "library_context.h"
#include "record/console.h"
#include "runs/build_info.h"
#include "runs/job_run.h"
#include "runs/measure.h"
#include "runs/result_fields.h"

namespace fsdpbench {
namespace {

struct Arguments {
  std::string sweep = "model-batch-ranks";
  std::vector<std::string> overrides;
};

/// Takes out what Google Benchmark does not know. Throws ConfigError if an option has no value.
Arguments take_arguments(int* argc, char** argv) {
  Arguments arguments;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string_view text = argv[i];
    const auto value_of = [&](std::string_view option) -> std::optional<std::string> {
      if (!text.starts_with(option)) return std::nullopt;
      if (text.size() > option.size() && text[option.size()] == '=') return std::string(text.substr(option.size() + 1));
      if (text.size() > option.size()) return std::nullopt;
      if (i + 1 >= *argc) throw ConfigError(fmt::format("{} needs a value", option));
      return argv[++i];
    };
    if (const auto file = value_of("--sweep")) {
      arguments.sweep = *file;
    } else if (const auto entry = value_of("--set")) {
      arguments.overrides.push_back(*entry);
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  return arguments;
}

/// "model.preset:llama3-8b/mesh.ranks:4".
std::string case_name(const app::SweepGrid& grid, const app::SweepCell& cell) {
  std::string name;
  for (std::size_t i = 0; i < cell.values.size(); ++i) {
    const auto* text = std::get_if<std::string>(&cell.values[i]);
    name += fmt::format("{}{}:{}", i == 0 ? "" : "/", grid.file.axes[i].key,
                        text != nullptr ? *text : config::to_toml(cell.values[i]));
  }
  return name;
}

void count(benchmark::State& state, const app::Trial& trial) {
  const std::map<std::string_view, const char*> counters{{"metrics.overlap_pct", "overlap_pct"},
                                                         {"metrics.exposed_comm_ms", "exposed_ms"},
                                                         {"metrics.tokens_per_s", "tokens_per_s"}};
  for (const app::TrialFigure& f : app::figures_of(trial)) {
    if (const auto counter = counters.find(f.path); counter != counters.end())
      state.counters[counter->second] = f.value;
  }
  state.counters["peak_MiB"] = static_cast<double>(trial.memory.peak_occupied_total) / (1 << 20);
}

/// Reason for which the benchmark ended early; the cases that are left then say so.
struct Stopped {
  std::string reason;
  int code = 0;
};

void run_case(benchmark::State& state, const app::SweepGrid& grid, const app::SweepCell& cell, app::Job* job,
              Stopped* stopped) {
  const auto fail = [&](const std::string& reason, ExitCode code) {
    stopped->code = static_cast<int>(code);
    const bool lost = job != nullptr && job->watch().failure_code();
    if (code == ExitCode::interrupted || lost) stopped->reason = reason;
    state.SkipWithError(reason.c_str());
  };
  for (auto _ : state) {
    if (!stopped->reason.empty()) {
      state.SkipWithError(stopped->reason.c_str());
      break;
    }
    try {
      const app::Trial trial = app::whole_trial(app::cell_config(grid, cell, job), job);
      state.SetIterationTime(trial.metrics.value().step_ms.median / 1000);
      count(state, trial);
    } catch (const Error& error) {
      fail(error.what(), error.code());
      break;
    } catch (const std::exception& error) {
      fail(error.what(), ExitCode::failure);
      break;
    }
  }
}

/// 0, or the exit code of the last case that failed.
int run_cases(const Arguments& arguments, app::Job* job) {
  const std::string path = config::find_sweep(arguments.sweep);
  const app::SweepGrid grid = app::expand_for_job(config::load_sweep(path), arguments.overrides, job);
  for (const std::string& note : grid.file.notes) app::console().info(note);
  Stopped stopped;
  for (const app::SweepCell& cell : grid.cells) {
    benchmark::RegisterBenchmark(case_name(grid, cell).c_str(),
                                 [&](benchmark::State& state) { run_case(state, grid, cell, job, &stopped); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::AddCustomContext("sweep", path);
  benchmark::AddCustomContext("program", app::version_line());
  bench::add_library_context();
  benchmark::RunSpecifiedBenchmarks();
  return stopped.code;
}

int run_program(int argc, char** argv) {
  const std::optional<launch::Placement> placement = launch::find_placement(launch::process_environment());
  const bool speaks = !placement || placement->rank == 0;
  return app::guarded(speaks, [&] {
    const Arguments arguments = take_arguments(&argc, argv);
    benchmark::Initialize(&argc, argv);  // --help ends the program
    const bool unknown = speaks ? benchmark::ReportUnrecognizedArguments(argc, argv) : argc > 1;
    if (unknown) return static_cast<int>(ExitCode::bad_input);
    if (!placement) return run_cases(arguments, nullptr);
    return app::in_job(*placement, false, {}, [&](app::Job& job) { return run_cases(arguments, &job); });
  });
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  fsdpbench::app::install_interrupt_handlers();
  return fsdpbench::run_program(argc, argv);
}
