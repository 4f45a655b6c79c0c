#include "runs/job_run.h"

#include <fmt/format.h>
#include <unistd.h>
#include <atomic>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/spelling.h"
#include "hardware/other_work.h"
#include "launch/clock_offset.h"
#include "launch/control_channel.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/job.h"
#include "runs/job_watch.h"
#include "runs/select_backend.h"

namespace fsdpbench::app {

engine::Measurement train_until_interrupted(const Cell& cell, const engine::RunHooks& given) {
  std::atomic<bool> over = false;
  launch::Abort now;
  const AfterInterrupt cuts(kPatienceWithSteps_s, [&] {
    if (!over) now.set(std::make_exception_ptr(Interrupted()));
  });
  const AfterInterrupt ends(kPatienceWithAll_s, [&] {
    if (over) return;
    console().warning("interrupted in the middle of a step");
    _exit(static_cast<int>(ExitCode::interrupted));
  });
  engine::RunHooks hooks = given;
  hooks.interrupt = &now;
  hooks.steps_over = [&] { over = true; };
  engine::Measurement measurement = train_on_threads(cell, hooks);
  over = true;  // also if it was cut short
  return measurement;
}

namespace {

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

/// Answer of a rank to an order.
struct Answer {
  int code = 0;  ///< an ExitCode; 0: it is ready
  std::string message;
};

Answer answer_from(const JsonPart& part) {
  return {static_cast<int>(part.at("code").whole(0, 255)), part.text("message", "")};
}

/// Order of rank 0 to the others.
struct Order {
  std::optional<int> end;  ///< the job is over, with this exit code; then the rest is empty
  std::string service;     ///< its name, with what it is to do in `with`; empty: train the cell of `config`
  json with;
  std::string config;  ///< to_message()
};

Order order_from(const JsonPart& part) {
  if (part.has("end")) return {static_cast<int>(part.at("end").whole(0, 255)), {}, {}, {}};
  if (part.has("service")) return {{}, part.at("service").text(), part.at("with").value(), {}};
  return {{}, {}, {}, part.at("config").text()};
}

void send_to_others(Job& job, std::string_view topic, const std::string& payload) {
  for (int rank = 1; rank < job.ranks(); ++rank) job.channel().send(rank, topic, payload);
}

json ready() { return {{"code", 0}}; }
json not_ready(const std::string& why, ExitCode code) { return {{"code", static_cast<int>(code)}, {"message", why}}; }

/// Opens the cell that was ordered; what is wrong with it goes to rank 0.
std::optional<Cell> open_ordered(const Order& order, int local_ranks, json& answer) {
  try {
    Cell cell = open_cell(config_from_message(order.config), local_ranks);
    answer = ready();
    return cell;
  } catch (const Error& error) {
    answer = not_ready(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    answer = not_ready("memory ran out", ExitCode::no_resources);
  } catch (const std::exception& error) {
    answer = not_ready(error.what(), ExitCode::failure);
  }
  return std::nullopt;
}

/// Rank 0: gives the cell to all others and waits until they are ready for it.
void announce(Job& job, const Cell& cell) {
  send_to_others(job, kOrder, json_line({{"config", to_message(cell.setup.config)}}));
  Answer refusal;
  int refuser = 0;
  for (int rank = 1; rank < job.ranks(); ++rank) {
    const Answer answer = message_from(job, rank, kReady, answer_from);
    if (answer.code == 0 || refuser > 0) continue;
    refuser = rank;
    refusal = answer;
  }
  send_to_others(job, kStart, refuser > 0 ? "skip" : "go");
  if (refuser > 0) {
    throw Error(fmt::format("rank {}: {}", refuser, refusal.message), static_cast<ExitCode>(refusal.code));
  }
}

/// The share of the busiest host's processors that other programs than the job's ranks took. On rank 0. Collective.
double taken_from(Job& job, const ProcessorTime& before, const std::vector<std::string>& hosts) {
  const ProcessorTime mine = since(before);
  std::vector<ProcessorUse> uses;
  for (const std::string& text : launch::gather(job.session().control(), "processors",
                                                fmt::format("{} {} {}", mine.machine_s, mine.busy_s, mine.own_s))) {
    ProcessorTime time;
    std::istringstream(text) >> time.machine_s >> time.busy_s >> time.own_s;
    if (uses.size() < hosts.size()) uses.push_back({hosts[uses.size()], time});
  }
  return taken_by_others(uses, false);
}

/// This process's rank of a cell that all have agreed on.
engine::Measurement train_rank(Job& job, const Cell& cell, engine::RunHooks hooks) {
  hooks.resume = cell.resume.get();
  hooks.steps_over = [&] { job.watch().doing("bringing the ranks' records together"); };
  const auto backend = select_backend(std::string(config::to_string(cell.setup.config.device.backend)));
  job.watch().doing("training", JobWatch::Work::may_be_cut);
  const ProcessorTime before = processor_time();
  engine::Measurement measurement = engine::run(*backend, cell.setup, *cell.data, hooks, &job.session());
  measurement.others_share = taken_from(job, before, measurement.hosts);
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
  train_rank(job, *cell, hooks);
}

}  // namespace

Train train_on_job(Job& job) {
  return [&job](const Cell& cell, const engine::RunHooks& hooks) {
    job.watch().doing("preparing a run", JobWatch::Work::may_be_cut);
    announce(job, cell);
    engine::Measurement measurement = train_rank(job, cell, hooks);
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
      service->second(job, JsonPart(order.with));
      continue;
    }
    serve_cell(job, order);
  }
}

}  // namespace fsdpbench::app
