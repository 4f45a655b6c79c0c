#include "app/commands/tune_traces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "config/fields.h"
#include "dialects/make_export.h"
#include "dialects/sayable.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

std::vector<dialects::KeyChange> changes_of(const TracedJob& job, const Tuning& tuning) {
  const config::RunConfig& was = tuning.space.start();
  const config::RunConfig is = *tuning.space.config_at(tuning.proposed().point);
  if (job.system != nullptr) return dialects::changes_in_words(*job.system, was, is);
  std::vector<dialects::KeyChange> changes;
  for (const config::Field* field : dialects::exported_fields()) {
    if (field->write(was) == field->write(is)) continue;
    const auto text = [&](const config::RunConfig& config) { return config::to_toml(field->write(config)); };
    changes.push_back({field->name(), text(was), text(is), {dialects::Fate::same, ""}});
  }
  return changes;
}

/// As people write it: without a profile's quotes.
std::string plain(std::string value) {
  std::erase(value, '"');
  return value;
}

}  // namespace

bool names_traces(const std::vector<std::string>& from) {
  if (std::ranges::count(from, "") > 0) {
    throw ConfigError("--from '' names nothing; expected a result folder of `fsdpbench run`, or traces of a job.");
  }
  if (from.size() > 1) return true;
  if (from.empty()) return false;
  const fs::path path(from.front());
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.filename() != "result.json";
  if (!fs::is_directory(path, error)) return false;
  for (const char* name : {"result.json", "config.toml"}) {
    if (fs::exists(path / name, error)) return false;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite")) return true;
  }
  return false;
}

TracedJob read_traced_job(const std::vector<std::string>& traces) {
  const foreign::JobTrace job = foreign::read_job(traces);
  const foreign::Recognition found = foreign::recognise(job);
  const dialects::Dialect* system = dialects::dialect_of_program(found.engine);
  const bool named = system != nullptr || found.table.source == foreign::UnitSource::own_names;
  if (!named && found.schedule && !found.schedule->same_order.empty()) {
    throw ConfigError(
        fmt::format("{} may be of {}, or of {}: they launch collectives in the same order, and no name in the trace "
                    "says which it is. `trace to-profile` writes a profile of it, to be tuned once its fsdp.preset is "
                    "the right one.",
                    found.name, found.schedule->config.fsdp.preset, fmt::join(found.schedule->same_order, ", ")));
  }
  const foreign::Explanation explanation = foreign::explain(job, found);
  TracedJob traced;
  try {
    AdoptedJob adopted = adopt_job(job, found);
    if (!adopted.causes.no_typical_because.empty()) throw ConfigError(adopted.causes.no_typical_because + ".");
    traced = {{}, traced_profile(job, found, adopted), system, traced_step(explanation, adopted)};
    traced.run.folder = fmt::format("the traced {}", found.name);
    traced.run.setup = std::move(adopted.setup);
    traced.run.trial.metrics = std::move(adopted.metrics);
    traced.run.traces = std::move(adopted.traces);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("It cannot be tuned from its trace. {}", error.what()));
  }
  if (const std::string why = held_up_because(job, explanation); !why.empty()) {
    throw ConfigError(fmt::format("No setting would help: {}", why));
  }
  return traced;
}

std::string changes_text(const TracedJob& job, const Tuning& tuning) {
  std::string text = "\n" + text_line(replay_error_sentence(job.step));
  const std::vector<dialects::KeyChange> changes = changes_of(job, tuning);
  if (changes.empty()) return text + fmt::format("nothing to change in {}\n", job.profile.program);
  Table table;
  table.title = fmt::format("what to change in {}", job.profile.program);
  table.header = {"fsdpbench's key", "is now", "becomes", "in its words"};
  if (job.system == nullptr) table.header.pop_back();
  for (const dialects::KeyChange& change : changes) {
    table.rows.push_back({change.key, plain(change.was), plain(change.is)});
    if (job.system != nullptr) table.rows.back().push_back(dialects::in_words(change.said));
  }
  return text + "\n" + format_table(table);
}

nlohmann::json changes_json(const TracedJob& job, const Tuning& tuning) {
  nlohmann::json out{{"program", job.profile.program},
                     {"step_ms", job.profile.step_ms},
                     {"miss", job.step.step_ms / job.step.replayed_ms - 1},
                     {"least_ms", job.step.least_ms},
                     {"changes", nlohmann::json::array()}};
  for (const dialects::KeyChange& change : changes_of(job, tuning)) {
    nlohmann::json one{{"key", change.key}, {"was", plain(change.was)}, {"is", plain(change.is)}};
    if (job.system != nullptr) one["words"] = dialects::in_words(change.said);
    out["changes"].push_back(std::move(one));
  }
  if (job.system != nullptr) out["system"] = job.system->name;
  return out;
}

}  // namespace fsdpbench::app
