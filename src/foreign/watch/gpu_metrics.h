#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "foreign/watch/job_view.h"

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

}  // namespace fsdpbench::watch
