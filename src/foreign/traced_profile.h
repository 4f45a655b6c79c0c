#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "account/counterfactual.h"
#include "clock/collective_kinds.h"
#include "config/calibration.h"
#include "config/cluster.h"
#include "config/run_config.h"
#include "foreign/adopt.h"
#include "foreign/explain.h"
#include "foreign/job_trace.h"
#include "foreign/recognise.h"
#include "tune/answer.h"
#include "tune/search.h"

namespace fsdpbench::app {

/// Adds peaks of a cluster's links beside what the job's collectives achieved: fills link_gb_s and link_share_pct. A
/// share above 100 % cannot be: it is left out, and a note says
/// whether the cluster is another one than the trace's, by the model of its GPU, or else what the trace tells is wrong.
void add_roofs(const config::Cluster& cluster, const foreign::JobTrace& job, foreign::Explanation& explanation);

/// The shape of a group of these ranks, which fill one node after another.
clock::GroupShape shape_on_nodes(const std::vector<int>& ranks, int gpus_per_node);

/// The bus bandwidth (as nccl-tests defines it) that `one` can have at most, 1e9 bytes/s: the peak of the link in a
/// node, or, where its ranks are on several nodes, their part of the nodes' NICs. An all-reduce within a node may have
/// that of NVLS, which is above the link's. Absent where the file does not tell the
/// ranks.
std::optional<double> link_roof_gb_per_s(const config::Cluster& cluster, const foreign::ExplainedCollective& one);

/// A traced job as a profile: its settings, and what its ops took.
struct TracedProfile {
  std::string program;              ///< "PyTorch FSDP2 (fully_shard)"
  config::RunConfig config;         ///< on the computed clock; simulate.calibration is for the caller to name
  config::Calibration calibration;  ///< with what a simulation of `config` misses of the traced step
  bool sized = false;               ///< the trace tells how large units are
  double step_ms = 0;               ///< of the traced job: median over its steps, of the slowest rank
};

/// Its lines are such that all ops of a kind together take what they took: a made-up model's parts need not cost what
/// the real one's do, FLOP by FLOP.
TracedProfile traced_profile(const foreign::JobTrace& job, const foreign::Recognition& found,
                             const AdoptedJob& adopted);

/// The profile as TOML, with a line that says what it is of.
std::string profile_text(const TracedProfile& profile);

/// Accuracy of a replay of a job's op times for its traced step.
///
/// [Note: gains of a traced step]
/// A replay has no gaps between the kernels of an op and knows nothing of what the host does beside issuing ops, so it
/// misses the traced step. A gain is therefore the difference of two replays, taken from the traced step; and what the
/// replay misses of that step, and what its steps scatter, are part of the gain's interval, in squares. No setting
/// makes the step shorter than what some rank does on its own: its kernels, and the time in which it waits for its
/// host or its data.
struct TracedStep {
  double step_ms = 0;      ///< median
  double replayed_ms = 0;  ///< the replay of the same ops
  double updated_ms = 0;   ///< by the host, of what lies in its memory: no op of the replay
  double scatter_ms = 0;   ///< half of the median's interval
  double computed_ms = 0;  ///< kernels of the rank that has most of them
  double least_ms = 0;     ///< what some rank does on its own
  std::string left_out;    ///< what the replay is shorter by, "straggler 12.345 ms"; empty: it is not, or nothing tells
  double replayed_all_ms() const { return replayed_ms + updated_ms; }
  double miss_ms() const { return std::abs(step_ms - replayed_all_ms()); }
};
/// The job has a typical step.
TracedStep traced_step(const foreign::Explanation& explanation, const AdoptedJob& adopted);

/// Makes a gain of replays one of the traced step, which cannot become shorter than `least_ms`.
void count_from_trace(const TracedStep& step, double least_ms, account::Counterfactual& gain);
/// Scales all steps that a search computed, and its answer.
void count_from_trace(const TracedStep& step, tune::SearchResult& result);
void count_from_trace(const TracedStep& step, tune::Answer& answer);

/// A sentence about the rank for which the others wait for more than half of their exposed communication; empty: there
/// is none. What settings gain then says nothing: the others wait all the same.
std::string held_up_because(const foreign::JobTrace& job, const foreign::Explanation& explanation);

/// "a replay of its op times takes 94.300 ms, 5.7 % less than the traced step (100.000 ms, median): …"
std::string replay_error_sentence(const TracedStep& step);

}  // namespace fsdpbench::app
