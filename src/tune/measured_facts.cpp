#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "account/statistics.h"
#include "base/error.h"
#include "base/read_input.h"
#include "clock/collective_kinds.h"
#include "config/accuracy.h"
#include "config/cluster.h"
#include "config/published.h"
#include "record/table.h"
#include "runs/simulated_machine.h"
#include "tune/expectation.h"

namespace fsdpbench::app {

std::string framework_of(const config::RunConfig& config) {
  const std::string& of = config.simulate.efficiency.of;
  if (!of.empty() && of != "auto" && of != "measured") return of;
  if (config.simulate.framework == config::Simulate::Framework::own) return "own";
  if (config.simulate.framework == config::Simulate::Framework::nanotron) return "nanotron";
  for (const char* name : {"deepspeed", "megatron", "torchtitan"}) {
    if (config.fsdp.preset.starts_with(name)) return name;
  }
  return "pytorch";
}

std::vector<std::string> framework_settings(const std::string& framework, const std::string& cluster) {
  if (framework == "pytorch") return {"simulate.framework=pytorch", "simulate.efficiency=auto"};
  if (framework == "nanotron") {
    return {"simulate.framework=nanotron", "simulate.efficiency=nanotron", "fsdp.preset=nanotron",
            "fsdp.fp32_gradients=true", "fsdp.reduce_dtype=fp32"};
  }
  if (framework == "own") {
    return {"simulate.framework=own", "simulate.host=own",          "simulate.loss=fused",
            "simulate.compiled=true", "simulate.attention=current", "simulate.efficiency=measured"};
  }
  const std::string gpu = config::load_cluster(cluster).gpu.name;
  std::vector<config::CsvRow> rows, here;
  std::set<std::string> families{"nanotron", "own", "pytorch"};
  for (config::CsvRow& row : config::read_csv(config::find_published_trainings())) {
    families.insert(row.text("family"));
    if (!row.text("family").starts_with(framework) || row.text("cluster").empty()) continue;
    if (config::load_cluster(row.text("cluster")).gpu.name == gpu) here.push_back(row);
    rows.push_back(std::move(row));
  }
  if (rows.empty()) {
    throw ConfigError(
        fmt::format("--framework {} is not valid; expected one of {}.", framework, fmt::join(families, ", ")));
  }
  std::vector<std::string> settings;
  const auto most_have = [&](const char* column, const std::string& key) {
    std::map<std::string, int> count;
    for (const config::CsvRow& row : here.empty() ? rows : here) ++count[row.text(column)];
    const std::string& value = std::ranges::max_element(count, {}, [](const auto& c) { return c.second; })->first;
    if (!value.empty()) settings.push_back(key + "=" + value);
  };
  most_have("system", "fsdp.preset");
  most_have("compiled", "simulate.compiled");
  most_have("attention", "simulate.attention");
  most_have("loss", "simulate.loss");
  most_have("fused_optimizer", "simulate.fused_optimizer");
  std::string efficiency = "auto";
  for (const config::KnownEfficiency& known : config::published_accuracy().efficiencies) {
    if (known.gpu == gpu && known.numbers == "bf16" && known.framework.starts_with(framework))
      efficiency = known.framework;
  }
  settings.push_back("simulate.efficiency=" + efficiency);
  return settings;
}

namespace {

/// Size and bus bandwidth of each message of a file of `collectives`, and its hosts.
void read_json(const nlohmann::json& j, std::map<double, double>& rates, std::set<std::string>& hosts) {
  if (j.is_object() && j.contains("size") && j.contains("out_of_place") && j["out_of_place"].is_object()) {
    rates[j["size"]] = std::max(rates[j["size"]], j["out_of_place"]["busbw_gb_per_s"].get<double>());
  }
  if (j.is_object() && j.contains("host") && j["host"].is_string()) hosts.insert(j["host"]);
  if (!j.is_structured()) return;
  for (const nlohmann::json& part : j) read_json(part, rates, hosts);
}

/// A training that was measured, as what it takes may be changed.
struct MeasuredCell {
  const engine::Setup& setup;
  clock::OpTimes times;
  double measured_ms;

