#include "runs/job_watch.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <exception>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/read_input.h"
#include "config/write.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/result_file.h"
#include "runs/result_folder.h"
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
      done_(std::make_unique<engine::DoneSteps[]>(ranks_here)) {}

int RunRescue::failed_rank() const {
  for (int i = 0; i < ranks_here_; ++i) {
    if (done_[i].failed()) return rank_ + i;
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
    trace::RankTrace trace = done_[i].snapshot().trace;
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
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
/// A signal this long before the first rank was lost was the user's; launchers send theirs when a rank is lost.
constexpr std::int64_t kUsersLead_ns = 500 * kMs;
/// Message of a rank to the others when it ends the job because of the user's signal, which they may not have had.
constexpr std::string_view kCut = "interrupted by its user before it was ready";

std::int64_t ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

JobWatch::JobWatch(launch::ControlChannel& channel, Patience patience)
    : channel_(channel),
      rank_(channel.rank()),
      patience_(patience),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

JobWatch::~JobWatch() = default;

void JobWatch::watch(const std::stop_token& stop) {
  std::int64_t looked_ns = now_ns();
  while (!stop.stop_requested()) {
    const std::int64_t late_ns = now_ns() - looked_ns - std::chrono::nanoseconds(kBetweenLooks).count();
    if (late_ns > standstill_ns_.load()) standstill_ns_.store(late_ns);
    {
      const std::lock_guard lock(mutex_);
      const std::int64_t now = now_ns();
      if (!left_) look(now);
      if (deadline_ns_ > 0 && now > deadline_ns_) give_up(code_);
    }
    looked_ns = now_ns();  // what a failure took to be dealt with is no standstill
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

bool JobWatch::look(std::int64_t now) {
  if (failure_) return true;
  if (const std::optional<launch::JobFailure> failure = channel_.failure()) {
    handle(*failure, now);
    return true;
  }
  if (interrupt_requested()) save_interrupted();
  if (interrupt_requested() && may_be_cut_ && now - interrupt_time_ns() > ns(kPatienceWithAll_s)) {
    channel_.fail(fmt::format("rank {} was {}: it was {}", rank_, kCut, doing_.load()));
  }
  return false;
}

void JobWatch::handle(const launch::JobFailure& failure, std::int64_t now) {
  failure_ = failure;
  deadline_ns_ = now + ns(patience_.after_failure_s);
  const std::int64_t interrupted = interrupt_time_ns();
  const bool users =
      (interrupted > 0 && now - interrupted > kUsersLead_ns) || failure.message.find(kCut) != std::string::npos;
  code_ = static_cast<int>(users ? ExitCode::interrupted : failure.code);
  std::string saved;
  try {
    if (rescue_ != nullptr) saved = rescue_->save(users ? nullptr : &failure);
  } catch (const std::exception& error) {
    console().warning(fmt::format("rank {}: what was measured could not be saved: {}", rank_, error.what()));
  }
  say(failure, saved);
}

void JobWatch::save_interrupted() {
  if (saved_interrupted_ || rescue_ == nullptr || rank_ != 0) return;
  saved_interrupted_ = true;
  try {
    // mpirun kills what still runs a second after Ctrl-C. The run's own end replaces this, if there is time for that.
    rescue_->save(nullptr);
  } catch (const std::exception& error) {
    console().warning(fmt::format("what was measured could not be saved: {}", error.what()));
  }
}

void JobWatch::say(const launch::JobFailure& failure, const std::string& saved) {
  const bool without_root = failure.rank == 0 && failure.died;
  const bool speaks = rank_ == 0 || failure.rank == rank_ || (without_root && (rank_ == 1 || !saved.empty()));
  if (!speaks) return;
  if (code_ == static_cast<int>(ExitCode::interrupted)) {
    console().warning("interrupted before the step was over");
  } else {
    console().error(failure.message);
  }
  if (!saved.empty()) console().warning(saved);
}

void JobWatch::give_up(int code) const {
  console().error(
      fmt::format("rank {} had to be ended: it was still {} {}", rank_, doing_.load(),
                  failure_ ? fmt::format("{:g} s after the failure of the job was known", patience_.after_failure_s)
                           : fmt::format("{:g} s after its work had ended", patience_.to_leave_s)));
  _exit(code);
}

void JobWatch::save_with(RunRescue* rescue) {
  const std::lock_guard lock(mutex_);
  look(now_ns());
  rescue_ = rescue;
}

std::optional<int> JobWatch::failure_code(double patience_s) {
  const std::int64_t until = now_ns() + ns(patience_s);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (look(now_ns())) return code_;
    }
    if (now_ns() >= until) return std::nullopt;
    std::this_thread::sleep_for(kBetweenLooks / 4);
  }
}

void JobWatch::leave() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  doing_ = "leaving";
  if (!failure_) code_ = static_cast<int>(ExitCode::rank_failed);
  if (deadline_ns_ == 0) deadline_ns_ = now_ns() + ns(patience_.to_leave_s);
}

}  // namespace fsdpbench::app
