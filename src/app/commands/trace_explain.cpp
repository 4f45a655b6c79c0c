#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/report/adopted_job.h"
#include "app/report/job_json.h"
#include "app/report/job_report.h"
#include "app/report/report_page.h"
#include "app/report/result_folder.h"
#include "base/error.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/validate.h"
#include "dialects/make_export.h"
#include "dialects/sayable.h"
#include "dialects/words/words.h"
#include "foreign/kineto_reader.h"
#include "foreign/timeline.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench trace explain`.
struct TraceExplainArguments {
  std::vector<std::string> traces;  ///< files and folders
  std::string out;                  ///< empty: nothing is written
  bool overwrite = false;
  bool json = false;  ///< print what explain.json would hold
};

/// What is to be said of a setting to the system that the trace is of; nothing where it is none that is known.
std::optional<dialects::Said> setting_in_words(const dialects::Words* engine, const config::RunConfig& from,
                                               const std::string& set) {
  const dialects::Dialect* system = dialects::dialect_of_program(engine);
  if (system == nullptr) return std::nullopt;
  const config::Entry entry = config::read_override(set);
  config::RunConfig changed = from;
  if (!config::find_field(entry.name)->read(changed, entry.value)) return std::nullopt;
  config::validate(changed);
  for (const dialects::KeyFate& key : dialects::make_export(*system, changed).keys) {
    if (key.key == entry.name) return key.said;
  }
  return std::nullopt;
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
      std::optional<dialects::Said> said;
      try {
        said = setting_in_words(explained.recognition.engine, adopted.setup.config, knob.set);
      } catch (const ConfigError&) {  // not in its world: the gain is still worth knowing
      }
      ReplayedKnob& replayed = explained.replayed.emplace_back(knob);
      if (!said) continue;
      replayed.no_word = said->fate == dialects::Fate::lost;
      replayed.words = dialects::in_words(*said);
    }
  } catch (const ConfigError& error) {
    explained.not_replayed_because = error.what();
  }
}

/// explain.json, the timeline, and the page where there is a Python that draws it. `says`: which they are.
void write_explanation(const ResultFolder& folder, const ExplainedJob& explained, bool says) {
  const std::string answer = (folder.path() / "explain.json").string();
  const std::string timeline = (folder.path() / "trace.json").string();
  write_file(answer, json_text(job_json(explained)));
  foreign::write_timeline(timeline, explained.job, explained.recognition, explained.explanation, explained.remedies);
  std::string page;
  try {
    page = draw_page(folder.path()).string();
  } catch (const Error& error) {
    console().info(fmt::format("no page: {}", error.what()));
  }
  if (!says) return;
  console().print(fmt::format("\nexplanation  {}\ntimeline     {}\n", answer, timeline));
  if (!page.empty()) console().print(fmt::format("page         {}\n", page));
}

/// Reads the traces of a job, says what it is, why its communication is exposed and what would help. Returns
/// ExitCode::ok; throws ConfigError for files that are no traces.
int explain_traces(const TraceExplainArguments& arguments) {
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
  if (folder) write_explanation(*folder, explained, !arguments.json);
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kTraceExplainHelp =
    R"(TRACE is what torch.profiler wrote (.json, .json.gz), one file per rank, or a folder of them; or what `nsys export
--type sqlite` made of a report of Nsight Systems; or trace/ of a run of this program. Nothing runs. The answer is what
the job is (FSDP1, FSDP2, DeepSpeed, DDP, inference …) with the evidence, which schedule it follows and where it
deviates, where a step's time went, which collectives were exposed and why, and what would help, in that program's own
terms. It also says what the files do not tell. One rank's file is enough for most of it; the files of all ranks also
tell who waited for whom.

Files in DIR
  report/report.html  the page, drawn by the Python package as for `report`
  explain.json        all numbers
  trace.json          all ranks on one timeline, with why nothing was computed, for ui.perfetto.dev

Examples
  fsdpbench trace explain traces/
  fsdpbench trace explain rank0.pt.trace.json.gz rank1.pt.trace.json.gz --out explained
Worth recording: schedule(wait=2, warmup=2, active=3) gives whole steps; with_stack and record_shapes are not needed.

Exit codes: 0 explained, 2 a file that cannot be read or is no trace, 6 times that do not add up.
)";

}  // namespace

Command trace_explain_command() {
  const auto explain_it = std::make_shared<TraceExplainArguments>();
  Command command("trace explain", CommandGroup::understand,
                  "Say why a PyTorch job's communication is exposed, and what would help", kTraceExplainHelp);
  command.argument("TRACE", &explain_it->traces,
                   "Traces of torch.profiler, nsys or this program, one per rank; or folders");
  command.flag("--json", explain_it->json, "Print the content of explain.json instead of the tables");
  command.out(explain_it->out, explain_it->overwrite,
              "Folder for explain.json, trace.json and report/; default: nothing is written");
  command.body = [explain_it](const Call&) { return explain_traces(*explain_it); };
  return command;
}

}  // namespace fsdpbench::app
