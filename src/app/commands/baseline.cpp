#include "app/commands/baseline.h"

#include <fmt/format.h>

#include <filesystem>

#include "app/console/console.h"
#include "app/gate/baseline_file.h"
#include "base/error.h"
#include "base/paths.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

void add(const fs::path& folder, const std::string& given, const std::string& anyway) {
  GatedResult result = read_gated_result(given);
  if (!result.not_accepted_because.empty()) result.kept_anyway_because = anyway;
  const Baseline baseline = add_to_baseline(folder, std::move(result));
  const std::size_t count = baseline.results.size();
  console().print(fmt::format("{}: {} {}, {}\n", baseline.path.string(), count, count == 1 ? "result" : "results",
                              baseline.results.front().machine.summary()));
}

}  // namespace

int baseline_command(const BaselineArguments& arguments) {
  const fs::path folder = arguments.in.empty() ? kBaselineFolder : arguments.in;
  switch (arguments.action) {
    case BaselineArguments::Action::add:
      for (const std::string& given : arguments.names) add(folder, given, arguments.anyway);
      break;
    case BaselineArguments::Action::list: {
      const std::vector<Baseline> all = read_baselines(folder);
      if (all.empty()) {
        throw ConfigError(
            fmt::format("{}: holds no baseline; `fsdpbench baseline add RESULT` makes one.", folder.string()));
      }
      console().print(baselines_table(all));
      break;
    }
    case BaselineArguments::Action::show:
      for (const std::string& given : arguments.names) {
        const fs::path named = folder / (given + ".json");
        console().print(baseline_text(read_baseline(path_exists(named) ? named : fs::path(given))));
      }
      break;
  }
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
