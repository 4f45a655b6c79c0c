#pragma once

#include <optional>
#include <string_view>

#include "config/cluster.h"
#include "foreign/explain.h"
#include "foreign/job_trace.h"

namespace fsdpbench::app {

/// What a cluster's links and GPUs can do at most, beside what the job's collectives and matrix products achieved:
/// fills link_gb_s, peak_tflops and the shares of them. A share above 100 % cannot be: it is left out, and a note says
/// whether the cluster is another one than the trace's, by the model of its GPU, or else what the trace tells is wrong.
void add_roofs(const config::Cluster& cluster, const foreign::JobTrace& job, foreign::Explanation& explanation);

/// The bus bandwidth (as nccl-tests defines it) that `one` can have at most, 1e9 bytes/s: the peak of the link in a
/// node, or, where its ranks are on several nodes, their part of the nodes' NICs. An all-reduce within a node may have
/// that of NVLS, which is above the link's. Ranks fill one node after another. Absent where the file does not tell the
/// ranks.
std::optional<double> link_roof_gb_per_s(const config::Cluster& cluster, const foreign::ExplainedCollective& one);

/// Dense peak of products of a dtype as PyTorch calls it ("c10::BFloat16"), 1e12 FLOP/s. For "float" that of TF32,
/// where there is one, because a trace does not tell whether it was allowed. Absent for what the cluster has no figure
/// for.
std::optional<double> peak_tflops(const config::Cluster& cluster, std::string_view dtype);

}  // namespace fsdpbench::app
