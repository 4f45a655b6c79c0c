#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/commands/ask_endpoint.h"
#include "app/commands/command.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "foreign/watch/judge.h"
#include "foreign/watch/judge_gpus.h"
#include "foreign/watch/sources.h"
#include "record/console.h"
#include "record/json_part.h"
#include "record/table.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench watch`.
struct WatchArguments {
  std::vector<std::string> sources;
  double every_s = 1;
  double for_s = 0;  ///< 0: until Ctrl-C
  double hang_s = 12;
  bool once = false;
  bool stopped = false;
  bool json = false;
  std::string metrics;
  std::string ras;                     ///< HOST:PORT; empty: it is not asked
  std::vector<std::string> exporters;  ///< HOST or HOST:PORT
};

constexpr std::size_t kMostRows = 24;

std::int64_t watcher_now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::string ago_text(std::int64_t time_ns, std::int64_t now_ns) {
  return time_ns < 0 ? "-" : fmt::format("{:.1f}", std::max(0.0, static_cast<double>(now_ns - time_ns) * 1e-9));
}

/// What is said of a rank: "late rank", "hang"; empty: nothing.
std::string watched_state(const watch::Judgement& judgement, int rank, const std::string& communicator) {
  for (const watch::Accusation& one : judgement.all) {
    if (!one.communicator.empty() && !communicator.empty() && one.communicator != communicator) continue;
    if (std::ranges::find(one.ranks, rank) != one.ranks.end()) return std::string(to_string(one.verdict));
  }
  return "";
}

/// A table of the first rows and of those of which something is said; `left`: how many others there are.
std::string with_rest(const Table& table, std::size_t left, std::string_view of_what) {
  if (table.rows.empty()) return "";
  return "\n" + format_table(table) + (left > 0 ? fmt::format("and {} {} more\n", left, of_what) : "");
}

std::string ranks_table(const watch::JobView& job, const watch::Judgement& judgement, std::int64_t now_ns) {
  Table table;
  table.title = "Ranks";
  table.header = {"rank", "host", "heard s ago", "step", "step ms", "waits ms", ""};
  std::size_t left = 0;
  for (const auto& [rank, view] : job.ranks) {
    const std::string state = watched_state(judgement, rank, "");
    if (table.rows.size() >= kMostRows && state.empty()) {
      ++left;
      continue;
    }
    const watch::Step* step = view.steps.empty() ? nullptr : &view.steps.back();
    table.rows.push_back({fmt::format("{}", rank), view.host.empty() ? "-" : view.host,
                          ago_text(view.heard.newest_ns(), now_ns),
                          step == nullptr ? "-" : fmt::format("{}", step->number),
                          step == nullptr ? "-" : fmt::format("{:.1f}", step->step_ms),
                          step == nullptr || step->waits_ms < 0 ? "-" : fmt::format("{:.1f}", step->waits_ms), state});
  }
  return with_rest(table, left, "ranks");
}

std::string communicators_table(const watch::JobView& job, const watch::Judgement& judgement) {
  Table table;
  table.title = "Communicators";
  table.header = {"communicator", "source", "ranks", "newest", "collective", "waited for", ""};
  std::size_t left = 0;
  for (const auto& [key, one] : job.communicators) {
    std::int64_t newest = -1, oldest = -1;
    std::string name, states;
    for (const auto& [rank, member] : one.members) {
      const std::int64_t own = one.tells_counts            ? member.handed.count
                               : member.operations.empty() ? -1
                                                           : member.operations.back().sequence;
      if (own > newest) newest = own, name = one.tells_counts ? "handed over" : member.operations.back().name;
      if (oldest < 0 || own < oldest) oldest = own;
    }
    for (const watch::Accusation& accusation : judgement.all) {
      if (accusation.communicator == one.name && states.empty()) states = to_string(accusation.verdict);
    }
    if (table.rows.size() >= kMostRows && states.empty()) {
      ++left;
      continue;
    }
    std::string behind;
    for (const auto& [rank, member] : one.members) {
      const std::string state = watched_state(judgement, rank, one.name);
      if (!state.empty()) behind += fmt::format("{}{}", behind.empty() ? "" : " ", rank);
    }
    table.rows.push_back(
        {one.name, one.source,
         one.size > 0 ? fmt::format("{} of {}", one.members.size(), one.size) : fmt::format("{}", one.members.size()),
         newest == oldest ? fmt::format("{}", newest) : fmt::format("{} to {}", oldest, newest), name,
         behind.empty() ? "" : "rank " + behind, states});
  }
  return with_rest(table, left, "communicators");
}

