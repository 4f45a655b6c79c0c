#include "runs/run_rescue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/read_input.h"
#include "config/write.h"
#include "record/json_text.h"
#include "runs/result_folder.h"
#include "runs/result_schema.h"
#include "runs/trace_files.h"

namespace fsdpbench::app {

namespace fs = std::filesystem;
using nlohmann::json;

RunRescue::RunRescue(fs::path folder, json frame, const engine::Setup& setup, int rank, int ranks_here)
    : folder_(std::move(folder)),
      frame_(std::move(frame)),
      setup_(setup),
      rank_(rank),
      ranks_here_(ranks_here),
      done_(std::make_unique<engine::DoneSteps[]>(static_cast<std::size_t>(ranks_here))) {}

int RunRescue::failed_rank() const {
  for (int i = 0; i < ranks_here_; ++i) {
    if (done_[static_cast<std::size_t>(i)].failed()) return rank_ + i;
  }
  return -1;
}

void RunRescue::write_result(const launch::JobFailure* failure, const engine::DoneSteps::Snapshot& done) {
  json j = frame_;
  j["complete"] = false;
  if (failure != nullptr) {
    j["failure"] = {{"rank", failure->rank}, {"died", failure->died}, {"message", failure->message}};
  }
  j["train"]["steps_done"] = done.steps;
  j["steps"] = {{"rank", rank_}, {"rank_ms", json::array()}};
  for (const trace::StepWindow& step : done.trace.steps) {
    j["steps"]["rank_ms"].push_back(static_cast<double>(step.end_ns - step.begin_ns) / 1e6);
  }
  write_file(folder_ / "config.toml", config::to_toml(setup_.config));
  write_file(folder_ / "result.json", result_text(j));
}

bool RunRescue::result_is_missing() const {
  // Ranks cannot talk to each other without rank 0. The folder is what they share: the lower the rank, the earlier it
  // looks. Launchers give a second.
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(100 * rank_, 500)));
  std::error_code error;
  return !fs::exists(folder_ / "result.json", error);
}

bool RunRescue::verdict_is_there() const {
  try {
    const json result = parse_json(read_input(folder_ / "result.json", kMostOfAResult, ""));
    return result.is_object() && result.contains("failure");
  } catch (const ConfigError&) {
    return false;
  }
}

std::string RunRescue::save(const launch::JobFailure* failure) {
  const std::lock_guard lock(mutex_);
  if (closed_ || folder_.empty()) return "";
  if (failure != nullptr) closed_ = true;
  const engine::DoneSteps::Snapshot done = done_[0].snapshot();
  const bool root_died = failure != nullptr && failure->rank == 0 && failure->died;
  bool writes = rank_ == (root_died ? 1 : 0);
  // The others have given this rank 0 up while it was stopped, and have said so already.
  if (rank_ == 0 && failure != nullptr && failure->rank == 0 && verdict_is_there()) writes = false;
  if (writes) write_result(failure, done);  // before the trace, which takes longer
  for (int i = 0; i < ranks_here_; ++i) {
    trace::RankTrace trace = done_[static_cast<std::size_t>(i)].snapshot().trace;
    trace.rank = rank_ + i;
    if (!trace.steps.empty()) write_rank_file(folder_, setup_, trace);
  }
  if (root_died && rank_ > 1 && result_is_missing()) {
    writes = true;
    write_result(failure, done);
  }
  if (!writes) return "";
  return fmt::format(
      "the {} steps that rank {} had done are in {}, marked \"complete\": false, and in the traces of "
      "{} beside it",
      done.steps, rank_, (folder_ / "result.json").string(), ranks_here_ > 1 ? "all ranks" : "the surviving ranks");
}

void RunRescue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

}  // namespace fsdpbench::app
