#include <memory>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "app/report_page.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench watch`, as typed: the Python package reads it.
struct WatchArguments {
  std::vector<std::string> sources;
  bool once = false, stopped = false, json = false;
  std::string every, until, hang, metrics, ras;
};

/// Hands over to the Python package in analysis/, which reads and judges. Throws Error if there is no Python that has
/// the package; does not return otherwise.
int watch_job(const WatchArguments& arguments) {
  std::vector<std::string> options;
  for (const auto& [name, is_given] :
       {std::pair("--once", arguments.once), {"--stopped", arguments.stopped}, {"--json", arguments.json}}) {
    if (is_given) options.emplace_back(name);
  }
  for (const auto& [name, text] : {std::pair("--every=", arguments.every),
                                   {"--for=", arguments.until},
                                   {"--hang=", arguments.hang},
                                   {"--metrics=", arguments.metrics},
                                   {"--ras=", arguments.ras}}) {
    if (!text.empty()) options.push_back(name + text);
  }
  become_page_program("watch", options, arguments.sources);
}

constexpr const char* kWatchHelp =
    R"(SOURCE is what a job writes anyway, a file or a folder of such files, recognised by content:
  flight recorder  dumps of PyTorch, pickle or JSON, one per rank, of NCCL or gloo
  NCCL RAS         answers of ncclras, as JSON one after another or as text; --ras asks it directly
  step handler     what fsdpbench.torch.step() writes where FSDPBENCH_WATCH names a folder: both, and signs of life
No profiler runs, and the job is sent nothing but the questions of --ras. A rank is called late, silent or hanging by
evidence that is named; where there is too little, the verdict is unknown. docs/watch.md has the rules.

Without --once one line is printed whenever the verdict changes, until Ctrl-C. The Python package in analysis/ reads and
judges; `make analysis` installs it.

Examples
  fsdpbench watch /shared/watch
  fsdpbench watch /shared/watch --metrics /var/lib/node_exporter/fsdpbench-watch.prom
  fsdpbench watch /tmp/nccl_trace --once --stopped
  fsdpbench watch --ras node-7

Exit codes: 0 clean, 2 a source that cannot be read, 4 metrics that cannot be written, 5 a hang, a silent rank or a
mismatch, 10 a late rank, 11 not enough to say.
)";

}  // namespace

Command watch_command() {
  const auto watched = std::make_shared<WatchArguments>();
  Command command("watch", CommandGroup::understand, "Name a late rank or a hang in a job that runs", kWatchHelp);
  Option& sources = command.argument("SOURCE", &watched->sources, "Files, or folders of them");
  sources.counts = {0, 10'000};
  sources.is_required = false;
  command.flag("--once", watched->once, "Read what is there, print, and end");
  command.option("--every", &watched->every, "SECONDS", "From one look to the next; default 1");
  command.option("--for", &watched->until, "SECONDS", "End after this time; default: at Ctrl-C");
  command.option("--hang", &watched->hang, "SECONDS",
                 "No rank of a healthy job waits so long in a collective; default 12");
  command.flag("--stopped", watched->stopped, "The job goes on no more: whatever waits, hangs");
  command.flag("--json", watched->json, "Print JSON: one object, or one line per change");
  command.option("--metrics", &watched->metrics, "FILE", "Write metrics for Prometheus there at each look");
  command.option("--ras", &watched->ras, "HOST:PORT", "Ask NCCL's RAS at each look; :PORT may be left out, 28028");
  command.body = [watched](const Call&) { return watch_job(*watched); };
  return command;
}

}  // namespace fsdpbench::app