std::string gpus_table(const watch::JobView& job, const watch::Judgement& judgement, std::int64_t now_ns) {
  Table table;
  table.title = "GPUs";
  table.header = {"host", "gpu", "model", "heard s ago", "MHz", "busy %", ""};
  std::size_t left = 0;
  for (const auto& [key, gpu] : job.gpus) {
    if (gpu.looks.empty()) continue;
    std::string troubles;
    for (const watch::Accusation& one : judgement.all) {
      if (one.verdict != watch::Verdict::gpu || one.host != gpu.host || one.gpu != gpu.name) continue;
      troubles += (troubles.empty() ? "" : ", ") + one.trouble;
    }
    if (table.rows.size() >= kMostRows && troubles.empty()) {
      ++left;
      continue;
    }
    const watch::GpuLook& look = gpu.looks.back();
    table.rows.push_back({gpu.host, gpu.name, gpu.model.empty() ? "-" : gpu.model, ago_text(look.time_ns, now_ns),
                          look.clock_mhz ? fmt::format("{:.0f}", *look.clock_mhz) : "-",
                          look.busy ? fmt::format("{:.0f}", 100 * *look.busy) : "-", troubles});
  }
  return with_rest(table, left, "GPUs");
}

/// Sentences in lines of at most so many columns: a picture that is drawn anew has no line that is longer.
std::string folded(const std::string& text, std::size_t columns) {
  if (columns == 0) return text;
  std::string lines;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    if (column > 0 && column + 1 + width_of(word) >= columns) lines += '\n', column = 0;
    if (column > 0) lines += ' ', ++column;
    lines += word;
    column += width_of(word);
    if (end < text.size() && text[end] == '\n') lines += '\n', column = 0;
    at = end + 1;
  }
  return lines;
}

std::string verdict_line(const watch::Judgement& judgement) {
  return text_line(fmt::format("{}: {}", to_string(judgement.verdict), judgement.sentence));
}

/// `columns`: of the terminal; 0: lines may be long.
std::string watch_text(const watch::JobView& job, const watch::Judgement& judgement, std::int64_t now_ns,
                       std::size_t columns) {
  std::string text = verdict_line(judgement);
  for (std::size_t i = 1; i < judgement.all.size() && i < kMostRows; ++i) {
    text += text_line(fmt::format("- {}: {}", to_string(judgement.all[i].verdict), judgement.all[i].sentence));
  }
  text = folded(text, columns) + ranks_table(job, judgement, now_ns) + communicators_table(job, judgement) +
         gpus_table(job, judgement, now_ns);
  std::string notes;
  for (const auto* all : {&judgement.notes, &job.notes}) {
    for (const std::string& note : *all) {
      if (note != judgement.sentence) notes += text_line("- " + note);
    }
  }
  return text + (notes.empty() ? "" : "\n" + folded(notes, columns));
}

nlohmann::json watch_json(const watch::JobView& job, const watch::Judgement& judgement, std::int64_t now_ns) {
  nlohmann::json out{{"kind", "watch"},
                     {"schema_version", 1},
                     {"verdict", to_string(judgement.verdict)},
                     {"sentence", judgement.sentence},
                     {"accusations", nlohmann::json::array()},
                     {"communicators", job.communicators.size()},
                     {"ranks", job.ranks.size()},
                     {"gpus", job.gpus.size()},
                     {"notes", judgement.notes}};
  if (now_ns >= 0) out["as_of_ns"] = now_ns;
  for (const watch::Accusation& one : judgement.all) {
    nlohmann::json accusation{{"verdict", to_string(one.verdict)}, {"ranks", one.ranks}, {"sentence", one.sentence}};
    if (!one.communicator.empty()) accusation["communicator"] = one.communicator;
    if (!one.gpu.empty()) {
      accusation["host"] = one.host;
      accusation["gpu"] = one.gpu;
      accusation["trouble"] = one.trouble;
    }
    if (one.sequence >= 0) accusation["sequence"] = one.sequence;
    if (one.since_ns >= 0) accusation["since_ns"] = one.since_ns;
    if (one.share > 0) {
      accusation["share"] = one.share;
      accusation["share_ci_low"] = one.share_low;
      accusation["share_ci_high"] = one.share_high;
    }
    out["accusations"].push_back(std::move(accusation));
  }
  for (const std::string& note : job.notes) out["notes"].push_back(note);
  return out;
}

