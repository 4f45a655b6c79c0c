#include "config/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum_table.h"
#include "base/error.h"
#include "config/fields.h"
#include "config/find_file.h"
#include "config/nearest.h"
#include "config/toml_file.h"

namespace fsdpbench::config {

template <>
inline constexpr EnumNames<IntraKind> kNames<IntraKind>{"nvswitch", "nvlink", "xgmi", "pcie", "memory"};
template <>
inline constexpr EnumNames<InterKind> kNames<InterKind>{"none", "infiniband", "roce", "efa", "ethernet"};

namespace {

/// One key of a cluster file.
struct ClusterField {
  std::string name;   ///< "gpu.sms"
  std::string valid;  ///< the end of "… is not valid; expected "
  bool required;
  std::function<bool(Cluster&, const Value&)> read;
};

template <class At>
ClusterField number_field(std::string name, At at, double low, double high, bool required = true) {
  return {std::move(name), fmt::format("a number from {} to {}", low, high), required,
          [=](Cluster& cluster, const Value& value) {
            double read = 0;
            if (!decode(value, read) || read < low || read > high) return false;
            at(cluster) = read;
            return true;
          }};
}

// As in run profiles: what is far beyond any machine is a slip of the keyboard, and no time overflows.
template <class At>
ClusterField rate(std::string name, At at) {
  return number_field(std::move(name), at, 1e-6, 1e6);
}

/// 0, its default, stands for "none".
template <class At>
ClusterField rate_or_none(std::string name, At at) {
  return number_field(std::move(name), at, 0, 1e6, false);
}

template <class At>
ClusterField latency(std::string name, At at, bool required = true) {
  return number_field(std::move(name), at, 0, 1e9, required);
}

template <class At>
ClusterField count(std::string name, At at, int low, int high, bool required = true) {
  return {std::move(name), fmt::format("an integer from {} to {}", low, high), required,
          [=](Cluster& cluster, const Value& value) {
            int read = 0;
            if (!decode(value, read) || read < low || read > high) return false;
            at(cluster) = read;
            return true;
          }};
}

ClusterField curve(std::string name, std::vector<double> InterFabric::*member) {
  return {std::move(name), "an array of numbers, one for each of inter.curve_nodes", false,
          [=](Cluster& cluster, const Value& value) {
            double read = 0;
            if (!decode(value, read) || read <= 0) return false;
            (cluster.inter.*member).push_back(read);
            return true;
          }};
}

template <class At>
ClusterField text_field(std::string name, At at) {
  return {std::move(name), "a string that is not empty", true,
          [=](Cluster& cluster, const Value& value) { return decode(value, at(cluster)) && !at(cluster).empty(); }};
}

template <class Enum, class At>
ClusterField word(std::string name, At at) {
  std::string valid;
  for (const std::string_view known : kNames<Enum>) valid += fmt::format("{}\"{}\"", valid.empty() ? "" : ", ", known);
  return {std::move(name), std::move(valid), true,
          [=](Cluster& cluster, const Value& value) { return decode(value, at(cluster)); }};
}

/// Destination of a key's value.
template <class T>
auto at(T Cluster::*member) {
  return [=](Cluster& cluster) -> T& { return cluster.*member; };
}
template <class Part, class T>
auto at(Part Cluster::*part, T Part::*member) {
  return [=](Cluster& cluster) -> T& { return cluster.*part.*member; };
}
auto at(double PeakTflops::*rate) {
  return [=](Cluster& cluster) -> double& { return cluster.gpu.peak.*rate; };
}

std::vector<ClusterField> make_cluster_fields() {
  return {
      text_field("title", at(&Cluster::title)),
      count("nodes.count", at(&Cluster::nodes), 1, 131072),
      count("nodes.gpus", at(&Cluster::gpus_per_node), 1, 1024),
      text_field("gpu.name", at(&Cluster::gpu, &ClusterGpu::name)),
      count("gpu.sms", at(&Cluster::gpu, &ClusterGpu::sms), 1, 4096),
      rate("gpu.memory_gib", at(&Cluster::gpu, &ClusterGpu::memory_gib)),
      rate("gpu.fp32_tflops", at(&PeakTflops::fp32)),
      rate_or_none("gpu.tf32_tflops", at(&PeakTflops::tf32)),
      rate_or_none("gpu.fp16_tflops", at(&PeakTflops::fp16)),
      rate("gpu.bf16_tflops", at(&PeakTflops::bf16)),
      rate_or_none("gpu.fp8_tflops", at(&PeakTflops::fp8)),
      number_field("gpu.gemm_fraction", at(&Cluster::gpu, &ClusterGpu::gemm_fraction), 0.01, 1),
      number_field("gpu.fp8_gemm_fraction", at(&Cluster::gpu, &ClusterGpu::fp8_gemm_fraction), 0, 1, false),
      rate("gpu.memory_gb_per_s", at(&Cluster::gpu, &ClusterGpu::memory_gb_per_s)),
      rate("gpu.memory_copy_gb_per_s", at(&Cluster::gpu, &ClusterGpu::memory_copy_gb_per_s)),
      word<IntraKind>("intra.kind", at(&Cluster::intra, &IntraFabric::kind)),
      rate("intra.peak_gb_per_s", at(&Cluster::intra, &IntraFabric::peak_gb_per_s)),
      rate("intra.nccl_gb_per_s", at(&Cluster::intra, &IntraFabric::nccl_gb_per_s)),
      rate("intra.all_gather_gb_per_s", at(&Cluster::intra, &IntraFabric::all_gather_gb_per_s)),
      rate("intra.reduce_scatter_gb_per_s", at(&Cluster::intra, &IntraFabric::reduce_scatter_gb_per_s)),
      rate("intra.all_reduce_gb_per_s", at(&Cluster::intra, &IntraFabric::all_reduce_gb_per_s)),
      rate_or_none("intra.ll128_gb_per_s", at(&Cluster::intra, &IntraFabric::ll128_gb_per_s)),
      rate_or_none("intra.nvls_gb_per_s", at(&Cluster::intra, &IntraFabric::nvls_gb_per_s)),
      number_field("intra.pair_fraction", at(&Cluster::intra, &IntraFabric::pair_fraction), 0.01, 2, false),
      number_field("intra.quad_fraction", at(&Cluster::intra, &IntraFabric::quad_fraction), 0.01, 2, false),
      latency("intra.base_latency_us", at(&Cluster::intra, &IntraFabric::base_latency_us)),
      latency("intra.hop_latency_us", at(&Cluster::intra, &IntraFabric::hop_latency_us)),
      number_field("intra.ramp_mb", at(&Cluster::intra, &IntraFabric::ramp_mb), 0, 1e6),
      count("intra.collective_sms", at(&Cluster::intra, &IntraFabric::collective_sms), 0, 4096),
      word<InterKind>("inter.kind", at(&Cluster::inter, &InterFabric::kind)),
      count("inter.nics_per_node", at(&Cluster::inter, &InterFabric::nics_per_node), 1, 1024),
      rate("inter.nic_gb_per_s", at(&Cluster::inter, &InterFabric::nic_gb_per_s)),
      rate("inter.nic_achieved_gb_per_s", at(&Cluster::inter, &InterFabric::nic_achieved_gb_per_s)),
      rate_or_none("inter.nic_ll128_gb_per_s", at(&Cluster::inter, &InterFabric::nic_ll128_gb_per_s)),
      latency("inter.base_latency_us", at(&Cluster::inter, &InterFabric::base_latency_us), false),
      latency("inter.hop_latency_us", at(&Cluster::inter, &InterFabric::hop_latency_us)),
      count("inter.pod_nodes", at(&Cluster::inter, &InterFabric::pod_nodes), 0, 131072, false),
      number_field("inter.oversubscription", at(&Cluster::inter, &InterFabric::oversubscription), 1, 1e6, false),
      curve("inter.curve_nodes", &InterFabric::curve_nodes),
      curve("inter.curve_gather_gb_per_s", &InterFabric::curve_gather),
      curve("inter.curve_all_reduce_gb_per_s", &InterFabric::curve_all_reduce),
      curve("inter.curve_low", &InterFabric::curve_low),
      curve("inter.curve_high", &InterFabric::curve_high),
      curve("inter.curve_steps_low", &InterFabric::steps_low),
      curve("inter.curve_steps_high", &InterFabric::steps_high),
      latency("host.kernel_issue_us", at(&Cluster::host, &ClusterHost::kernel_issue_us)),
      number_field("host.framework_factor", at(&Cluster::host, &ClusterHost::framework_factor), 0, 100, false),
      rate_or_none("host.pcie_gb_per_s", at(&Cluster::host, &ClusterHost::pcie_gb_per_s)),
      rate_or_none("measured.product_tflops", at(&Cluster::measured, &MeasuredGpu::product_tflops)),
      rate_or_none("measured.product_fill", at(&Cluster::measured, &MeasuredGpu::product_fill)),
      rate_or_none("measured.odd_output_tflops", at(&Cluster::measured, &MeasuredGpu::odd_output_tflops)),
      rate_or_none("measured.odd_input_tflops", at(&Cluster::measured, &MeasuredGpu::odd_input_tflops)),
      rate_or_none("measured.pass_fraction", at(&Cluster::measured, &MeasuredGpu::pass_fraction)),
      rate_or_none("measured.eager_fraction", at(&Cluster::measured, &MeasuredGpu::eager_fraction)),
      rate_or_none("measured.eager_odd_output_tflops", at(&Cluster::measured, &MeasuredGpu::eager_odd_output_tflops)),
      rate_or_none("measured.eager_odd_input_tflops", at(&Cluster::measured, &MeasuredGpu::eager_odd_input_tflops)),
      rate_or_none("measured.attention_64_tflops", at(&Cluster::measured, &MeasuredGpu::attention_64_tflops)),
      rate_or_none("measured.attention_128_tflops", at(&Cluster::measured, &MeasuredGpu::attention_128_tflops)),
      rate_or_none("measured.attention_half_length", at(&Cluster::measured, &MeasuredGpu::attention_half_length)),
      rate_or_none("host.memory_gb_per_s", at(&Cluster::host, &ClusterHost::memory_gb_per_s)),
  };
}

const std::vector<ClusterField>& cluster_fields() {
  static const std::vector<ClusterField> kFields = make_cluster_fields();
  return kFields;
}

std::string table_of(std::string_view name) { return std::string(name.substr(0, name.find('.'))); }

/// Reads one file; each complaint names its place.
class ClusterReader {
 public:
  explicit ClusterReader(std::string path) : path_(std::move(path)), file_(parse_toml(path_, FileKind::cluster)) {}