  double step_ms(const clock::OpTimes& changed) const { return clock::forecast(setup, changed).slowest_ns() * 1e-6; }
};

enum class Change : std::uint8_t { network, computation, host, checks, outside };

/// The step where the network between nodes has `by` of its rate, computation `by` of its speed, the host takes 1/by
/// times as long, each rank of a collective checks it for so many ms first, or so many pass outside of the step.
double changed_ms(const MeasuredCell& cell, Change what, double by) {
  if (what == Change::outside) return cell.step_ms(cell.times) + by;
  clock::OpTimes times = cell.times;
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    for (std::size_t i = 0; i < times.steps[step].size(); ++i) {
      clock::OpCost& cost = times.steps[step][i];
      const schedule::Op& op = cell.setup.schedules.steps[step].ops[i];
      const bool inter = op.is_collective() && cost.fabric == static_cast<int>(clock::Fabric::inter);
      if (what == Change::network && inter) cost.link_ns /= by;
      if (what == Change::computation && op.module >= 0) cost.run_ns /= by;
    }
  }
  for (std::size_t step = 0; step < times.own_issue.size(); ++step) {
    const std::vector<schedule::Op>& ops = cell.setup.schedules.of_step(step).ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      double& ns = times.own_issue[step][i];
      if (what == Change::host) ns /= by;
      if (what == Change::checks) ns += std::nearbyint(by * clock::meeting_ranks(ops[i], cell.setup.plan.groups) * 1e6);
    }
  }
  return cell.step_ms(times);
}

std::string amount_of(Change what, double by, const config::Cluster& cluster) {
  const double bus = cluster.inter.nics_per_node * cluster.inter.nic_achieved_gb_per_s;
  switch (what) {
    case Change::network:
      return fmt::format("between nodes {:.3g} GB/s of bus bandwidth, where {} says {:.3g}", bus * by, cluster.name,
                         bus);
    case Change::computation: return fmt::format("computation at {:.0f} % of its speed", 100 * by);
    case Change::host: return fmt::format("a host that takes {:.3g} times as long", 1 / by);
    case Change::checks:
      return fmt::format("{:.2g} ms of each rank of a collective before it, as with TORCH_DISTRIBUTED_DEBUG=DETAIL",
                         by);
    case Change::outside: return fmt::format("{:.3g} ms outside of each step", by);
  }
  return {};
}

}  // namespace

std::string between_nodes(const std::string& rate_or_file) {
  if (!std::filesystem::exists(rate_or_file)) {
    std::string rate = rate_or_file;
    std::erase(rate, ' ');
    if (rate.ends_with("GB/s")) return rate;
    throw ConfigError(fmt::format(
        "--between-nodes {}: is no rate in bytes, as 50GB/s for links of 400 Gbit/s, and no file.", rate_or_file));
  }
  const std::string text = Input(rate_or_file, "a log of nccl-tests or a file of `collectives`").text(kMostOfAResult);
  std::map<double, double> rates;
  std::set<std::string> hosts;
  if (const nlohmann::json j = nlohmann::json::parse(text, nullptr, false); j.is_object()) {
    read_json(j, rates, hosts);
  } else {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      const std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
      if (word.size() > 9 && word[0] == "#" && word[1] == "Rank") {
        const auto on = std::ranges::find(word, "on");
        if (on != word.end() && on + 1 != word.end()) hosts.insert(*(on + 1));
      }
      // size, count, type, redop, root, then time, algbw, busbw, #wrong of both arrangements of buffers.
      double size = 0, rate = 0;
      const auto number = [](const std::string& of, double& to) {
        return std::from_chars(of.data(), of.data() + of.size(), to).ec == std::errc();
      };
      if (word.size() >= 9 && number(word[0], size) && number(word[7], rate)) rates[size] = std::max(rates[size], rate);
    }
  }
  if (rates.empty()) {
    throw ConfigError(fmt::format(
        "{}: has no line of results; expected a log of nccl-tests or a file of `collectives`.", rate_or_file));
  }
  if (hosts.size() == 1) {
    throw ConfigError(fmt::format("{}: was measured on one node; --between-nodes is of several.", rate_or_file));
  }
  return fmt::format("{:.4g}GB/s", rates.rbegin()->second);
}