/// For the textfile collector of node_exporter.
std::string watch_metrics(const watch::JobView& job, const watch::Judgement& judgement, std::int64_t now_ns) {
  std::string text =
      "# HELP fsdpbench_watch_verdict 1 for what the job is: clean, unknown, or the worst that is wrong.\n"
      "# TYPE fsdpbench_watch_verdict gauge\n";
  for (const watch::Verdict verdict : kEnumerators<watch::Verdict>) {
    text += fmt::format("fsdpbench_watch_verdict{{verdict=\"{}\"}} {}\n", to_string(verdict),
                        verdict == judgement.verdict ? 1 : 0);
  }
  text +=
      "# HELP fsdpbench_watch_accused 1 for a rank, or a communicator without a rank, and what is said of it.\n"
      "# TYPE fsdpbench_watch_accused gauge\n";
  std::string shares, gpus;
  for (const watch::Accusation& one : judgement.all) {
    if (one.verdict == watch::Verdict::gpu) {
      gpus += fmt::format("fsdpbench_watch_gpu{{host=\"{}\",gpu=\"{}\",trouble=\"{}\"}} 1\n",
                          prometheus_label(one.host), prometheus_label(one.gpu), prometheus_label(one.trouble));
      continue;
    }
    std::vector<std::string> ranks;
    for (const int rank : one.ranks) ranks.push_back(fmt::format("{}", rank));
    if (ranks.empty()) ranks.emplace_back();
    for (const std::string& rank : ranks) {
      const std::string labels =
          fmt::format("rank=\"{}\",communicator=\"{}\"", rank, prometheus_label(one.communicator));
      text += fmt::format("fsdpbench_watch_accused{{verdict=\"{}\",{}}} 1\n", to_string(one.verdict), labels);
      if (one.share > 0) shares += fmt::format("fsdpbench_watch_late_share{{{}}} {}\n", labels, one.share);
    }
  }
  if (!shares.empty()) {
    text +=
        "# HELP fsdpbench_watch_late_share Of the time, how much the others wait for a late rank.\n"
        "# TYPE fsdpbench_watch_late_share gauge\n" +
        shares;
  }
  if (!gpus.empty()) {
    text +=
        "# HELP fsdpbench_watch_gpu 1 for a GPU and what its exporter tells of it.\n"
        "# TYPE fsdpbench_watch_gpu gauge\n" +
        gpus;
  }
  if (const std::int64_t newest_ns = job.newest_ns(); newest_ns >= 0 && now_ns >= 0) {
    text += fmt::format(
        "# HELP fsdpbench_watch_newest_seconds Unix time of the newest record.\n"
        "# TYPE fsdpbench_watch_newest_seconds gauge\nfsdpbench_watch_newest_seconds {:.3f}\n",
        static_cast<double>(newest_ns) * 1e-9);
  }
  return text;
}

int code_of(watch::Verdict verdict) {
  static constexpr EnumTable<watch::Verdict, ExitCode> kCodes{
      ExitCode::rank_failed, ExitCode::rank_failed, ExitCode::rank_failed,  ExitCode::below_floor,
      ExitCode::below_floor, ExitCode::below_floor, ExitCode::inconclusive, ExitCode::ok};
  return static_cast<int>(kCodes[verdict]);
}

