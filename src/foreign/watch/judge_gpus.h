#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/watch/job_view.h"
#include "foreign/watch/judge_counts.h"

namespace fsdpbench::watch {

/// Adds what an exporter of GPU metrics answered, in the text format of Prometheus: NVIDIA's dcgm-exporter
/// (internal/pkg/rendermetrics/render_metrics.go and etc/default-counters.csv of it) or utkuozdemir's
/// nvidia_gpu_exporter (docs/METRICS.md). `place`: its endpoint or file. `host`: whose GPUs they are where the series
/// do not say so. `time_ns`: Unix time. Returns why it is none; empty: it is added, or left out because the exporter
/// has not asked its GPUs anew since the last time. Series of MIG instances are left out.
///
/// An Xid counts from the second look on: what is there at the first was before. dcgm-exporter by default tells only
/// the last Xid of a GPU, so that the same one again is not seen.
std::string add_gpu_metrics(JobView& job, std::string_view text, const std::string& place, const std::string& host,
                            std::int64_t time_ns);

/// Whether a text begins as one of Prometheus and has a series of one of the two.
bool may_be_gpu_metrics(std::string_view beginning);

/// What the exporters of GPU metrics say, always with Verdict::gpu. They see GPUs, not ranks, so they never lead
/// to `clean`.
///
/// *Throttled*: at each of the newest looks, at least kLeastGpuLooks over kLeastGpuSpan_ns, the GPU was busy and its
/// clock was below kLeastClock of the median of its peers, GPUs of the same model that were busy within the last
/// minute, of which there are at least three. *Idle*: for hang_ns a GPU that has been busy before was not, while at
/// least three quarters of the others that have been busy were so for as long. *Xid*: the driver reported one after the
/// first look. *NVLink errors*: within four minutes a link recovered, or replays and wrong checksums had been added at
/// each of the newest looks, as many as above. A GPU whose exporter has been silent for a minute, beside others, is
/// left out.
struct GpuFindings {
  std::vector<Accusation> all;
  std::string unknown;  ///< what they leave open: a sentence; empty: there are no GPUs
  std::vector<std::string> notes;
};
GpuFindings judge_gpus(const JobView& job, const JudgeOptions& options);

/// Whether two names are of one host: the part before the first dot, except for numeric addresses. Empty is none.
bool is_same_host(std::string_view a, std::string_view b);

inline constexpr int kLeastGpuLooks = 3;
inline constexpr std::int64_t kLeastGpuSpan_ns = 10'000'000'000;
inline constexpr double kLeastClock = 0.8;  ///< of the peers'
inline constexpr double kBusy = 0.5;        ///< of the time, at least: busy
inline constexpr double kIdle = 0.1;        ///< at most: idle

}  // namespace fsdpbench::watch
