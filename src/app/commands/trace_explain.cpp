#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "account/advice.h"
#include "account/counterfactual.h"
#include "app/commands/command.h"
#include "app/report_page.h"
#include "base/error.h"
#include "config/cluster.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/validate.h"
#include "dialects/make_export.h"
#include "dialects/sayable.h"
#include "foreign/adopt.h"
#include "foreign/evidence.h"
#include "foreign/job_json.h"
#include "foreign/job_report.h"
#include "foreign/kineto_reader.h"
#include "foreign/timeline.h"
#include "foreign/traced_profile.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench trace explain`.
struct TraceExplainArguments {
  std::vector<std::string> traces;  ///< files and folders
  std::string out;                  ///< empty: nothing is written
  bool overwrite = false;
  std::string cluster;  ///< whose links and GPUs are the roofs; empty: none
  bool json = false;    ///< print what explain.json would hold
};

/// The setting in the words of the system that the trace is of, if it has any.
void say_in_words(const foreign::Recognition& found, config::RunConfig changed, account::ReplayedKnob& knob) {
  if (found.table.source == foreign::UnitSource::own_names) return;  // its words are the keys
  knob.sayable = false;
  const dialects::Dialect* system = dialects::dialect_of_program(found.engine);
  if (system == nullptr) return;
  const config::Entry entry = config::read_override(knob.gain.set);
  try {
    if (!config::find_field(entry.name)->read(changed, entry.value)) return;
    config::validate(changed);
    for (const dialects::KeyFate& key : dialects::make_export(*system, changed).keys) {
      if (key.key != entry.name) continue;
      knob.sayable = key.said.fate != dialects::Fate::lost;
      knob.words =
          key.said.text == "BLOCKS_OF_UNITS" ? "wrap every two blocks as one unit" : dialects::in_words(key.said);
    }
  } catch (const ConfigError&) {  // not in its world: the gain is still worth knowing
  }
}

/// Times of the step without each cause and with each other setting, where the job's rows are records of a schedule.
void replay(ExplainedJob& explained) {
  explained.not_replayed_because = held_up_because(explained.job, explained.explanation);
  if (!explained.not_replayed_because.empty()) return;
  try {
    const AdoptedJob adopted = adopt_job(explained.job, explained.recognition);
    if (!adopted.causes.no_typical_because.empty()) {
      explained.not_replayed_because = adopted.causes.no_typical_because + ".";
      return;
    }
    explained.replay = traced_step(explained.explanation, adopted);
    for (const account::Counterfactual& knob : adopted.causes.knobs) {
      account::ReplayedKnob& replayed = explained.replayed.emplace_back(knob);
      count_from_trace(*explained.replay, explained.replay->least_ms, replayed.gain);
      say_in_words(explained.recognition, adopted.setup.config, replayed);
    }
    for (account::CauseShare& share : explained.explanation.causes) {
      const auto same = std::ranges::find(adopted.causes.causes, share.cause, &account::CauseShare::cause);
      if (same != adopted.causes.causes.end()) share.without = same->without;
      if (share.without) count_from_trace(*explained.replay, explained.replay->computed_ms, *share.without);
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
  foreign::write_timeline(timeline, explained.job, explained.recognition, explained.explanation);
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
  std::optional<config::Cluster> cluster;
  if (!arguments.cluster.empty()) cluster = config::load_cluster(arguments.cluster);
  const foreign::JobTrace job = foreign::read_job(arguments.traces);
  ExplainedJob explained{job, foreign::recognise(job), {}, {}, {}, {}, {}};
  explained.unused = foreign::find_unused_gathers(job, explained.recognition);
  explained.explanation = foreign::explain(job, explained.recognition);
  if (cluster) add_roofs(*cluster, job, explained.explanation);
  replay(explained);
  account::Evidence evidence = foreign::evidence_of(job, explained.recognition, explained.explanation);
  evidence.knobs = explained.replayed;
  account::advise(explained.explanation.causes, evidence);
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("explain", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse,
                   arguments.traces);
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
  fsdpbench trace explain traces/ --cluster dgx-h100
  fsdpbench trace explain rank0.pt.trace.json.gz rank1.pt.trace.json.gz --out explained
Worth recording: schedule(wait=2, warmup=2, active=3) gives whole steps; with_stack is not needed, and record_shapes
only to tell a rank that is given more work.

Exit codes: 0 explained, 2 a file that cannot be read or is no trace, 6 times that do not add up.
)";

}  // namespace

Command trace_explain_command() {
  const auto explain_it = std::make_shared<TraceExplainArguments>();
  Command command("trace explain", CommandGroup::understand, "Say why a PyTorch job was slow, and what would help",
                  kTraceExplainHelp);
  command.argument("TRACE", &explain_it->traces,
                   "Traces of torch.profiler, nsys or this program, one per rank; or folders");
  command.option("--cluster", &explain_it->cluster, "NAME",
                 "Compare with its links and GPUs: a file in profiles/clusters, or a path");
  command.flag("--json", explain_it->json, "Print the content of explain.json instead of the tables");
  command.out(explain_it->out, explain_it->overwrite,
              "Folder for explain.json, trace.json and report/; default: nothing is written");
  command.body = [explain_it](const Call&) { return explain_traces(*explain_it); };
  return command;
}

}  // namespace fsdpbench::app