/// Asks once. Returns why nothing was added; empty: an answer was.
std::string add_ras_answer_of(const Endpoint& endpoint, const watch::Sources& sources, watch::JobView& job) {
  try {
    const std::string why = sources.add_ras(job, ask_ras(endpoint, kRasPatience_s), watcher_now_ns());
    return why.empty() ? why : fmt::format("--ras {}: the answer {}", endpoint.name(), why);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

/// The exporters of GPU metrics, asked again and again. To ask nvidia_gpu_exporter takes it a run of nvidia-smi: so not
/// at each look.
class Exporters {
 public:
  explicit Exporters(const std::vector<std::string>& names) {
    for (const std::string& name : names) endpoints_.push_back(read_endpoint("--exporter", name, kDcgmPort));
  }

  /// Asks if it is time to, and notes who does not answer. `once`: that is an error.
  void read(watch::JobView& job, bool once) {
    if (endpoints_.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_) {
      next_ = now + kLeast;
      silent_.clear();
      const std::vector<MetricsAnswer> answers = ask_metrics(endpoints_, kMetricsPatience_s);
      for (std::size_t i = 0; i < answers.size(); ++i) {
        const std::string why = answers[i].why.empty()
                                    ? watch::add_gpu_metrics(job, answers[i].text, endpoints_[i].name(),
                                                             host_of(endpoints_[i]), watcher_now_ns())
                                    : answers[i].why;
        if (why.empty()) continue;
        silent_.push_back(
            answers[i].why.empty() ? fmt::format("--exporter {}: the answer {}", endpoints_[i].name(), why) : why);
        if (once) throw ConfigError(silent_.back());
      }
    }
    job.notes.insert(job.notes.end(), silent_.begin(), silent_.end());
  }

 private:
  /// Whose GPUs an exporter tells of where it does not say so.
  static std::string host_of(const Endpoint& endpoint) {
    const bool is_here = endpoint.host == "localhost" || endpoint.host == "::1" || endpoint.host.starts_with("127.");
    return is_here ? launch::host_name() : endpoint.host;
  }

  static constexpr std::chrono::seconds kLeast{5};
  std::vector<Endpoint> endpoints_;
  std::chrono::steady_clock::time_point next_{};
  std::vector<std::string> silent_;
};

/// Watches until it is interrupted or the time is over; returns the code of the last verdict.
int watch_job(const WatchArguments& arguments) {
  watch::Sources sources(arguments.sources, parse_json);
  watch::JobView job;
  const watch::JudgeOptions options{static_cast<std::int64_t>(arguments.hang_s * 1e9), arguments.stopped};
  const bool draws = !arguments.json && terminal_columns(stdout) > 0 && !arguments.once;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.for_s);
  Exporters exporters(arguments.exporters);
  std::string said;
  for (;;) {
    sources.read(job, watcher_now_ns(), arguments.once, [] { return false; });
    if (!arguments.ras.empty()) {
      const std::string why = add_ras_answer_of(read_endpoint("--ras", arguments.ras, kRasPort), sources, job);
      if (!why.empty() && arguments.once) throw ConfigError(why);
      if (!why.empty()) job.notes.push_back(why);
    }
    exporters.read(job, arguments.once);
    const std::int64_t now_ns = arguments.once ? job.newest_ns() : std::max(watcher_now_ns(), job.newest_ns());
    const watch::Judgement judgement = judge(job, now_ns, options);
    if (!arguments.metrics.empty()) write_file(arguments.metrics, watch_metrics(job, judgement, now_ns));
    if (arguments.once) {
      console().print(arguments.json ? json_text(watch_json(job, judgement, now_ns))
                                     : watch_text(job, judgement, now_ns, 0));
      return code_of(judgement.verdict);
    }
    // Sentences have seconds in them that grow: one line each time that something else is said.
    const std::string now_said = fmt::format("{} {}", to_string(judgement.verdict), [&] {
      std::string whom;
      for (const watch::Accusation& one : judgement.all) {
        whom += fmt::format("{} {} {} {} {} {} ", to_string(one.verdict), one.communicator, one.sequence, one.host,
                            one.gpu, one.trouble);
        for (const int rank : one.ranks) whom += fmt::format("{} ", rank);
      }
      return whom;
    }());
    if (draws) {
      console().redraw(watch_text(job, judgement, now_ns, terminal_columns(stdout)));
    } else if (now_said != said) {
      console().print(arguments.json ? json_line(watch_json(job, judgement, now_ns)) + "\n" : verdict_line(judgement));
    }
    said = now_said;
    const auto next = std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.every_s);
    if (arguments.for_s > 0 && next >= until) return code_of(judgement.verdict);
    std::this_thread::sleep_until(next);
  }
}

