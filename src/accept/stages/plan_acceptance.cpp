#include "accept/stages/plan_acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "accept/robust.h"
#include "accept/stages/measure_acceptance.h"
#include "accept/step_arms.h"
#include "base/bytes.h"
#include "record/table.h"
#include "runs/progress.h"

namespace fsdpbench::app {
namespace {

/// A rate that durations are told by where the profile has no reference: of slow GPUs, and of slow processors.
struct Assumed {
  const char* figure;
  double gpus, processors;
};
constexpr Assumed kAssumed[] = {
    {"gemm", 10, 0.02},          // TFLOP/s of fp32 products
    {"memory", 500, 5},          // GB/s
    {"host_memory", 5, 5},       // likewise
    {"host_to_device", 10, 10},  // likewise
    {"pair", 10, 0.5},           // likewise
    {"all_gather", 20, 0.5},     // likewise, of bus bandwidth
    {"reduce_scatter", 20, 0.5},
};

class Plan {
 public:
  Plan(const config::Acceptance& wanted, const engine::Setup& setup, int nodes, bool full)
      : wanted_(wanted),
        setup_(setup),
        effort_(effort_of(wanted, full)),
        ranks_(setup.plan.mesh.ranks()),
        cluster_{.nodes = nodes, .gpus_per_node = ranks_ / nodes, .rails = nodes > 1 ? ranks_ / nodes : 1},
        processors_(setup.config.device.backend == config::BackendKind::cpu) {}

  Table stages(bool full) {
    constexpr double kOpsEach = 3;
    const double rounds = effort_.device_rounds * kOpsEach + 1;
    const double matrix = effort_.matrix;
    const auto bytes = static_cast<double>(effort_.memory_bytes);
    add("inventory", "program, kernel, libraries and device of each rank", std::nullopt);
    add("matrix products", fmt::format("{} rounds of {} rows on all ranks", effort_.device_rounds, effort_.matrix),
        rounds * 2 * matrix * matrix * matrix / (rate("gemm") * 1e12));
    add("memory", fmt::format("{} rounds of copies of {}", effort_.device_rounds, format_bytes(effort_.memory_bytes)),
        rounds * 2 * bytes / (rate("memory") * 1e9));
    add("hosts", processors_ ? "copies in their memory" : "copies in their memory, to and from GPUs, launches",
        rounds * bytes * (2 / rate("host_memory") + (processors_ ? 0 : 2 / rate("host_to_device"))) * 1e-9);
    const std::vector<accept::Round> pairs = accept::first_rounds(cluster_);
    add(fmt::format("pairs of {}", cluster_.one_node() ? "ranks" : "nodes"),
        fmt::format("{} measurements in {} rounds, and again where one is slow", accept::measurements(pairs),
                    pairs.size()),
        static_cast<double>(pairs.size()) * 3 * (kOpsOfAPair + 1) * static_cast<double>(effort_.pair_bytes) /
            (rate("pair") * 1e9));
    double ladder_s = 0, slowest = 0;
    const std::vector<Message> ladder = ladder_of(setup_);
    for (const Message& message : ladder) {
      ladder_s += 2 * (effort_.iterations + kBesideIterations) * seconds(message);
      slowest = std::max(slowest, static_cast<double>(message.bytes()) / seconds(message));
    }
    add("collectives", fmt::format("{} messages, {} times, in and out of place", ladder.size(), effort_.iterations),
        ladder_s);
    const std::vector<accept::Scale> scales = accept::scales_of(cluster_);
    add("scales", fmt::format("{} sizes of groups, up to {} ranks", scales.size(), ranks_),
        ladder_s / 2 / std::max<double>(1, static_cast<double>(ladder.size())) * static_cast<double>(scales.size()) *
            2);
    const double step_s = about_step_s(setup_, slowest, rate("gemm") * 1e12 * (processors_ ? 1 : kHalfPrecision));
    const auto steps = static_cast<double>(setup_.config.train.steps + setup_.config.train.warmup);
    add("steps", fmt::format("{:.0f} training steps of {}", steps, wanted_.run), steps * step_s);
    add("parts", fmt::format("{} rounds of computation, communication and both", effort_.arm_rounds),
        effort_.arm_rounds * kStepsOfARound * step_s);
    if (full) add("soak", "the parts again and again", std::nullopt, "what is left");
    return {.title = "", .header = {"stage", "measures", "about"}, .rows = std::move(rows_)};
  }

