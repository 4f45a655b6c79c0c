#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "account/find_stalls.h"
#include "account/run_view.h"
#include "account/typical_step.h"
#include "base/error.h"
#include "engine/setup.h"
#include "hardware/gpu_health.h"
#include "runs/trial.h"
#include "trace/facts.h"
#include "trace/record.h"

namespace fsdpbench::app {

/// Waits of ranks, live memory, and what their steps could have been: an explanation of any step of a trial, for its
/// timeline. A trace::ExplanationOf; setup and trial must outlive it.
class TraceExplanation {
 public:
  /// The trial must have measured steps.
  TraceExplanation(const engine::Setup& setup, const Trial& trial);

  /// `rank` and `step`: places in the trial's traces and in their steps.
  trace::StepExplanation operator()(std::size_t rank, std::size_t step) const;

 private:
  /// Part of them that is jitter; nothing where the trial has no typical step.
  std::vector<account::ToldStall> told_apart(const account::StepRecords& step, int place,
                                             const std::vector<account::Stall>& stalls) const;

  /// Samples of the rank's GPU: the last one before the step begins, and those until the next one does.
  std::span<const GpuSample> gpu_samples(std::size_t rank, std::size_t step) const;

  const engine::Setup& setup_;
  const engine::Measurement& measured_;
  account::RunView run_;
  const account::TypicalStalls* typical_ = nullptr;
  account::EvenRows even_rows_;
  std::array<std::string, account::kCauseCount> advice_;  // by cause
};

/// Advice for a cause that is too small for the trial's list of causes.
inline constexpr const char* kNothingToGain = "This cause takes less than 2 % of the step: there is little to gain.";
/// About what a step took beyond the typical one.
inline constexpr const char* kBeyondTypical = "Beyond the typical step: this does not repeat, and has no cause.";
/// Advice for one for which the trial has none.
inline constexpr const char* kNothingCertain = "Of no change is it certain that it would make the step shorter.";

/// Several files of one result. Each is tried: one that does not fit on the disk keeps no smaller one out, and each
/// that is missing is named. For one thread.
class AllFiles {
 public:
  /// Calls `file`, which writes one. What it throws is kept for finish(), whatever it is: a mistake in one writer must
  /// not cost the files of the others.
  void write(const std::function<void()>& file) {
    try {
      file();
    } catch (const OutputError& error) {
      if (failures_.size() < kMostNamed) failures_.emplace_back(error.what());
      ++failed_;
    } catch (const std::exception&) {
      if (!other_) other_ = std::current_exception();
    }
  }

  /// Throws one OutputError that names the files that could not be written: all, or the first kMostNamed and how many
  /// more; or else the first exception of another kind. To be called once, after the last.
  void finish() const {
    if (failed_ == 0 && other_) std::rethrow_exception(other_);
    if (failed_ == 0) return;
    std::string message = failures_.front();
    for (std::size_t i = 1; i < failures_.size(); ++i) message += "; " + failures_[i];
    if (failed_ > kMostNamed) message += "; and " + std::to_string(failed_ - kMostNamed) + " files more";
    throw OutputError(message);
  }

 private:
  static constexpr std::size_t kMostNamed = 20;
  std::vector<std::string> failures_;
  std::size_t failed_ = 0;
  std::exception_ptr other_;
};

/// The ranks that trace.json shows, sorted: all if there are no more than `most` or that is 0; else rank 0, the
/// slowest, those that others waited for (the causes' late ranks), then the lowest, until there are `most`.
std::vector<int> shown_ranks(const Trial& trial, std::int64_t most);

/// Writes what src/trace/FORMAT.md describes into `folder`: trace.json with the shown ranks, and trace/rank_N.json.gz
/// of every rank. Throws OutputError.
void write_trace_files(const std::filesystem::path& folder, const engine::Setup& setup, const Trial& trial);

/// The slowest measured step of a trial alone, of the shown ranks, as trace.json has it, in `path`. Does nothing if no
/// step was measured. Throws OutputError.
void write_worst_step(const std::filesystem::path& path, const engine::Setup& setup, const Trial& trial);

/// One rank's file alone, on its own time line: trace/rank_N.json.gz. Throws OutputError.
void write_rank_file(const std::filesystem::path& folder, const engine::Setup& setup, const trace::RankTrace& trace);

}  // namespace fsdpbench::app
