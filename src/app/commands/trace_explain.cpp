#include "app/commands/trace_explain.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/export/export_target.h"
#include "app/report/adopted_job.h"
#include "app/report/job_json.h"
#include "app/report/job_report.h"
#include "app/report/result_folder.h"
#include "base/error.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/validate.h"
#include "foreign/kineto_reader.h"

namespace fsdpbench::app {
namespace {

/// The setting in the words of the system that the trace is of.
std::string setting_in_words(const std::string& name, const config::RunConfig& from, const std::string& set) {
  const std::pair<const char*, const char*> kTargets[]{{"FSDP2", "pytorch-fsdp2"},
                                                       {"FSDP1", "pytorch-fsdp1"},
                                                       {"DeepSpeed", "deepspeed"},
                                                       {"Megatron", "megatron-fsdp"}};
  for (const auto& [word, target] : kTargets) {
    if (name.find(word) == std::string::npos) continue;
    const config::Entry entry = config::read_override(set);
    config::RunConfig changed = from;
    if (!config::find_field(entry.name)->read(changed, entry.value)) return {};
    config::validate(changed);
    for (const KeyFate& key : make_export(find_export_target(target), changed).keys) {
      if (key.key == entry.name) return key.said.fate == Fate::lost ? "it has no word for that" : key.said.text;
    }
  }
  return {};
}

/// What each knob would bring, where the job's rows are records of a schedule.
void replay_knobs(ExplainedJob& explained) {
  try {
    const AdoptedJob adopted = adopt_job(explained.job, explained.recognition);
    if (!adopted.causes.no_typical_because.empty()) {
      explained.not_replayed_because = adopted.causes.no_typical_because + ".";
      return;
    }
    for (const metrics::Counterfactual& knob : adopted.causes.knobs) {
      std::string words;
      try {
        words = setting_in_words(explained.recognition.name, adopted.setup.config, knob.set);
      } catch (const ConfigError&) {  // not in its world: the gain is still worth knowing
      }
      explained.replayed.push_back({knob, std::move(words)});
    }
  } catch (const ConfigError& error) {
    explained.not_replayed_because = error.what();
  }
}

}  // namespace

int trace_explain_command(const TraceExplainArguments& arguments) {
  const foreign::JobTrace job = foreign::read_job(arguments.traces);
  ExplainedJob explained{job, foreign::recognise(job), {}, {}, {}, {}};
  explained.explanation = foreign::explain(job, explained.recognition);
  explained.remedies = foreign::find_remedies(job, explained.recognition, explained.explanation);
  replay_knobs(explained);
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("explain", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  }
  if (arguments.json) {
    console().print(json_text(job_json(explained)));
  } else {
    console().print(job_report(explained));
  }
  if (folder) {
    const std::filesystem::path path = folder->path() / "explain.json";
    write_file(path, json_text(job_json(explained)));
    if (!arguments.json) console().print(fmt::format("\nexplanation  {}\n", path.string()));
  }
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