  /// `site`: empty: none. The figures of every site are read, so that a slip in one is found whichever is asked for.
  Cluster read(const std::string& site) {
    const toml::table* sites = file_["site"].as_table();
    if (file_.contains("site") && sites == nullptr) {
      fail(*file_.get("site"), "site is not valid; expected tables, as [site.NAME.inter].");
    }
    if (sites != nullptr) {
      for (const auto& [name, node] : *sites) take_site(std::string(name.str()), node);
      cluster_ = {};
      seen_.clear();
    }
    cluster_.name = std::filesystem::path(path_).stem().string();
    for (const auto& [name, node] : file_) {
      if (name != "site") take(std::string(name.str()), node);
    }
    check_complete();
    if (!site.empty()) choose(site, sites);
    check_within("intra.peak_gb_per_s", cluster_.intra.peak_gb_per_s,
                 {{"intra.all_gather_gb_per_s", cluster_.intra.all_gather_gb_per_s},
                  {"intra.reduce_scatter_gb_per_s", cluster_.intra.reduce_scatter_gb_per_s},
                  {"intra.all_reduce_gb_per_s", cluster_.intra.all_reduce_gb_per_s},
                  {"intra.ll128_gb_per_s", cluster_.intra.ll128_gb_per_s},
                  {"intra.nccl_gb_per_s", cluster_.intra.nccl_gb_per_s}});
    check_within("inter.nic_gb_per_s", cluster_.inter.nic_gb_per_s,
                 {{"inter.nic_achieved_gb_per_s", cluster_.inter.nic_achieved_gb_per_s},
                  {"inter.nic_ll128_gb_per_s", cluster_.inter.nic_ll128_gb_per_s}});
    check_within("gpu.memory_gb_per_s", cluster_.gpu.memory_gb_per_s,
                 {{"gpu.memory_copy_gb_per_s", cluster_.gpu.memory_copy_gb_per_s}});
    const InterFabric& inter = cluster_.inter;
    for (const auto* of_curve : {&inter.curve_gather, &inter.curve_all_reduce, &inter.curve_low, &inter.curve_high,
                                 &inter.steps_low, &inter.steps_high}) {
      if (of_curve->size() == inter.curve_nodes.size() && std::ranges::is_sorted(inter.curve_nodes)) continue;
      throw ConfigError(path_ + ": inter.curve_nodes rise, and every other inter.curve has a number for each of them.");
    }
    return cluster_;
  }

