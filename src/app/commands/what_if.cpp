#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "base/error.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/result_folder.h"
#include "tune/what_if.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench what-if`.
struct WhatIfArguments {
  std::string folder;  ///< a result folder of `run` or `simulate`, or its result.json
  WhatIfQuestion question;
  std::string out;  ///< folder for what_if.json; empty: none is written
  bool overwrite = false;
};

void check_scale(const char* option, double scale) {
  if (scale >= 1e-3 && scale <= 1e3) return;
  throw ConfigError(
      fmt::format("{} {} is not valid; expected a number from 0.001 to 1000: 2 is twice as fast.", option, scale));
}

/// Replays a finished run with its own op times under another policy, link or without its slow rank, and prints what
/// its step would take; runs nothing. Returns the process exit code.
int ask_what_if(const WhatIfArguments& arguments) {
  check_scale("--link-scale", arguments.question.link_scale);
  check_scale("--compute-scale", arguments.question.compute_scale);
  const FinishedRun run = read_finished_run(arguments.folder);
  const WhatIf answer = what_if(run, arguments.question);
  for (const std::string& note : answer.notes) console().info(note);
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("what-if", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse,
                   std::vector<std::string>{arguments.folder});
  }
  console().print(what_if_text(answer));
  if (folder) {
    const std::filesystem::path path = folder->path() / "what_if.json";
    console().print(fmt::format("\nwhat-if  {}\n", path.string()));
    write_file(path, json_text(fields<WhatIf>().write(answer)));
  }
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kWhatIfHelp =
    R"(DIR is a finished run of `run` or `simulate`. Nothing runs: its own op times (trace/rank_N) are replayed on a
computed clock, once as it was and once as it would be. The first replay is shown beside the measured step: its
error says how far to trust the second.

What can be asked
  --set                another policy: prefetch, limits, sharding, wrapping, accumulation, checkpointing
  --link-scale 2       bytes take half as long; the latency per hop stays
  --compute-scale 2    forward, backward and recomputation take half as long
  --without-straggler  the slowest rank computes as fast as the median of the others
The answer has an interval of what the changed run would measure, unless processors of this machine really computed: one
run does not show by how much such runs differ.
A replay cannot answer for another model, machine or number of ranks; such questions are refused. Times of
collectives of other sizes, and of ops that were never measured, are fitted; the answer says how many.

Examples
  fsdpbench what-if runs/first --set fsdp.backward_prefetch=none
  fsdpbench what-if runs/first --link-scale 0.5 --set fsdp.strategy=shard_grad_op
  fsdpbench what-if runs/monday --without-straggler --out runs/monday-even
)";

}  // namespace

Command what_if_command() {
  const auto what_if_it = std::make_shared<WhatIfArguments>();
  WhatIfQuestion& question = what_if_it->question;
  Command command("what-if", CommandGroup::predict, "Replay a finished run with another policy or link", kWhatIfHelp);
  command.argument("DIR", &what_if_it->folder, "Result folder of a finished run, or its result.json");
  command.set("-s,--set", question.overrides, "Set one key, as in --set fsdp.backward_prefetch=none");
  command.option("--link-scale", &question.link_scale, "NUMBER", "How many times as fast bytes move");
  command.option("--compute-scale", &question.compute_scale, "NUMBER", "How many times as fast modules compute");
  command.flag("--without-straggler", question.without_straggler,
               "The slowest rank computes as fast as the median of the others");
  command.out(what_if_it->out, what_if_it->overwrite, "Folder for what_if.json; default: none is written");
  command.body = [what_if_it](const Call&) { return ask_what_if(*what_if_it); };
  return command;
}

}  // namespace fsdpbench::app
