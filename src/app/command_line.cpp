// Includes CLI11, which takes eight seconds to compile, as command_complaints.cpp does; no other file may.
#include "app/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "app/collectives/collectives_options.h"
#include "app/command_complaints.h"
#include "app/help_texts.h"
#include "app/machine/build_info.h"
#include "base/error.h"
#include "config/fields.h"

namespace fsdpbench::app {
namespace {

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
  rate("--link-latency-us", explain.rates.link_latency_us, "Latency per hop; default: emulate.link_latency_us");
  explain_app.footer(kExplainHelp);
}

void add_report(CLI::App& report_app, ReportArguments& report) {
  report_app.add_option("DIR", report.folders, "Result folder of a run, sweep, comparison or tuning; or of two runs")
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
  calibrate_app.add_option("RUN", calibrate.runs, "Folders of finished runs, or profiles to be run here")->required();
  add_set_option(calibrate_app, "-s,--set", calibrate.overrides, "Set one key of the profiles");
  calibrate_app.add_option("-o,--out", calibrate.out, "The calibration file")->required()->type_name("FILE");
  calibrate_app.add_option("--beside", calibrate.beside, "A file of `collectives --beside -J`")->type_name("FILE");
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

struct CheckpointApps {
  CLI::App *show, *export_, *import_;
};
CheckpointApps add_checkpoint(CLI::App& checkpoint_app, CheckpointShowArguments& show,
                              CheckpointExportArguments& exported, CheckpointImportArguments& imported) {
  checkpoint_app.require_subcommand(1);
  checkpoint_app.footer(kCheckpointHelp);
  const char* folder = "A checkpoint, or a folder with some: the newest complete one";
  CLI::App* show_app = checkpoint_app.add_subcommand("show", "Say what a checkpoint holds");
  show_app->add_option("DIR", show.folder, folder)->required();
  show_app->add_flag("--verify", show.verify, "Read every byte and compare it with the digests");
  CLI::App* export_app = checkpoint_app.add_subcommand("export", "Write one as safetensors, parameters whole");
  export_app->add_option("DIR", exported.folder, folder)->required();
  export_app->add_option("FILE", exported.file, "weights.safetensors; with --split a folder")->required();
  export_app->add_option("--names", exported.names, "own, or hugging-face: those of transformers' Llama; default: own")
      ->check(CLI::IsMember({"own", "hugging-face"}))
      ->type_name("NAMES");
  export_app->add_option("--dtype", exported.dtype, "Of parameters: fp32 or bf16; default: fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->type_name("DTYPE");
  export_app->add_option("--split", exported.split, "Several files of at most so many bytes, 5GiB, with an index")
      ->type_name("SIZE");
  export_app->add_flag("--moments", exported.moments, "AdamW's moments, too, so that others can go on exactly");
  export_app->add_flag("--overwrite", exported.overwrite, "Replace FILE; else that is refused");
  CLI::App* import_app =
      checkpoint_app.add_subcommand("import", "Make a checkpoint of a safetensors file, for --resume");
  import_app
      ->add_option(
          "FILE", imported.file,
          "Every parameter in one piece, fp32 or bf16, by either names: a file, an index, or a folder with one")
      ->required();
  add_profile_options(*import_app, imported.profile, imported.overrides);
  import_app->add_option("--into", imported.into, "Folder of checkpoints")->required()->type_name("DIR");
  return {show_app, export_app, import_app};
}

void add_tune(CLI::App& tune_app, TuneArguments& tune) {
  add_profile_options(tune_app, tune.profile, tune.overrides);
  tune_app.add_option("-m,--memory", tune.memory, "What a rank may take: 70GiB; default: no limit")->type_name("SIZE");
  tune_app.add_option("--memory-kind", tune.memory_kind, "live, reserved or process; default: live")->type_name("KIND");
  tune_app
      .add_option("--memory-error", tune.memory_error, "By how much predictions of memory may be wrong, in percent")
      ->type_name("PERCENT");
  tune_app.add_option("--memory-overhead", tune.memory_overhead, "Memory of a process outside its allocator")
      ->type_name("SIZE");
  tune_app.add_option("-c,--cluster", tune.cluster, "The same as --set simulate.cluster=NAME, on the computed clock")
      ->type_name("NAME");
  tune_app.add_option("--objective", tune.objective, "step, memory or tokens_per_s; default: step")->type_name("WHAT");
  add_set_option(tune_app, "--fix", tune.fixes, "A key that is not turned: KEY as it is, or KEY=VALUE");
  tune_app.add_option("--allow-dtypes", tune.dtypes, "What param_dtype and reduce_dtype may become: bf16")
      ->delimiter(',')
      ->type_name("DTYPE,…");
  tune_app.add_option("--evaluations", tune.evaluations, "Policies to walk at most; default: 20000")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("N");
  tune_app.add_flag("--exhaustive", tune.exhaustive, "Walk every policy, and prune nothing");
  tune_app.add_option("--seed", tune.seed, "Of the order in which policies are tried; default: 1")->type_name("N");
  tune_app.add_option("--threads", tune.threads, "Threads; default: 2")->check(CLI::Range(1, 256))->type_name("N");
  tune_app.add_option("--least-gain", tune.least_gain_pct, "Percent below which no gain counts; default: 1")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("PERCENT");
  tune_app.add_option("--verify", tune.verify, "Run so many of the best for real, and what is in force, in turns")
      ->check(CLI::Range(0, 1000))
      ->type_name("N");
  tune_app.add_option("--trials", tune.trials, "--verify: runs of each in a round; default: 3")->type_name("N");
  tune_app.add_option("--export", tune.exports, "Write the answer in other systems' words, too: pytorch-fsdp2")
      ->delimiter(',')
      ->type_name("NAME,…");
  tune_app.add_option("-o,--out", tune.out, "Folder; default: runs/tune-<profile>-<date-time>")->type_name("DIR");
  add_overwrite_flag(tune_app, tune.overwrite);
  tune_app.footer(kTuneHelp);
}

void add_collectives(CLI::App& collectives_app, CollectivesArguments& collectives) {
  const auto read_ops = [&collectives](const std::vector<std::string>& words) {
    read_option(collectives, "--op-list", fmt::format("{}", fmt::join(words, ",")));
  };
  collectives_app.add_option_function<std::vector<std::string>>("OP", read_ops,
                                                                "Which to measure, one after the other");
  collectives_app.add_option_function<std::vector<std::string>>("--op-list", read_ops, "The same, in one word: a,b")
      ->expected(1)
      ->type_name("OP,OP");
  for (const CollectivesOption& option : collectives_options()) {
    const auto read = [&collectives, &option](const std::string& value) { read_option(collectives, option, value); };
    CLI::Option* added =
        collectives_app.add_option_function<std::string>(std::string(option.names), read, std::string(option.meaning));
    added->take_last()->type_name(std::string(option.type));
    if (option.may_stand_alone) added->expected(0, 1);
    if (option.meaning.empty()) added->group("");  // refused: known, so that it is said why
  }
  collectives_app.footer(std::string(collectives_help()));
}

void add_accept(CLI::App& accept_app, AcceptArguments& accept) {
  accept_app.add_option("PROFILE", accept.profile, "A TOML file, or a name in profiles/acceptance")->required();
  add_set_option(accept_app, "-s,--set", accept.overrides, "Set one key of the run that it names; may be repeated");
  accept_app.add_flag("--full", accept.full,
                      "200 iterations of each collective, so that tails are rated, and what is left is a soak");
  accept_app.add_option("--budget", accept.budget, "Time that it may take, as 90s or 5m; default: 5m, with --full 30m")
      ->type_name("TIME");
  accept_app.add_option("-o,--out", accept.out, "Folder; default: runs/accept-<profile>-<date-time>")->type_name("DIR");
  add_overwrite_flag(accept_app, accept.overwrite);
  accept_app.footer(kAcceptHelp);
}

void add_baseline(CLI::App& baseline_app, BaselineArguments& baseline) {
  baseline_app.require_subcommand(1);
  const auto in = [&](CLI::App& command) {
    command.add_option("--in", baseline.in, "Folder of the baselines; default: baselines")->type_name("DIR");
  };
  CLI::App* add = baseline_app.add_subcommand("add", "Keep accepted results");
  add->add_option("RESULT", baseline.names, "Result folders or files of accept, run, sweep, collectives -J")
      ->required();
  add->add_option("--anyway", baseline.anyway, "Why to keep a result that was not accepted; is kept, too")
      ->type_name("REASON");
  in(*add);
  CLI::App* list = baseline_app.add_subcommand("list", "A line a baseline");
  in(*list);
  CLI::App* show = baseline_app.add_subcommand("show", "Machine, results and figures of a baseline");
  show->add_option("BASELINE", baseline.names, "A name that list prints, or a file")->required();
  in(*show);
  for (CLI::App* command : {&baseline_app, add}) command->footer(kBaselineHelp);
}

void add_gate(CLI::App& gate_app, GateArguments& gate) {
  gate_app.add_option("RESULT", gate.results, "Result folder or file; several must be of one machine")->required();
  gate_app.add_option("-a,--against", gate.against, "A baseline: name, file, or a folder of them; or another result")
      ->required()
      ->type_name("BASELINE");
  gate_app.add_option("--threshold", gate.threshold, "Percent below which nothing is worse; default: 5")
      ->type_name("PERCENT");
  gate_app.add_flag("--other-software", gate.other_software, "Compare two kernels, drivers, libraries or builds");
  gate_app.add_flag("--other-machine", gate.other_machine, "Compare two machines");
  gate_app.add_option("-o,--out", gate.out, "Folder for gate.json, junit.xml, summary.md; default: none is written")
      ->type_name("DIR");
  add_overwrite_flag(gate_app, gate.overwrite);
  gate_app.footer(kGateHelp);
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

void add_trace_explain(CLI::App& explain_app, TraceExplainArguments& explain) {
  explain_app.add_option("TRACE", explain.traces, "Files of torch.profiler or of this program, one a rank, or folders")
      ->required();
  explain_app
      .add_option("-o,--out", explain.out,
                  "Folder for explain.json, trace.json and report/; default: nothing is written")
      ->type_name("DIR");
  explain_app.add_flag("--json", explain.json, "Print what explain.json holds, instead of the tables");
  add_overwrite_flag(explain_app, explain.overwrite);
  explain_app.footer(kTraceExplainHelp);
}

void add_trace_to_profile(CLI::App& profile_app, TraceToProfileArguments& to_profile) {
  profile_app.add_option("TRACE", to_profile.traces, "Files, one of each rank, or folders")->required();
  profile_app.add_option("-c,--calibration", to_profile.calibration, "Where op times go; default: calibration.toml")
      ->type_name("FILE");
  add_overwrite_flag(profile_app, to_profile.overwrite);
  profile_app.footer(kTraceToProfileHelp);
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
  TraceExplainArguments trace_explain;
  TraceToProfileArguments to_profile;
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
  run_app->add_option("--resume", run.resume, "Go on with the newest checkpoint in DIR (docs/checkpoint.md)")
      ->type_name("DIR");
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

  AcceptArguments accept;
  CLI::App* accept_app = app.add_subcommand("accept", "Say whether this machine is fit for FSDP, and who is to blame");
  add_accept(*accept_app, accept);
  add_quiet_flag(*accept_app, parsed.quiet);

  BaselineArguments baseline;
  CLI::App* baseline_app = app.add_subcommand("baseline", "Keep accepted results, to hold later ones against");
  add_baseline(*baseline_app, baseline);

  GateArguments gate;
  CLI::App* gate_app = app.add_subcommand("gate", "Say what of a result is worse than a baseline; for CI");
  add_gate(*gate_app, gate);
  add_quiet_flag(*gate_app, parsed.quiet);

  CollectivesArguments collectives;
  CLI::App* collectives_app = app.add_subcommand("collectives", "Measure collectives alone, as nccl-tests do");
  add_collectives(*collectives_app, collectives);
  add_quiet_flag(*collectives_app, parsed.quiet);

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

  CheckpointShowArguments checkpoint_show;
  CheckpointExportArguments checkpoint_export;
  CheckpointImportArguments checkpoint_import;
  CLI::App* checkpoint_app = app.add_subcommand("checkpoint", "Show a checkpoint; exchange weights with PyTorch");
  const CheckpointApps checkpoint =
      add_checkpoint(*checkpoint_app, checkpoint_show, checkpoint_export, checkpoint_import);

  TuneArguments tune;
  CLI::App* tune_app = app.add_subcommand("tune", "Find the settings for a model, a machine and a memory budget");
  add_tune(*tune_app, tune);
  CLI::Option* tune_profile = tune_app->get_option("PROFILE")->required(false);
  tune_app
      ->add_option("--from", tune.from,
                   "A finished run, or traces of another program's job, one of each rank: their op times are the "
                   "machine's, their settings in force")
      ->excludes(tune_profile)
      ->excludes("--cluster")
      ->type_name("RESULT|TRACE");
  add_quiet_flag(*tune_app, parsed.quiet);

  CLI::App* doctor_app = app.add_subcommand("doctor", "Say what this machine can do");
  doctor_app->add_flag("--json", doctor.json, "For programs");

  CLI::App* report_app = app.add_subcommand("report", "Draw a run or a sweep: figures and one HTML page");
  add_report(*report_app, report);

  CLI::App* trace_app = app.add_subcommand("trace", "Work on trace files");
  trace_app->require_subcommand(1);
  CLI::App* trace_check_app = trace_app->add_subcommand("check", "Say what is wrong with trace files");
  trace_check_app->add_option("FILE", trace_check.files, "Chrome traces, .json or .json.gz")->required();
  trace_check_app->footer(kTraceCheckHelp);
  CLI::App* trace_explain_app =
      trace_app->add_subcommand("explain", "Say what a job is, why its communication is exposed, and what would help");
  add_trace_explain(*trace_explain_app, trace_explain);
  CLI::App* to_profile_app = trace_app->add_subcommand("to-profile", "Print a profile that reproduces the run");
  add_trace_to_profile(*to_profile_app, to_profile);

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
  const auto take = [&](const CLI::App* command, const auto& arguments) {
    if (command->parsed()) parsed.command = arguments;
  };
  run.command_line.assign(argv, argv + argc);
  accept.command_line = collectives.command_line = simulate.command_line = run.command_line;
  simulate.overrides.insert(simulate.overrides.begin(), "device.backend=virtual");
  if (!cluster.empty()) simulate.overrides.push_back("simulate.cluster=" + cluster);
  if (collectives_app->parsed()) settle(collectives);
  if (explain_app->parsed()) {
    if (explain.profile.empty() && explain.from.empty()) {
      throw ConfigError("explain needs a PROFILE, or --from RESULT; see fsdpbench explain --help.");
    }
    check_alone(*explain_app, *explain_from);
  }
  if (tune_app->parsed() && tune.profile.empty() && tune.from.empty()) {
    throw ConfigError("tune needs a PROFILE, or --from RESULT or TRACE; see fsdpbench tune --help.");
  }
  using Action = BaselineArguments::Action;
  if (baseline_app->got_subcommand("add")) baseline.action = Action::add;
  if (baseline_app->got_subcommand("show")) baseline.action = Action::show;
  take(run_app, run);
  take(simulate_app, simulate);
  take(compare_app, compare);
  take(sweep_app, sweep);
  take(accept_app, accept);
  take(baseline_app, baseline);
  take(gate_app, gate);
  take(collectives_app, collectives);
  take(explain_app, explain);
  take(report_app, report);
  take(trace_check_app, trace_check);
  take(trace_explain_app, trace_explain);
  take(to_profile_app, to_profile);
  take(calibrate_app, calibrate);
  take(what_if_app, what_if);
  take(export_app, exports);
  take(checkpoint.show, checkpoint_show);
  take(checkpoint.export_, checkpoint_export);
  take(checkpoint.import_, checkpoint_import);
  take(tune_app, tune);
  take(doctor_app, doctor);
  return parsed;
}

}  // namespace fsdpbench::app