 private:
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
    throw ConfigError(fmt::format("{}: {}", place_of(path_, node), message));
  }

  void take_site(const std::string& name, const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr)
      fail(node, fmt::format("site.{} is not valid; expected a table, as [site.{}.inter].", name, name));
    for (const auto& [key, value] : *table) take(std::string(key.str()), value);
  }

  void choose(const std::string& site, const toml::table* sites) {
    std::vector<std::string> names;
    if (sites != nullptr) {
      for (const auto& [name, node] : *sites) names.emplace_back(name.str());
    }
    if (std::ranges::count(names, site) == 0) {
      throw ConfigError(names.empty() ? fmt::format("{}: there is no site '{}': the file has none.", path_, site)
                                      : fmt::format("{}: there is no site '{}'; expected one of {}.", path_, site,
                                                    fmt::join(names, ", ")));
    }
    take_site(site, *sites->get(site));
    cluster_.site = site;
  }

  void take(const std::string& name, const toml::node& node) {
    if (const toml::table* table = node.as_table()) {
      for (const auto& [key, value] : *table) take_value(fmt::format("{}.{}", name, key.str()), value);
    } else {
      take_value(name, node);
    }
  }

  void take_value(const std::string& name, const toml::node& node) {
    const auto& fields = cluster_fields();
    const auto field = std::ranges::find(fields, name, &ClusterField::name);
    if (field == fields.end()) {
      std::vector<std::string> names;
      for (const ClusterField& known : fields) names.push_back(known.name);
      const std::string near = nearest(name, names);
      fail(node, near.empty() ? fmt::format("unknown key '{}'; valid are {}.", name, fmt::join(names, ", "))
                              : fmt::format("unknown key '{}'; the nearest valid key is '{}'.", name, near));
    }
    if (const toml::array* numbers = node.as_array(); numbers && name.starts_with("inter.curve_")) {
      for (const toml::node& number : *numbers) take_value(name, number);
      return;
    }
    const std::optional<Value> value = scalar(node);
    if (value && field->read(cluster_, *value)) {
      seen_.push_back(name);
      return;
    }
    fail(node, value ? fmt::format("{} = {} is not valid; expected {}.", name, to_toml(*value), field->valid)
                     : fmt::format("{} is not valid; expected {}.", name, field->valid));
  }

