// A gap on the device is the host's only as long as what ends it had not been launched.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include <string>

#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "support/temporary_folder.h"

namespace fsdpbench::foreign {
namespace {

using account::Cause;

constexpr double kGap_us = 493'000;

std::string row(const std::string& category, const std::string& name, int tid, double begin_us, double us,
                int correlation = -1) {
  return fmt::format(
      R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 7, "tid": {}, "ts": {:.3f}, "dur": {:.3f}{}}})", category, name,
      tid, begin_us, us,
      correlation < 0 ? ""
                      : fmt::format(R"(, "args": {{"device": 0, "stream": {}, "correlation": {}}})", tid, correlation));
}

/// A kernel on stream 7 and its launch, 5 us long.
std::string kernel(int correlation, double launched_us, double begin_us, double us) {
  return row("cuda_runtime", "cudaLaunchKernel", 11, launched_us, 5, correlation) + ",\n" +
         row("kernel", "gemm", 7, begin_us, us, correlation);
}

Explanation explained(const std::string& events) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "trace.json", R"({"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "traceEvents": [)" + events + "]}");
  const JobTrace job = read_job({path});
  return explain(job, recognise(job));
}

double ms_of(Cause cause, const Explanation& e) {
  double ms = 0;
  for (const ExplainedStep& step : e.ranks.at(0).steps) ms += static_cast<double>(step.causes[cause]) / 1e6;
  return ms;
}

/// Two kernels of 10 ms with the gap between them; the second one is launched at `launched_us`.
std::string two_kernels(double launched_us) {
  return kernel(1, 0, 8, 10'000) + ",\n" + kernel(2, launched_us, 10'008 + kGap_us, 10'000);
}

TEST(Gaps, AKernelThatWasLaunchedLateWaitedForTheHost) {
  const Explanation e = explained(two_kernels(10'000 + kGap_us));
  EXPECT_NEAR(ms_of(Cause::host_bound, e), kGap_us / 1e3, 0.001);
}

TEST(Gaps, AKernelThatWasLaunchedAsTheGapBeganDidNotWaitForTheHost) {
  const Explanation e = explained(two_kernels(10'008));
  EXPECT_LE(ms_of(Cause::host_bound, e), 0.010);
  EXPECT_NEAR(ms_of(Cause::unknown, e), kGap_us / 1e3, 0.010);
}

TEST(Gaps, AGapIsDividedWhereItsKernelWasLaunched) {
  const Explanation e = explained(two_kernels(110'008));
  EXPECT_NEAR(ms_of(Cause::host_bound, e), 100, 0.010);
  EXPECT_NEAR(ms_of(Cause::unknown, e), kGap_us / 1e3 - 100, 0.010);
}

TEST(Gaps, ACopyInAGapIsACopyAndNotTheHosts) {
  const Explanation e = explained(two_kernels(10'000) + ",\n" + row("cuda_runtime", "cudaMemcpyAsync", 11, 20, 5, 3) +
                                  ",\n" + row("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 9, 10'008, kGap_us, 3));
  EXPECT_LE(ms_of(Cause::host_bound, e), 0.010);
  EXPECT_NEAR(ms_of(Cause::copy, e) + ms_of(Cause::pcie, e), kGap_us / 1e3, 0.010);
}

// Offloading: the host is in the optimizer and gives the device nothing to compute.
TEST(Gaps, AnOptimizerThatLaunchesNothingIsTheHostsUpdate) {
  const auto with = [](double begin_us, double us) {
    return explained(two_kernels(10'000 + kGap_us) + ",\n" +
                     row("user_annotation", "Optimizer.step#AdamW.step", 11, begin_us, us));
  };
  const Explanation offloaded = with(20'000, 400'000), on_device = with(20'000, 483'000 + 2'000);
  EXPECT_NEAR(ms_of(Cause::host_update, offloaded), 400, 0.001);
  EXPECT_NEAR(ms_of(Cause::host_bound, offloaded), kGap_us / 1e3 - 400, 0.001);
  EXPECT_EQ(ms_of(Cause::host_update, on_device), 0);  // its kernel was launched within
}

// A process stands still while Python collects garbage: of the host, but no launch that took long.
TEST(Gaps, GarbageCollectionIsToldFromOtherWorkOfTheHost) {
  const Explanation e =
      explained(two_kernels(10'000 + kGap_us) + ",\n" + row("python_function", "Python GC", 11, 20'000, 300'000));
  EXPECT_NEAR(ms_of(Cause::host_bound, e), kGap_us / 1e3, 0.001);
  EXPECT_NEAR(e.garbage_ms, 300, 0.001);
  EXPECT_EQ(explained(two_kernels(10'000 + kGap_us)).garbage_ms, 0);
}

/// The gap at the end of a step ends with the first kernel of the next one.
std::string two_steps(double second_mark_us, double launched_us) {
  return row("user_annotation", "ProfilerStep#1", 11, 0, second_mark_us) + ",\n" +
         row("user_annotation", "ProfilerStep#2", 11, second_mark_us, 200) + ",\n" + two_kernels(launched_us);
}

TEST(Gaps, BetweenTwoStepsTheNextStepsLaunchTellsWhoWasLate) {
  const Explanation early = explained(two_steps(10'000, 10'008));
  ASSERT_EQ(early.ranks.at(0).steps.size(), 2U);
  EXPECT_LE(ms_of(Cause::host_bound, early), 0.010);
  EXPECT_NEAR(ms_of(Cause::unknown, early), kGap_us / 1e3, 0.010);

  const Explanation late = explained(two_steps(10'000 + kGap_us - 100, 10'000 + kGap_us));
  ASSERT_EQ(late.ranks.at(0).steps.size(), 2U);
  EXPECT_NEAR(ms_of(Cause::host_bound, late), kGap_us / 1e3, 0.001);
}

}  // namespace
}  // namespace fsdpbench::foreign
