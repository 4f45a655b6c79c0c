#include <memory>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "app/report_page.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench open`.
struct OpenArguments {
  std::vector<std::string> paths;  ///< one result folder or merged trace, or two to be shown above each other
  int port = 0;                    ///< 0: one that is free
  bool no_browser = false;
  std::string html;  ///< a file for the page; empty: it is served
};

/// Hands over to the Python package in analysis/, which packs the rows and serves the page. Throws Error if there is no
/// Python that has the package; does not return otherwise.
int open_results(const OpenArguments& arguments) {
  std::vector<std::string> options;
  if (arguments.port != 0) options.push_back("--port=" + std::to_string(arguments.port));
  if (arguments.no_browser) options.emplace_back("--no-browser");
  if (!arguments.html.empty()) options.push_back("--html=" + arguments.html);
  become_page_program("open", options, arguments.paths);
}

constexpr const char* kOpenHelp =
    R"(The timeline shows every lane of each rank, with the waits of computation hatched and named by their cause. A click
on anything shows its op, unit and bytes, what it waited for, and what the step would take without that. Two results are
drawn above each other on one time scale. The page also has the report, and opens the trace in Perfetto.

The server answers only on this machine (127.0.0.1), at an address with a random token, until Ctrl-C. From another machine:
ssh -L 9001:127.0.0.1:9001 HOST fsdpbench open RESULT --port 9001, then open the address that is printed.
With --html the timeline is one file, which needs neither server nor network.

TRACE is trace.json of `run`, `simulate` or `trace explain --out`. Traces of other programs have no causes yet: explain them
first. The Python package in analysis/ makes the page; `make analysis` installs it.

Examples
  fsdpbench open runs/first
  fsdpbench open runs/first runs/no-prefetch
  fsdpbench open explained/trace.json --html timeline.html

Exit codes: 0 ended by Ctrl-C or written, 2 no result, no trace, or a port in use, 4 a file that cannot be written.
)";

}  // namespace

Command open_command() {
  const auto open_it = std::make_shared<OpenArguments>();
  Command command("open", CommandGroup::understand, "Browse a result's timeline and report, and Perfetto", kOpenHelp);
  command
      .argument("RESULT|TRACE", &open_it->paths, "Result folder, or trace.json; or two, to be shown above each other")
      .counts.emplace(1, 2);
  command.option("--port", &open_it->port, "N", "Port of 127.0.0.1; default: one that is free").within(1, 65535);
  command.flag("--no-browser", open_it->no_browser, "Only print the address");
  command.option("--html", &open_it->html, "FILE", "Write the timeline as one file, and serve nothing");
  command.body = [open_it](const Call&) { return open_results(*open_it); };
  return command;
}

}  // namespace fsdpbench::app