  Table floors() const {
    Table table{.title = "", .header = {"figure", "at least", "source"}, .rows = {}};
    const double share = wanted_.tolerance_pct / 100;
    for (const config::AcceptanceReference& r : wanted_.references) {
      const bool collective = r.figure == "all_gather" || r.figure == "reduce_scatter", time = r.figure == "launch";
      const char* const unit = time ? "us" : r.figure == "gemm" ? "TFLOP/s" : "GB/s";
      if (!collective) {
        table.rows.push_back(
            {r.figure,
             fmt::format("{}{:.4g} {}", time ? "at most " : "", time ? r.value / share : share * r.value, unit),
             r.source});
        continue;
      }
      for (const Message& m : ladder_of(setup_)) {
        if (to_string(m.op) != r.figure) continue;
        table.rows.push_back({ladder_figure(m, false),
                              fmt::format("{:.4g} {}", share * r.at(static_cast<double>(m.bytes()), m.ranks), unit),
                              r.source});
      }
    }
    return table;
  }

  bool assumed() const { return assumed_; }

 private:
  static constexpr double kHalfPrecision = 10;  // bf16 over the fp32 products that are measured

  double rate(const char* figure) {
    if (const config::AcceptanceReference* const known = wanted_.find(figure)) return known->value;
    if (std::string_view(figure) == "pair" && processors_ && setup_.config.emulate.link_gb_per_s) {
      return *setup_.config.emulate.link_gb_per_s;
    }
    star_ = assumed_ = true;
    const auto* const a =
        std::ranges::find_if(kAssumed, [&](const Assumed& one) { return std::string_view(one.figure) == figure; });
    return processors_ ? a->processors : a->gpus;
  }

  double seconds(const Message& message) {
    const std::string figure(to_string(message.op));
    const auto bytes = static_cast<double>(message.bytes());
    const config::AcceptanceReference* const known = wanted_.find(figure);
    const double gb_per_s = known != nullptr ? known->at(bytes, ranks_) : rate(figure.c_str());
    return bytes * message.bus_factor() / (gb_per_s * 1e9);
  }

  void add(std::string stage, std::string what, std::optional<double> about_s, const std::string& otherwise = "–") {
    rows_.push_back(
        {std::move(stage), std::move(what), about_s ? format_duration(*about_s) + (star_ ? " *" : "") : otherwise});
    star_ = false;
  }

  const config::Acceptance& wanted_;
  const engine::Setup& setup_;
  const AcceptanceEffort effort_;
  const int ranks_;
  const accept::Cluster cluster_;
  const bool processors_;
  std::vector<std::vector<std::string>> rows_;
  bool star_ = false, assumed_ = false;
};

}  // namespace

std::string acceptance_plan(const config::Acceptance& wanted, const std::string& profile, const engine::Setup& setup,
                            int nodes, const Patience& patience) {
  const int ranks = setup.plan.mesh.ranks(), each = ranks / nodes;
  Plan plan(wanted, setup, nodes, patience.full);
  std::string text =
      fmt::format("Plan of an acceptance of {} ranks on {} {}, compared with {}. Nothing was measured.\n\n", ranks,
                  nodes, nodes == 1 ? "node" : "nodes", wanted.fabric);
  text += format_table(plan.stages(patience.full));
  if (plan.assumed()) text += "* by assumed rates of slow hardware: the profile has no reference\n";
  text += fmt::format(
      "Together at most about {} (--budget): stages repeat less if time is short. Ranks that hang are ended after {} "
      "(--limit).\n\n",
      format_duration(patience.budget_s), format_duration(patience.limit_s));
  if (const Table floors = plan.floors(); floors.rows.empty()) {
    text += "No figure has a floor: the profile has no [[reference]]. Ranks and links are compared with their peers.\n";
  } else {
    text += format_table(floors);
  }
  const std::string words =
      fmt::format("fsdpbench accept {}{} --out acceptance", profile, patience.full ? " --full" : "");
  text += nodes > 1 ? fmt::format("\nsrun --nodes={} --ntasks-per-node={} {}\nmpirun -n {} --map-by ppr:{}:node {}\n",
                                  nodes, each, words, ranks, each, words)
                    : fmt::format("\n{}\nsrun --ntasks={} {}\n", words, ranks, words);
  return text + fmt::format("fsdpbench gate acceptance --against runs/baselines{}\n",
                            wanted.rated_pct > 0
                                ? fmt::format("    # exit code 13: fewer than {:.0f} % of the rules were rated",
                                              wanted.rated_pct)
                                : "");
}

}  // namespace fsdpbench::app
