#include "app/commands/what_if.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/report/result_folder.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

void check_scale(const char* option, double scale) {
  if (scale >= 1e-3 && scale <= 1e3) return;
  throw ConfigError(
      fmt::format("{} {} is not valid; expected a number from 0.001 to 1000: 2 is twice as fast.", option, scale));
}

}  // namespace

int what_if_command(const WhatIfArguments& arguments) {
  check_scale("--link-scale", arguments.question.link_scale);
  check_scale("--compute-scale", arguments.question.compute_scale);
  const FinishedRun run = read_finished_run(arguments.folder);
  const WhatIf answer = what_if(run, arguments.question);
  for (const std::string& note : answer.notes) console().info(note);
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("what-if", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  }
  console().print(what_if_text(run, arguments.question, answer));
  if (folder) {
    const std::filesystem::path path = folder->path() / "what_if.json";
    console().print(fmt::format("\nwhat-if  {}\n", path.string()));
    write_file(path, json_text(what_if_json(run, arguments.question, answer)));
  }
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
