#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "account/find_stalls.h"
#include "account/run_view.h"
#include "account/typical_stalls.h"
#include "base/link_model.h"
#include "engine/setup.h"
#include "hardware/gpu_health.h"
#include "runs/trial.h"
#include "trace/explanation.h"

namespace fsdpbench::app {

/// Why ranks did not compute, what was live when, and what their steps could have been: of any step of a trial, for its
/// timeline. A trace::ExplanationOf; setup and trial must outlive it.
class TraceExplanation {
 public:
  /// The trial must have measured steps.
  TraceExplanation(const engine::Setup& setup, const Trial& trial);

  /// `rank` and `step`: places in the trial's traces and in their steps.
  trace::StepExplanation operator()(std::size_t rank, std::size_t step) const;

 private:
  /// What of them is jitter; nothing where the trial has no typical step.
  std::vector<account::ToldStall> told_apart(const account::StepRecords& step, int place,
                                             const std::vector<account::Stall>& stalls) const;

  /// Of the rank's GPU: the last one before the step begins, and those until the next one does.
  std::span<const GpuSample> gpu_samples(std::size_t rank, std::size_t step) const;

  const engine::Setup& setup_;
  const engine::Measurement& measured_;
  account::RunView run_;
  const account::TypicalStalls* typical_ = nullptr;
  account::EvenRows even_rows_;
  std::array<std::string, account::kCauseCount> advice_;  // by cause
};

/// What to do about a cause that is too small for the trial's list of causes.
inline constexpr const char* kNothingToGain = "This cause takes less than 2 % of the step: there is little to gain.";
/// About what a step took beyond the typical one.
inline constexpr const char* kBeyondTypical = "Beyond the typical step: this does not repeat, and has no cause.";
/// What to do about one for which the trial has no advice.
inline constexpr const char* kNothingCertain = "Of no change is it certain that it would make the step shorter.";

}  // namespace fsdpbench::app
