#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/digest.h"
#include "fuzz/fuzz_target.h"
#include "runs/sweep_report.h"
#include "runs/trial_log.h"

namespace fsdpbench::fuzz {

Target target() { return {"trials", {"tests/fuzz/seeds/trials.jsonl"}, "trials.jsonl"}; }

/// Lines that are still objects get their digest anew: else nothing behind the digests would be reached.
std::string sealed(std::istream& log) {
  std::string text;
  for (std::string line; std::getline(log, line);) {
    nlohmann::json content = nlohmann::json::parse(line, nullptr, false);
    if (content.is_object()) {
      content["digest"] = json_digest(content);
      line = content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    text += line + (log.eof() ? "" : "\n");
  }
  return text;
}

/// As a sweep that goes on: read the log, then say what is in it. The seed's cells are c-a and c-b.
void parse(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text = sealed(file);
  const app::ParsedTrials parsed = app::parse_trials(text, path);
  app::SweepGrid grid;
  grid.file.trials = 2;
  grid.file.axes = {{"mesh.ranks", {config::Value(std::int64_t{2}), config::Value(std::int64_t{4})}}};
  grid.cells = {{"c-a", {grid.file.axes[0].values[0]}, {}}, {"c-b", {grid.file.axes[0].values[1]}, {}}};
  app::sweep_table(app::sweep_json(grid, parsed.trials));
}

}  // namespace fsdpbench::fuzz
