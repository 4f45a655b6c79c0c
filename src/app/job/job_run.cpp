#include "app/job/job_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "app/console/interrupt.h"
#include "app/job/config_message.h"
#include "app/machine/select_backend.h"
#include "base/error.h"
#include "config/spelling.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

constexpr std::string_view kOrder = "job.order";  // from rank 0: JSON, a run or the end
constexpr std::string_view kReady = "job.ready";  // to rank 0: JSON, whether this rank can run it
constexpr std::string_view kStart = "job.start";  // from rank 0: "go", or "skip" if a rank cannot

void send_to_others(Job& job, std::string_view topic, const std::string& payload) {
  for (int rank = 1; rank < job.ranks(); ++rank) job.channel().send(rank, topic, payload);
}

json ready() { return {{"code", 0}}; }
json not_ready(const std::string& why, ExitCode code) { return {{"code", static_cast<int>(code)}, {"message", why}}; }

/// Prepares what was ordered; what is wrong with it goes to rank 0.
std::optional<PreparedRun> prepare_order(const json& order, int local_ranks, json& answer) {
  try {
    PreparedRun prepared = prepare_run(config_from_message(order.at("config").get<std::string>()), local_ranks);
    answer = ready();
    return prepared;
  } catch (const Error& error) {
    answer = not_ready(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    answer = not_ready("memory ran out", ExitCode::no_resources);
  } catch (const std::exception& error) {
    answer = not_ready(error.what(), ExitCode::failure);
  }
  return std::nullopt;
}

void serve_run(Job& job, const json& order) {
  job.watch().doing("preparing a run");
  json answer;
  const std::optional<PreparedRun> prepared = prepare_order(order, job.session().placement().local_ranks, answer);
  job.channel().send(0, kReady, answer.dump(-1, ' ', false, json::error_handler_t::replace));
  if (job.channel().receive(0, kStart) != "go") return;

  JobRun run(job, *prepared, order.at("folder").get<std::string>(), order.at("frame"));
  engine::RunHooks hooks;
  hooks.stop = interrupt_requested;
  hooks.done = &run.done();
  const engine::Setup& p = prepared->setup;
  const auto backend = select_backend(std::string(config::to_string(p.config.device.backend)));
  job.watch().doing("training");
  engine::run(*backend, p, *prepared->data, hooks, &job.session());
  run.ended();
}

}  // namespace

void JobRun::announce(Job& job, const PreparedRun& prepared, const std::filesystem::path& folder, const json& frame) {
  const json order{{"config", to_message(prepared.setup.config)},
                   {"folder", folder.empty() ? "" : std::filesystem::absolute(folder).string()},
                   {"frame", frame}};
  send_to_others(job, kOrder, order.dump());
  json refusal;
  int refuser = 0;
  for (int rank = 1; rank < job.ranks(); ++rank) {
    const json answer = json::parse(job.channel().receive(rank, kReady));
    if (answer.at("code") == 0 || refuser > 0) continue;
    refuser = rank;
    refusal = answer;
  }
  send_to_others(job, kStart, refuser > 0 ? "skip" : "go");
  if (refuser > 0) {
    throw Error(fmt::format("rank {}: {}", refuser, refusal.at("message").get<std::string>()),
                static_cast<ExitCode>(refusal.at("code").get<int>()));
  }
}

void JobRun::announce_end(Job& job, int code) { send_to_others(job, kOrder, json{{"end", code}}.dump()); }

JobRun::JobRun(Job& job, const PreparedRun& prepared, std::filesystem::path folder, json frame)
    : job_(job), rescue_(std::move(folder), std::move(frame), prepared.setup, job.rank()) {
  job_.watch().save_with(&rescue_);
}

JobRun::~JobRun() { job_.watch().save_with(nullptr); }

int serve(Job& job) {
  for (;;) {
    job.watch().doing("waiting for rank 0");
    const json order = json::parse(job.channel().receive(0, kOrder));
    if (order.contains("end")) return order["end"];
    serve_run(job, order);
  }
}

}  // namespace fsdpbench::app
