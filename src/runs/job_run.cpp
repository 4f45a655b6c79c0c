#include "runs/job_run.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/spelling.h"
#include "hardware/other_work.h"
#include "launch/clock_offset.h"
#include "launch/control_channel.h"
#include "launch/interrupt.h"
#include "launch/session.h"
#include "record/console.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "runs/build_info.h"
#include "runs/job_watch.h"
#include "runs/result_json.h"
#include "runs/select_backend.h"

namespace fsdpbench::app {
namespace {

/// Saves, and says so; what cannot be saved is said, too.
void save(RunRescue& rescue, const launch::JobFailure* failure) {
  try {
    if (const std::string saved = rescue.save(failure); !saved.empty()) console().warning(saved);
  } catch (const std::exception& error) {
    console().warning(fmt::format("what was measured could not be saved: {}", error.what()));
  }
}

/// A lane says which rank it is of: "rank 2, lane compute, op forward 1: …"; a host thread has left a note.
int rank_that_failed(std::string_view message, const RunRescue& rescue) {
  constexpr std::string_view kRank = "rank ";
  int rank = -1;
  if (message.starts_with(kRank)) {
    std::from_chars(message.data() + kRank.size(), message.data() + message.size(), rank);
  }
  return rank >= 0 ? rank : std::max(0, rescue.failed_rank());
}

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kOrder = "job.order";  // from rank 0: JSON, a cell or the end
constexpr std::string_view kReady = "job.ready";  // to rank 0: JSON, whether this rank can run it
constexpr std::string_view kStart = "job.start";  // from rank 0: "go", or "skip" if a rank cannot

/// Result of `read` for the next message of `rank` on `topic`. Throws BackendError that names the rank if it is not of
/// the kind that `read` expects.
template <class Read>
auto message_from(Job& job, int rank, std::string_view topic, const Read& read) {
  const json message = parse_json(job.channel().receive(rank, topic));
  try {
    return read(JsonPart(message));
  } catch (const ConfigError& error) {
    throw BackendError(fmt::format("rank {} sent something else than a message of fsdpbench ({}: {})", rank, topic,
                                   message.is_discarded() ? "it is not JSON" : error.what()));
  }
}

/// Answer of a rank to an order: an ExitCode, 0 if it is ready, and why it is not.
using Answer = std::pair<int, std::string>;

Answer answer_from(const JsonPart& part) {
  return {static_cast<int>(part.at("code").whole(0, 255)), part.text("message", "")};
}

/// Order of rank 0 to the others.
struct Order {
  std::optional<int> end;  ///< the job is over, with this exit code; then the rest is empty
  std::string service;     ///< its name, with what it is to do in `frame`; empty: train; then the rest is of a cell
  std::string config;      ///< to_message()
  std::string folder;      ///< RunRescue's, as the next
  json frame;
};

Order order_from(const JsonPart& part) {
  if (part.has("end")) return {static_cast<int>(part.at("end").whole(0, 255)), {}, {}, {}, {}};
  if (part.has("service")) return {{}, part.at("service").text(), {}, {}, part.at("with").value()};
  const JsonPart frame = part.at("frame");
  if (!frame.value().is_null()) (void)frame.at("train").members();
  return {{}, {}, part.at("config").text(), part.at("folder").text(), frame.value()};
}

void send_to_others(Job& job, std::string_view topic, const std::string& payload) {
  for (int rank = 1; rank < job.ranks(); ++rank) job.channel().send(rank, topic, payload);
}

json answer_of(ExitCode code, const std::string& why) { return {{"code", static_cast<int>(code)}, {"message", why}}; }

/// Opens the cell that was ordered; what is wrong with it goes to rank 0.
std::optional<Cell> open_ordered(const Order& order, int local_ranks, json& answer) {
  try {
    Cell cell = open_cell(config_from_message(order.config), local_ranks);
    answer = answer_of(ExitCode::ok, "");
    return cell;
  } catch (const Error& error) {
    answer = answer_of(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    answer = answer_of(ExitCode::no_resources, "memory ran out");
  } catch (const std::exception& error) {
    answer = answer_of(ExitCode::failure, error.what());
  }
  return std::nullopt;
}

/// Rank 0: gives the cell to all others and waits until they are ready for it.
void announce(Job& job, const Cell& cell, const fs::path& folder, const json& frame) {
  const json order{{"config", to_message(cell.setup.config)},
                   {"folder", folder.empty() ? "" : fs::absolute(folder).string()},
                   {"frame", frame}};
  send_to_others(job, kOrder, json_line(order));
  Answer refusal;
  int refuser = 0;
  for (int rank = 1; rank < job.ranks(); ++rank) {
    Answer answer = message_from(job, rank, kReady, answer_from);
    if (answer.first == 0 || refuser > 0) continue;
    refuser = rank;
    refusal = std::move(answer);
  }
  send_to_others(job, kStart, refuser > 0 ? "skip" : "go");
  if (refuser > 0) {
    throw Error(fmt::format("rank {}: {}", refuser, refusal.second), static_cast<ExitCode>(refusal.first));
  }
}

/// The share of the busiest host's processors that other programs than the job's ranks took. On rank 0. Collective.
double taken_from(Job& job, const ProcessorTime& before, const std::vector<std::string>& hosts) {
  const ProcessorTime mine = since(before);
  std::vector<ProcessorUse> uses;
  const std::string told = message_of(std::vector{mine.machine_s, mine.busy_s, mine.own_s});
  for (const std::vector<double>& s :
       read_messages<std::vector<double>>(launch::gather(job.session().control(), "processors", told))) {
    if (uses.size() < hosts.size()) uses.push_back({hosts[uses.size()], {s.at(0), s.at(1), s.at(2)}});
  }
  return taken_by_others(uses, false);
}

/// This process's rank of a cell that all have agreed on. While it trains, what it has done is saved if the job fails.
engine::Measurement train_rank(Job& job, const Cell& cell, engine::RunHooks hooks, fs::path folder, json frame) {
  RunRescue rescue(std::move(folder), std::move(frame), cell.setup, job.rank());
  const struct Guard {
    Guard(JobWatch& of_job, RunRescue& saves) : watch(of_job) { watch.save_with(&saves); }
    ~Guard() { watch.save_with(nullptr); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    JobWatch& watch;
  } guard(job.watch(), rescue);
  hooks.done = rescue.done();
  hooks.resume = cell.resume.get();
  hooks.steps_over = [&] { job.watch().doing("bringing the ranks' records together"); };
  const auto backend = select_backend(std::string(config::to_string(cell.setup.config.device.backend)));
  job.watch().doing("training", JobWatch::Work::may_be_cut);
  const ProcessorTime before = processor_time();
  engine::Measurement measurement = engine::run(*backend, cell.setup, *cell.data, hooks, &job.session());
  measurement.others_share = taken_from(job, before, measurement.hosts);
  rescue.close();
  return measurement;
}

void serve_cell(Job& job, const Order& order) {
  job.watch().doing("preparing a run", JobWatch::Work::may_be_cut);
  json answer;
  const std::optional<Cell> cell = open_ordered(order, job.session().placement().local_ranks, answer);
  job.channel().send(0, kReady, json_line(answer));
  if (job.channel().receive(0, kStart) != "go") return;
  engine::RunHooks hooks;
  hooks.stop = interrupt_requested;
  train_rank(job, *cell, hooks, order.folder, order.frame);
}

}  // namespace

Train train_on_kept_threads(std::filesystem::path folder, World world) {
  return [folder = std::move(folder), world = std::move(world)](const Cell& cell, const engine::RunHooks& given) {
    const auto ranks = static_cast<int>(cell.setup.config.mesh.ranks);
    RunRescue rescue(folder, folder.empty() ? nlohmann::json() : result_frame(cell.setup, world), cell.setup, 0, ranks);
    const auto measured = [&] { return !rescue.done()->snapshot().trace.steps.empty(); };
    std::atomic<bool> over = false;
    launch::Abort now;
    const AfterInterrupt cuts(kPatienceWithSteps_s, [&] {
      if (!over) now.set(std::make_exception_ptr(Interrupted()));
    });
    const AfterInterrupt ends(kPatienceWithAll_s, [&] {
      if (over) return;
      console().warning("interrupted in the middle of a step");
      if (measured()) save(rescue, nullptr);
      _exit(static_cast<int>(ExitCode::interrupted));
    });
    engine::RunHooks hooks = given;
    hooks.done = rescue.done();
    hooks.interrupt = &now;
    hooks.steps_over = [&] { over = true; };
    try {
      engine::Measurement measurement = train_on_threads(cell, hooks);
      over = true;  // also if it was cut short
      rescue.close();
      return measurement;
    } catch (const std::exception& error) {
      if (!measured()) throw;
      const launch::JobFailure failure{rank_that_failed(error.what(), rescue), false, error.what()};
      save(rescue, &failure);
      throw;
    }
  };
}

Train train_on_job(Job& job, fs::path folder, World world) {
  return [&job, folder = std::move(folder), world = std::move(world)](const Cell& cell, const engine::RunHooks& hooks) {
    const json frame = folder.empty() ? json() : result_frame(cell.setup, world);
    job.watch().doing("preparing a run", JobWatch::Work::may_be_cut);
    announce(job, cell, folder, frame);
    engine::Measurement measurement = train_rank(job, cell, hooks, folder, frame);
    job.watch().doing("computing metrics and writing results");
    return measurement;
  };
}

void announce_end(Job& job, int code) { send_to_others(job, kOrder, json_line({{"end", code}})); }

void order_service(Job& job, const std::string& name, const json& order) {
  send_to_others(job, kOrder, json_line({{"service", name}, {"with", order}}));
}

int serve(Job& job, const Services& services) {
  for (;;) {
    job.watch().doing("waiting for rank 0");
    const Order order = message_from(job, 0, kOrder, order_from);
    if (order.end) return *order.end;
    if (!order.service.empty()) {
      const auto service = services.find(order.service);
      if (service == services.end()) {
        throw BackendError(fmt::format("rank 0 ordered '{}', which this process does not know", order.service));
      }
      service->second(job, JsonPart(order.frame));
      continue;
    }
    serve_cell(job, order);
  }
}

std::string to_message(const config::RunConfig& config) {
  std::string text;
  for (const config::Field& field : config::fields()) {
    text += fmt::format("{}={}\n", field.name(), config::to_toml(field.write(config)));
  }
  return text;
}

config::RunConfig config_from_message(std::string_view text) {
  config::RunConfig config;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const config::Entry entry = config::read_override(line);
    const config::Field* field = config::find_field(entry.name);
    if (field == nullptr || !field->read(config, entry.value)) {
      throw BackendError(fmt::format("rank 0 sent a configuration that this process cannot read: '{}'", line));
    }
  }
  return config;
}

Job::Job(const launch::Placement& placement)
    : session_(launch::join(placement, {.version = version_line()})), watch_(session_->control()) {
  obey_launcher();
}

Job::~Job() {
  // The watch goes last: leaving may wait for others.
  watch_.leave();
  session_.reset();
}

std::string Job::headline() const {
  return fmt::format("{} ranks: one process each, as {} says; messages go by {}; rank 0 took them in at {}", ranks(),
                     session_->placement().source, session_->transport(), session_->door());
}

}  // namespace fsdpbench::app