constexpr const char* kWatchHelp =
    R"(SOURCE is what a job writes anyway, a file or a folder of such files, recognised by content:
  flight recorder  dumps of PyTorch, pickle or JSON, one per rank, of NCCL or gloo
  NCCL Inspector   the .log files of its profiler plugin, as they grow
  NCCL RAS         answers of ncclras -f json, one after another; --ras asks it directly
  step handler     what fsdpbench.torch.step() writes where FSDPBENCH_WATCH names a folder: both, and signs of life
  GPU metrics      answers of dcgm-exporter or nvidia_gpu_exporter, a file per host; --exporter asks them directly
No profiler runs, and the job is sent nothing but the questions of --ras. A rank is called late, silent or hanging by
evidence that is named; where there is too little, the verdict is unknown. docs/watch.md has the rules.

Without --once the table is drawn anew until Ctrl-C; into a file or pipe goes one line whenever the verdict changes.

Examples
  fsdpbench watch /shared/watch
  fsdpbench watch nccl-inspector-4711 --metrics /var/lib/node_exporter/fsdpbench-watch.prom
  fsdpbench watch /tmp/nccl_trace --once --stopped
  fsdpbench watch --ras node-7
  fsdpbench watch /shared/watch --exporter node-7 --exporter node-8:9835

Exit codes: 0 clean, 2 a source that cannot be read, 4 metrics that cannot be written, 5 a hang, a silent rank or a
mismatch, 10 a late rank, a slow communicator or trouble with a GPU, 11 not enough to say.
)";

}  // namespace

Command watch_command() {
  const auto watched = std::make_shared<WatchArguments>();
  Command command("watch", CommandGroup::understand, "Name a late rank or a hang in a job that runs", kWatchHelp);
  Option& sources = command.argument("SOURCE", &watched->sources, "Files, or folders of them");
  sources.counts = {0, 10'000};
  sources.is_required = false;
  command.flag("--once", watched->once, "Read what is there, print, and end");
  command.option("--every", &watched->every_s, "SECONDS", "From one look to the next; default 1");
  command.option("--for", &watched->for_s, "SECONDS", "End after this time; default: at Ctrl-C");
  command.option("--hang", &watched->hang_s, "SECONDS",
                 "No rank of a healthy job waits so long in a collective; default 12");
  command.flag("--stopped", watched->stopped, "The job goes on no more: whatever waits, hangs");
  command.flag("--json", watched->json, "Print JSON: one object, or one line per change");
  command.option("--metrics", &watched->metrics, "FILE", "Write metrics for Prometheus there at each look");
  command.option("--ras", &watched->ras, "HOST:PORT", "Ask NCCL's RAS at each look; :PORT may be left out, 28028");
  command
      .option("--exporter", &watched->exporters, "HOST:PORT",
              "Ask this exporter of GPU metrics every 5 s; may be repeated; :PORT may be left out, 9400")
      .repeated();
  command.check = [watched] {
    if (watched->sources.empty() && watched->ras.empty() && watched->exporters.empty())
      throw ConfigError("watch needs a SOURCE, --ras HOST:PORT or --exporter HOST:PORT.");
    (void)Exporters(watched->exporters);
    if (!watched->ras.empty()) (void)read_endpoint("--ras", watched->ras, kRasPort);
    if (!(watched->every_s >= 0.05 && watched->every_s <= 3600))
      throw ConfigError("--every must be from 0.05 to 3600 seconds.");
    if (!(watched->for_s >= 0 && watched->for_s <= 1e8))
      throw ConfigError("--for must be from 0 to 100000000 seconds.");
    if (!(watched->hang_s >= 1 && watched->hang_s <= 1e6))
      throw ConfigError("--hang must be from 1 to 1000000 seconds.");
  };
  command.body = [watched](const Call&) { return watch_job(*watched); };
  return command;
}

}  // namespace fsdpbench::app