  void check_complete() const {
    const bool alone = cluster_.nodes == 1 && !file_.contains("inter");
    for (const ClusterField& field : cluster_fields()) {
      if (!field.required || std::ranges::count(seen_, field.name) > 0) continue;
      const std::string table = table_of(field.name);
      if (table == "inter" && alone) continue;
      throw ConfigError(fmt::format("{}: there is no {}; expected {}{}.", path_, field.name, field.valid,
                                    table == "inter" && cluster_.nodes > 1 ? ", since there are several nodes" : ""));
    }
  }

  void check_within(const char* peak_name, double peak,
                    const std::vector<std::pair<std::string, double>>& achieved) const {
    for (const auto& [name, value] : achieved) {
      if (value <= peak) continue;
      const std::string table = table_of(name), key = name.substr(name.find('.') + 1);
      const toml::node* of_site = file_["site"][cluster_.site][table][key].node();
      fail(of_site != nullptr ? *of_site : *file_[table][key].node(),
           fmt::format("{} = {} is not valid; expected at most {} = {}.", name, value, peak_name, peak));
    }
  }

  std::string path_;
  toml::table file_;
  Cluster cluster_;
  std::vector<std::string> seen_;
};

}  // namespace

double at_nodes(const InterFabric& inter, const std::vector<double>& curve, int nodes) {
  const std::vector<double>& at = inter.curve_nodes;
  const auto above = std::ranges::upper_bound(at, nodes);
  if (above == at.begin()) return curve.front();
  if (above == at.end()) return curve.back();
  const auto i = above - at.begin();
  const double part = std::log(nodes / at[i - 1]) / std::log(at[i] / at[i - 1]);
  return std::exp(std::lerp(std::log(curve[i - 1]), std::log(curve[i]), part));
}