double SharedReason::typical() const {
  std::vector<double> off;
  for (const double ratio : over_measured) off.push_back(std::abs(std::log(ratio)));
  return std::expm1(account::median(off));
}

std::vector<SharedReason> shared_reasons(const std::vector<Cell>& cells, const std::vector<MeasuredRate>& measured) {
  std::vector<MeasuredCell> all;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const engine::Setup& setup = cells[i].setup;
    clock::OpTimes times = SimulatedMachine(setup.config).times(setup, false).times;
    const config::RunConfig& c = setup.config;
    const double tokens = static_cast<double>(c.train.batch_per_rank * c.train.seq_len * c.train.accumulate) *
                          static_cast<double>(c.mesh.sample_groups()) / static_cast<double>(c.mesh.ranks);
    if (measured[i].unit == MeasuredRate::Unit::mfu_pct) {
      throw ConfigError("--rows: expected tokens/s of a rank or a step, not an MFU.");
    }
    const bool rate = measured[i].unit == MeasuredRate::Unit::tokens_per_s;
    all.push_back({setup, std::move(times), rate ? tokens / measured[i].value * 1e3 : measured[i].value});
  }
  const config::Cluster cluster = config::load_cluster(cells.front().setup.config.simulate.cluster);
  std::vector<SharedReason> reasons;
  for (const Change what : {Change::network, Change::computation, Change::host, Change::checks, Change::outside}) {
    const auto with = [&](double by) {
      SharedReason reason{amount_of(what, by, cluster), {}};
      for (const MeasuredCell& cell : all)
        reason.over_measured.push_back(changed_ms(cell, what, by) / cell.measured_ms);
      return reason;
    };
    const bool longer_by_more = what == Change::checks || what == Change::outside;
    double low = what == Change::outside ? 1 : what == Change::checks ? 1e-3 : 1.0 / 32;
    double high = what == Change::outside ? 1e4 : what == Change::checks ? 10 : 2;
    // The amount of which half of the steps come out too long.
    constexpr int kHalvings = 14;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = std::sqrt(low * high);
      const bool longer = account::median(with(middle).over_measured) > 1;
      (longer == longer_by_more ? high : low) = middle;
    }
    reasons.push_back(with(std::sqrt(low * high)));
  }
  std::ranges::stable_sort(reasons, {}, &SharedReason::typical);
  return reasons;
}

std::string shared_text(const std::vector<SharedReason>& reasons, const std::vector<std::string>& names) {
  constexpr double kExplains = 0.10;
  const SharedReason& best = reasons.front();
  const auto far = [](double ratio) { return std::max(ratio, 1 / ratio) > 1 + kExplains; };
  const auto left = std::ranges::count_if(best.over_measured, far);
  std::string text = fmt::format("{} trainings. ", names.size());
  text += left == 0 ? fmt::format("One thing explains them all, within 10 %: {}.\n", best.what)
                    : fmt::format("No one thing explains them all; nearest is {}: {} of them within 10 %.\n", best.what,
                                  names.size() - left);
  Table things{"", {"alone, for all", "typically off"}, {}}, trainings{"", {"with the first", "step / measured"}, {}};
  for (const SharedReason& reason : reasons) {
    things.rows.push_back({reason.what, fmt::format("{:.1f} %", 100 * reason.typical())});
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    trainings.rows.push_back({names[i], fmt::format("{:.2f}", best.over_measured[i])});
  }
  return text + format_table(things) + "\n" + format_table(trainings);
}

}  // namespace fsdpbench::app
