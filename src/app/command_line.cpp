// The only file that includes CLI11: it takes eight seconds to compile.
#include "app/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "app/machine/build_info.h"
#include "base/error.h"
#include "config/fields.h"
#include "config/find_file.h"

namespace fsdpbench::app {
namespace {

constexpr const char* kAbout =
    "fsdpbench measures how well the communication of Fully Sharded Data Parallel (FSDP) training hides behind\n"
    "computation. It trains a real model on CPU ranks, over real or emulated links, and says where time and memory "
    "go.\n";

constexpr const char* kExamples = R"(
Examples
  fsdpbench run quickstart
  fsdpbench run quickstart --set fsdp.backward_prefetch=none --out runs/no-prefetch
  fsdpbench run llama3-8b-emulated --set fsdp.strategy=shard_grad_op
  fsdpbench compare quickstart --b-set fsdp.backward_prefetch=none
  fsdpbench sweep prefetch-limit-link
  fsdpbench report runs/prefetch-limit-link
  fsdpbench report runs/first runs/no-prefetch
  fsdpbench explain llama3-8b-emulated --set mesh.ranks=64
  fsdpbench explain quickstart --format collectives
  fsdpbench explain --from runs/no-prefetch
  fsdpbench what-if runs/first --link-scale 2
  fsdpbench export llama3-8b-emulated --to pytorch-fsdp2,deepspeed
  fsdpbench trace check runs/*/trace.json
  fsdpbench doctor

Profiles are TOML files, looked up by name in profiles/runs here and where the program was built; a result folder is
the profile that it was made with. profiles/README.md lists all keys. The keys most people set:
  model.preset             quickstart, llama3-8b, gpt2-124m …: a file of profiles/models (its README row says which train)
  mesh.ranks               how many ranks; mesh.shard and mesh.replicate for hybrid strategies
  train.steps              measured steps; train.seq_len and train.batch_per_rank set their size
  data.path                any file or folder, read as bytes
  fsdp.strategy            full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_grad_op
  fsdp.preset              fsdp1, fsdp2, deepspeed-z3, megatron-v2 …: all knobs as that engine has them
  fsdp.backward_prefetch   pre, post, none, or a depth
  fsdp.all_gather_limit    unlimited, fsdp1_queue:2, fsdp2_event, strict:2, bytes:64MiB
  fsdp.param_dtype         fp32 or bf16
  emulate.link_gb_per_s    bandwidth of a modelled link; "none" for the real one
  emulate.compute_tflops   modelled compute; "none" to compute

Exit codes
  0 done   1 failure   2 wrong profile, flag or data   3 memory or disk will not suffice   4 cannot write
  5 a rank failed   6 a measurement contradicts itself   7 slower, with compare --fail-if-slower
  8 training diverged: a loss or a final parameter is NaN or infinite
  130 stopped by Ctrl-C, SIGTERM or SIGHUP
)";

constexpr const char* kRunHelp = R"(
Writes into the result folder:
  result.json   every number, with the world it was measured in
  trace.json    a timeline of all ranks; open it at https://ui.perfetto.dev or chrome://tracing
  trace/        a file a rank, rank_0.json.gz …, for PyTorch's tools (HTA); `fsdpbench trace check` checks any of them
  config.toml   the complete resolved configuration; a profile itself
Ctrl-C stops after the current step and keeps what there is, marked as partial; a second Ctrl-C stops at once.
)";

constexpr const char* kSimulateHelp = R"(
The same schedules as `run` executes, walked on a computed clock: nothing runs, nothing sleeps, and the same seed gives
the same bytes. Writes what `run` writes, so compare, sweep, report and explain --from work on it; a profile with
device.backend = "virtual" is simulated by `run`, `sweep` and `compare`, too.
How fast ranks and links are
  --cluster NAME        a machine of profiles/clusters: GPUs, links, achieved rates, each with its source
  emulate.*             or plain rates, as `run` emulates them
Of many ranks the step times of all count, and trace.ranks of them are recorded: the first and the slowest among them.
Examples
  fsdpbench simulate llama3-8b-emulated --ranks 1024
  fsdpbench simulate llama3-8b-emulated --ranks 64 --cluster dgx-h100 --set train.seq_len=8192
  fsdpbench simulate quickstart --ranks 8 --set emulate.compute_tflops=0.02 --set simulate.jitter_pct=3
)";

constexpr const char* kExplainHelp = R"(
Formats
  table        plan, memory with and without FSDP, communication against data parallel, predicted step
  summary      one screen of it
  json         everything for programs, the schedule op by op; with --parameters also every piece of every parameter
  collectives  the order of collectives of a steady step on one line: AGR AG0 … | AG3* … RS3 …
               AG, RS, AR: all-gather, reduce-scatter, all-reduce; R: root unit; *: prefetched in backward
  issue        the order in which units are gathered (U), freed (S) and reduced (P)
Examples
  fsdpbench explain llama3-8b-emulated --format summary
  fsdpbench explain quickstart --parameters
  fsdpbench explain quickstart --schedule=blocks.2
  fsdpbench explain llama3-8b-emulated --set mesh.ranks=32 --compare-parallelism
  fsdpbench explain gpu-1b --tflops 400 --link-gb-per-s 100 --link-latency-us 5
)";

constexpr const char* kCalibrateHelp = R"(
Draws a line through the measured times of each kind of op, by its size: computation by FLOPs, collectives by bytes on
the wire and hops (from the arrival of the last rank, so that waiting for others is nobody's time), all else by bytes.
A simulation by the file says of how many ops the size was measured, lies between, or beyond.
Examples
  fsdpbench calibrate quickstart --set mesh.ranks=2 --out two-ranks.toml
  fsdpbench calibrate runs/a runs/b --out machine.toml
  fsdpbench simulate quickstart --ranks 2 --set simulate.calibration=two-ranks.toml --set fsdp.backward_prefetch=none
)";

constexpr const char* kWhatIfHelp = R"(
DIR is a finished run: a result folder of `run` or `simulate`. Nothing runs: its own measured op times (trace/rank_N)
are walked on a computed clock, once as it was, once as it would be. The first is shown beside the measured step, so
that its error says how far to trust the second.
What can be asked
  --set                 another policy: prefetch, limits, sharding, wrapping, accumulation, checkpointing
  --link-scale 2        bytes flow twice as fast; the latency of a hop stays
  --compute-scale 2     forward, backward and recomputation take half as long
  --without-straggler   the slowest rank computes as the median of the others
What a replay cannot know is refused: another model, machine or number of ranks. Collectives of other sizes and ops
that were never measured are fitted from those that were, and the answer says how many.
Examples
  fsdpbench what-if runs/first --set fsdp.backward_prefetch=none
  fsdpbench what-if runs/first --link-scale 0.5 --set fsdp.strategy=shard_grad_op
  fsdpbench what-if runs/monday --without-straggler --out runs/monday-even
)";

constexpr const char* kTraceCheckHelp = R"(
Any Chrome trace, .json or .json.gz, from whatever program. What is checked: JSON, events, tracks, nesting of slices,
pairs of arrows, counters; and what PyTorch's tools (HTA) need of a rank's file: its rank, one launch for every kernel,
streams, names, the fields of collectives. src/trace/FORMAT.md lists the rules.
Exit codes
  0 all files keep to all rules   2 findings, each with its event and a sentence, or a file that cannot be read
)";

constexpr const char* kCompareHelp = R"(
A and B run in turns (A B, B A, A B, ...), each time a short run, so that what the machine does meanwhile hits both
alike. Their trials, not their steps, are compared: the median ratio with its 99 % interval, and a verdict in words.
compare.json gets all values and the keys that differ, trials.jsonl each finished trial, at once: the same command with
--out of that folder goes on after a kill or Ctrl-C. The exit code is 0 whatever the verdict, or 7 for "slower" with
--fail-if-slower.
Two results of finished runs are compared as they are, and nothing runs, unless --rerun, --trials or a --set asks for
it. They did not take turns, so such a verdict is about two runs, not about two configurations.
Examples
  fsdpbench compare a.toml b.toml
  fsdpbench compare quickstart --b-set fsdp.backward_prefetch=none
  fsdpbench compare runs/monday runs/tuesday                  (their results)
  fsdpbench compare runs/monday runs/tuesday --trials 20      (their config.toml, run anew)
)";

constexpr const char* kSweepHelp = R"(
A sweep file names a base profile and axes: keys with lists of values. Every combination is a cell. Trials are
interleaved: a round runs one trial of every cell. Two files in DIR:
  trials.jsonl   each finished trial, at once: the same command goes on after a kill or Ctrl-C
  sweep.json     every cell with its medians, or why it failed
)";

/// `fsdpbench quickstart` and `fsdpbench a.toml`: what is meant is plain.
bool is_profile(std::string_view name) {
  try {
    config::find_profile(std::string(name));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// CLI11 would only say that a subcommand is missing. `path` is what leads to `app`: "" or " trace".
void check_command_name(const CLI::App& app, std::string_view name, std::string_view path) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (name.starts_with("-") || names.empty() || std::ranges::count(names, name) > 0) return;
  const std::string meant =
      path.empty() && is_profile(name) ? fmt::format("run {}", name) : config::nearest(name, names);
  throw ConfigError(fmt::format("There is no command '{0}{1}'; the nearest is '{0}{2}'; see fsdpbench{3} --help.",
                                path.empty() ? "" : fmt::format("{} ", path.substr(1)), name, meant, path));
}

/// The first word that names no command where there must be one.
void check_command_names(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* at = &app;
  std::string path;
  for (int i = 1; i < argc; ++i) {
    check_command_name(*at, argv[i], path);
    const auto commands = at->get_subcommands({});
    const auto next = std::ranges::find_if(commands, [&](const CLI::App* c) { return c->get_name() == argv[i]; });
    if (next == commands.end()) return;
    at = *next;
    path += fmt::format(" {}", argv[i]);
  }
}

/// What was measured cannot be set or shown otherwise: an option beside --from would do nothing.
void check_alone(const CLI::App& command, const CLI::Option& alone) {
  if (alone.count() == 0) return;
  for (const CLI::Option* other : command.get_options()) {
    if (other == &alone || other->count() == 0) continue;
    throw ConfigError(
        fmt::format("{0} {1} shows a result as it was measured, so {2} has no effect; leave {2} out, or "
                    "name a profile instead of {1}.",
                    command.get_name(), alone.get_name(), other->get_name()));
  }
}

/// The command that was given, as "run" or "trace check"; null if there is none.
const CLI::App* chosen_command(const CLI::App& app, std::string* name) {
  const CLI::App* chosen = nullptr;
  for (auto commands = app.get_subcommands(); !commands.empty(); commands = chosen->get_subcommands()) {
    chosen = commands.front();
    *name += ' ' + chosen->get_name();
  }
  return chosen;
}

/// What `command` cannot take of `words`, those that no option or argument of it took; empty if that is nothing.
std::string not_taken(const CLI::App& command, const std::string& path, const std::vector<std::string>& words) {
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with("-"); });
  if (option == words.end()) {
    return words.empty() ? "" : fmt::format("{} takes no further argument '{}'", path, words.front());
  }
  const std::string name = option->substr(0, option->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* other : command.get_options()) {
    for (const std::string& text : other->get_lnames()) known.push_back("--" + text);
  }
  return fmt::format("{} has no option {}; the nearest is {}", path, name, config::nearest(name, known));
}

/// `--set` may be given many times, each with one value.
void add_set_option(CLI::App& command, const char* name, std::vector<std::string>& overrides, const char* meaning) {
  command.add_option(name, overrides, meaning)->allow_extra_args(false)->type_name("KEY=VALUE");
}

void add_profile_options(CLI::App& command, std::string& profile, std::vector<std::string>& overrides) {
  command.add_option("PROFILE", profile, "Run profile: a TOML file, a result folder, or a name in profiles/runs")
      ->required();
  add_set_option(command, "-s,--set", overrides, "Set one key: --set mesh.ranks=8; may be repeated, the last counts");
}

void add_quiet_flag(CLI::App& command, bool& quiet) {
  command.add_flag("-q,--quiet", quiet, "No progress and no information; results, warnings and errors only");
}

void add_overwrite_flag(CLI::App& command, bool& overwrite) {
  command.add_flag("--overwrite", overwrite, "Replace the result that DIR holds; else it is refused");
}

/// What run and simulate share beside the profile.
void add_run_options(CLI::App& command, RunArguments& run) {
  command.add_option("-o,--out", run.out, "Result folder; default: runs/<profile>-<date-time>")->type_name("DIR");
  add_overwrite_flag(command, run.overwrite);
  command.add_option("-r,--ranks", run.ranks, "The same as --set mesh.ranks=N; a launcher's count must agree")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->type_name("N");
}

void add_compare(CLI::App& compare_app, CompareArguments& compare) {
  compare_app.add_option("A", compare.a, "Run profile: file, result folder, or name")->required();
  compare_app.add_option("B", compare.b, "The other one; default: A, to be compared with itself or with --b-set");
  add_set_option(compare_app, "-s,--set", compare.overrides, "Set one key of both sides; may be repeated");
  add_set_option(compare_app, "--a-set", compare.a_overrides, "Set one key of A");
  add_set_option(compare_app, "--b-set", compare.b_overrides, "Set one key of B");
  compare_app.add_option("-n,--trials", compare.trials, "Runs of each side, 3 or more; default: 12")->type_name("N");
  compare_app.add_flag("--rerun", compare.rerun, "Run both, also if both are results of finished runs");
  compare_app.add_option("--threshold", compare.threshold, "Percent below which no difference matters; default: 1")
      ->type_name("PERCENT");
  compare_app.add_flag("--fail-if-slower", compare.fail_if_slower, "Exit code 7 if B is slower");
  compare_app.add_option("-o,--out", compare.out, "Folder for compare.json; default: runs/compare-<date-time>")
      ->type_name("DIR");
  add_overwrite_flag(compare_app, compare.overwrite);
  compare_app.footer(kCompareHelp);
}

void add_explain_views(CLI::App& explain_app, ExplainArguments& explain) {
  explain_app.add_option("-f,--format", explain.format, "table, summary, json, collectives or issue")
      ->check(CLI::IsMember({"table", "summary", "json", "collectives", "issue"}))
      ->type_name("FORMAT");
  explain_app.add_flag("--parameters", explain.parameters, "Who holds which part of every parameter");
  explain_app.add_flag("--schedule{all}", explain.schedule, "Every op of a step; --schedule=LAYER: of a layer or unit");
  explain_app.add_flag("--compare-parallelism", explain.compare_parallelism,
                       "Data parallel, ZeRO, hybrid, tensor, pipeline: memory, bytes, bubble, in closed form");
  const auto rate = [&](const char* name, std::optional<double>& value, const char* meaning) {
    explain_app.add_option(name, value, meaning)->type_name("NUMBER");
  };
  rate("--tflops", explain.rates.tflops, "For the predicted step: a rank's TFLOP/s; default: emulate.compute_tflops");
  rate("--link-gb-per-s", explain.rates.link_gb_per_s, "A rank's link; default: emulate.link_gb_per_s");
  rate("--link-latency-us", explain.rates.link_latency_us, "A hop; default: emulate.link_latency_us");
  explain_app.footer(kExplainHelp);
}

void add_report(CLI::App& report_app, ReportArguments& report) {
  report_app.add_option("DIR", report.folders, "Result folder of a run, a sweep or a comparison; or of two runs")
      ->required()
      ->expected(1, 2);
  report_app.add_option("-o,--out", report.out, "Folder for the page; default: report/ in the first DIR")
      ->type_name("DIR");
  report_app.add_option("--memory-budget", report.memory_budget, "Marked in the heat map of a sweep: 18MiB, 64GiB")
      ->type_name("SIZE");
  report_app.footer(
      "\nWrites report.html, which needs no other file, and each figure as SVG and PNG. Drawn by the Python "
      "package in\nanalysis/; `make analysis` installs it.\n");
}

void add_calibrate(CLI::App& calibrate_app, CalibrateArguments& calibrate) {
  calibrate_app.add_option("RUN", calibrate.runs, "Result folders of finished runs, or profiles to be run here")
      ->required();
  add_set_option(calibrate_app, "-s,--set", calibrate.overrides, "Set one key of the profiles");
  calibrate_app.add_option("-o,--out", calibrate.out, "The calibration file")->required()->type_name("FILE");
  add_overwrite_flag(calibrate_app, calibrate.overwrite);
  calibrate_app.footer(kCalibrateHelp);
}

void add_what_if(CLI::App& what_if_app, WhatIfArguments& what_if) {
  what_if_app.add_option("DIR", what_if.folder, "Result folder of a finished run, or its result.json")->required();
  add_set_option(what_if_app, "-s,--set", what_if.question.overrides, "Set one key: --set fsdp.backward_prefetch=none");
  what_if_app.add_option("--link-scale", what_if.question.link_scale, "Bytes flow so many times as fast")
      ->type_name("NUMBER");
  what_if_app.add_option("--compute-scale", what_if.question.compute_scale, "Modules compute so many times as fast")
      ->type_name("NUMBER");
  what_if_app.add_flag("--without-straggler", what_if.question.without_straggler,
                       "The slowest rank computes as the median of the others");
  what_if_app.add_option("-o,--out", what_if.out, "Folder for what_if.json; default: none is written")
      ->type_name("DIR");
  add_overwrite_flag(what_if_app, what_if.overwrite);
  what_if_app.footer(kWhatIfHelp);
}

void add_export(CLI::App& export_app, ExportArguments& arguments) {
  add_profile_options(export_app, arguments.profile, arguments.overrides);
  export_app.add_option("-t,--to", arguments.to, "Systems, with commas between; default: list them")
      ->type_name("NAMES");
  export_app.add_flag("--keys", arguments.keys, "Print what becomes of every key, not the files");
  export_app.add_option("-o,--out", arguments.out, "Folder for the files; default: print them")->type_name("DIR");
  export_app.add_flag("--overwrite", arguments.overwrite, "Replace files that DIR holds; else that is refused");
  export_app.footer(export_help());
}

void add_sweep(CLI::App& sweep_app, SweepArguments& sweep) {
  sweep_app.add_option("SWEEP", sweep.sweep, "Sweep: a TOML file, or a name in profiles/sweeps")->required();
  add_set_option(sweep_app, "-s,--set", sweep.overrides, "Set one key of all cells; may be repeated");
  sweep_app.add_option("-o,--out", sweep.out, "Folder; default: runs/<sweep file>; the same one goes on")
      ->type_name("DIR");
  sweep_app.add_option("-n,--trials", sweep.trials, "Runs of each cell; more than before: only the new ones run")
      ->check(CLI::Range(std::int64_t{1}, kMostTrials))
      ->type_name("N");
  sweep_app.add_flag("--retry-failed", sweep.retry_failed, "Run cells again that failed before");
  sweep_app.footer(kSweepHelp);
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  RunArguments run;
  CompareArguments compare;
  SweepArguments sweep;
  ExplainArguments explain;
  DoctorArguments doctor;
  ReportArguments report;
  TraceCheckArguments trace_check;
  WhatIfArguments what_if;
  ExportArguments exports;
  CommandLine parsed;

  CLI::App app(kAbout, "fsdpbench");
  app.footer(kExamples);
  app.set_version_flag("-V,--version", version_line());
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);

  CLI::App* run_app = app.add_subcommand("run", "Train and measure; write result.json, traces and config.toml");
  add_profile_options(*run_app, run.profile, run.overrides);
  add_run_options(*run_app, run);
  add_quiet_flag(*run_app, parsed.quiet);
  run_app->footer(kRunHelp);

  RunArguments simulate;
  std::string cluster;
  CLI::App* simulate_app = app.add_subcommand("simulate", "As run, but on a computed clock: up to 1,048,576 ranks");
  add_profile_options(*simulate_app, simulate.profile, simulate.overrides);
  simulate_app->add_option("-c,--cluster", cluster, "The same as --set simulate.cluster=NAME")->type_name("NAME");
  add_run_options(*simulate_app, simulate);
  add_quiet_flag(*simulate_app, parsed.quiet);
  simulate_app->footer(kSimulateHelp);

  CLI::App* compare_app = app.add_subcommand("compare", "Run two configurations in turns; say which is faster");
  add_compare(*compare_app, compare);
  add_quiet_flag(*compare_app, parsed.quiet);

  CLI::App* sweep_app = app.add_subcommand("sweep", "Run every combination of some keys; goes on where it stopped");
  add_sweep(*sweep_app, sweep);
  add_quiet_flag(*sweep_app, parsed.quiet);

  CLI::App* explain_app = app.add_subcommand("explain", "Run nothing; print plan, memory, communication, schedule");
  add_profile_options(*explain_app, explain.profile, explain.overrides);
  CLI::Option* explain_profile = explain_app->get_option("PROFILE")->required(false);
  CLI::Option* explain_from =
      explain_app->add_option("--from", explain.from, "A result folder: why computation was not running, ranked");
  explain_from->excludes(explain_profile)->type_name("RESULT");
  add_explain_views(*explain_app, explain);

  CalibrateArguments calibrate;
  CLI::App* calibrate_app =
      app.add_subcommand("calibrate", "Write down what ops took, for simulations of this machine");
  add_calibrate(*calibrate_app, calibrate);
  add_quiet_flag(*calibrate_app, parsed.quiet);

  CLI::App* what_if_app =
      app.add_subcommand("what-if", "Run nothing; replay a finished run under another policy or link");
  add_what_if(*what_if_app, what_if);
  add_quiet_flag(*what_if_app, parsed.quiet);

  CLI::App* export_app = app.add_subcommand("export", "Write a profile in the words of PyTorch, DeepSpeed, Megatron …");
  add_export(*export_app, exports);
  add_quiet_flag(*export_app, parsed.quiet);

  CLI::App* doctor_app = app.add_subcommand("doctor", "Say what this machine can do");
  doctor_app->add_flag("--json", doctor.json, "For programs");

  CLI::App* report_app = app.add_subcommand("report", "Draw a run or a sweep: figures and one HTML page");
  add_report(*report_app, report);

  CLI::App* trace_app = app.add_subcommand("trace", "Work on trace files");
  trace_app->require_subcommand(1);
  CLI::App* trace_check_app = trace_app->add_subcommand("check", "Say what is wrong with trace files");
  trace_check_app->add_option("FILE", trace_check.files, "Chrome traces, .json or .json.gz")->required();
  trace_check_app->footer(kTraceCheckHelp);

  if (argc <= 1) {
    parsed.command = ShowText{app.help()};
    return parsed;
  }
  check_command_names(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::string name;
    const CLI::App* chosen = chosen_command(app, &name);
    const std::string before = "fsdpbench" + name.substr(0, name.rfind(' '));
    parsed.command = ShowText{chosen == nullptr ? app.help() : chosen->help(before)};
    return parsed;
  } catch (const CLI::CallForVersion&) {
    parsed.command = ShowText{version_line() + '\n'};
    return parsed;
  } catch (const CLI::ParseError& error) {
    std::string name;
    const CLI::App* chosen = chosen_command(app, &name);
    std::string message = error.what();
    // A misspelt option is the better complaint, also where its value now stands for a missing argument.
    const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const auto left = app.remaining(true);
    const bool option = std::ranges::any_of(left, [](const std::string& word) { return word.starts_with("-"); });
    if (extras || option) {
      message = not_taken(chosen == nullptr ? app : *chosen, chosen == nullptr ? "fsdpbench" : name.substr(1), left);
    }
    throw ConfigError(fmt::format("{}; see fsdpbench{} --help.", message, name));
  }
  if (run_app->parsed()) {
    run.command_line.assign(argv, argv + argc);
    parsed.command = run;
  } else if (simulate_app->parsed()) {
    simulate.command_line.assign(argv, argv + argc);
    simulate.overrides.insert(simulate.overrides.begin(), "device.backend=virtual");
    if (!cluster.empty()) simulate.overrides.push_back("simulate.cluster=" + cluster);
    parsed.command = simulate;
  } else if (compare_app->parsed()) {
    parsed.command = compare;
  } else if (sweep_app->parsed()) {
    parsed.command = sweep;
  } else if (explain_app->parsed()) {
    if (explain.profile.empty() && explain.from.empty()) {
      throw ConfigError("explain needs a PROFILE, or --from RESULT; see fsdpbench explain --help.");
    }
    check_alone(*explain_app, *explain_from);
    parsed.command = explain;
  } else if (report_app->parsed()) {
    parsed.command = report;
  } else if (trace_check_app->parsed()) {
    parsed.command = trace_check;
  } else if (calibrate_app->parsed()) {
    parsed.command = calibrate;
  } else if (what_if_app->parsed()) {
    parsed.command = what_if;
  } else if (export_app->parsed()) {
    parsed.command = exports;
  } else {
    parsed.command = doctor;
  }
  return parsed;
}

}  // namespace fsdpbench::app