Cluster load_cluster(const std::string& name_or_path) {
  const std::size_t colon = name_or_path.rfind(':');
  const bool file = std::filesystem::exists(name_or_path);  // whose name may have a colon
  if (file || colon == std::string::npos) return ClusterReader(find_cluster(name_or_path)).read("");
  const std::string name = name_or_path.substr(0, colon), site = name_or_path.substr(colon + 1);
  if (!site.ends_with("GB/s")) return ClusterReader(find_cluster(name)).read(site);
  double rate = 0;
  const auto [end, status] = std::from_chars(site.data(), site.data() + site.size() - 4, rate);
  Cluster cluster = load_cluster(name);
  const double line = cluster.inter.nics_per_node * cluster.inter.nic_gb_per_s;
  if (status != std::errc() || end != site.data() + site.size() - 4 || !(rate > 0) || rate > 1.05 * line) {
    throw ConfigError(
        fmt::format("{}: {} is no bus bandwidth between its nodes; expected a number above 0 and at most "
                    "the {} GB/s of a node's NICs, as 65GB/s.",
                    name, site, line));
  }
  InterFabric& inter = cluster.inter;
  inter.nic_achieved_gb_per_s = std::min(rate / inter.nics_per_node, inter.nic_gb_per_s);
  inter.asked = true;
  inter.curve_nodes.clear();
  cluster.site = site;
  return cluster;
}

void check_fits(const Cluster& cluster, std::int64_t ranks) {
  if (ranks > cluster.most_ranks()) {
    throw ConfigError(fmt::format("{} ranks do not fit cluster '{}': its {} node{} of {} GPUs hold {} at most.", ranks,
                                  cluster.name, cluster.nodes, cluster.nodes == 1 ? "" : "s", cluster.gpus_per_node,
                                  cluster.most_ranks()));
  }
  if (ranks > cluster.gpus_per_node && ranks % cluster.gpus_per_node != 0) {
    const std::int64_t below = ranks / cluster.gpus_per_node * cluster.gpus_per_node;
    throw ConfigError(
        fmt::format("{} ranks do not fit the nodes of cluster '{}': with more than one node all {} GPUs of each are "
                    "taken, so {} or {} ranks would do.",
                    ranks, cluster.name, cluster.gpus_per_node, below, below + cluster.gpus_per_node));
  }
}

}  // namespace fsdpbench::config
