#include "foreign/roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

namespace fsdpbench::app {
namespace {

std::optional<double> above_zero(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

/// Which of the two is wrong where more was achieved than is possible.
std::string whose_fault(const config::Cluster& cluster, const foreign::JobTrace& job) {
  const std::string first_word = cluster.gpu.name.substr(0, cluster.gpu.name.find(' '));
  for (const foreign::RankRows& rank : job.ranks) {
    if (!rank.device_model.empty() && rank.device_model.find(first_word) == std::string::npos) {
      return fmt::format("the trace is of {}, and {} has {}: the cluster is another one", rank.device_model,
                         cluster.name, cluster.gpu.name);
    }
  }
  return "so the sizes or the times in the trace are not those of what ran";
}

}  // namespace

std::optional<double> link_roof_gb_per_s(const config::Cluster& cluster, const foreign::ExplainedCollective& one) {
  if (one.group.size() < 2) return std::nullopt;
  std::map<int, int> in_node;
  for (const int rank : one.group) ++in_node[rank / cluster.gpus_per_node];
  if (in_node.size() == 1) {
    return above_zero(one.kind == to_string(foreign::Communication::all_reduce)
                          ? std::max(cluster.intra.peak_gb_per_s, cluster.intra.nvls_gb_per_s)
                          : cluster.intra.peak_gb_per_s);
  }
  if (cluster.inter.kind == config::InterKind::none) return std::nullopt;
  int most = 0;
  for (const auto& [node, ranks] : in_node) most = std::max(most, ranks);
  const double nics = std::max(1.0, static_cast<double>(cluster.inter.nics_per_node) * most / cluster.gpus_per_node);
  return above_zero(nics * cluster.inter.nic_gb_per_s);
}

std::optional<double> peak_tflops(const config::Cluster& cluster, std::string_view dtype) {
  const config::PeakTflops& peak = cluster.gpu.peak;
  if (dtype == "c10::BFloat16") return above_zero(peak.bf16);
  if (dtype == "c10::Half") return above_zero(peak.fp16);
  if (dtype == "float") return above_zero(std::max(peak.fp32, peak.tf32));
  if (dtype.starts_with("c10::Float8_")) return above_zero(peak.fp8);
  return std::nullopt;
}

void add_roofs(const config::Cluster& cluster, const foreign::JobTrace& job, foreign::Explanation& explanation) {
  std::string beyond;
  const auto share = [&](double achieved, double roof, const std::string& what,
                         const char* unit) -> std::optional<double> {
    if (achieved <= roof) return 100 * achieved / roof;
    if (beyond.empty()) {
      beyond = fmt::format("{} achieved {:.4g} {}, where {} has {:.4g} at most: {}.", what, achieved, unit,
                           cluster.name, roof, whose_fault(cluster, job));
    }
    return std::nullopt;
  };
  for (foreign::ProductSum& one : explanation.kernels.products) {
    one.peak_tflops = peak_tflops(cluster, one.dtype);
    if (one.peak_tflops && one.ns > 0) {
      one.share_pct =
          share(one.tflop_per_s(), *one.peak_tflops, fmt::format("matrix products of {}", one.dtype), "TFLOP/s");
    }
  }
  for (foreign::ExplainedCollective& one : explanation.collectives) {
    one.link_gb_s = link_roof_gb_per_s(cluster, one);
    if (one.link_gb_s && one.busbw_gb_s) {
      one.link_share_pct = share(*one.busbw_gb_s, *one.link_gb_s, fmt::format("{} {}", one.kind, one.unit), "GB/s");
    }
  }
  if (!beyond.empty()) explanation.notes.push_back(beyond);
}

}  // namespace fsdpbench::app
