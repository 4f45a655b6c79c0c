#include "runs/run_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "account/caveats.h"
#include "account/divergence.h"
#include "account/gpu_steps.h"
#include "account/run_details.h"
#include "base/bytes.h"
#include "config/load.h"
#include "config/spelling.h"
#include "record/table.h"
#include "runs/result_fields.h"
#include "runs/trace_files.h"

namespace fsdpbench::app {
namespace {

/// Below the table; the star marks the rows.
constexpr const char* kPartsNote =
    "* means over all ranks in the middle third of the steps by length, scaled to the step time: they add up to it.";

std::string emulation(const config::RunConfig& c) {
  if (c.device.backend == config::BackendKind::cuda) return "on GPUs";
  const bool simulated = c.device.backend == config::BackendKind::virtual_;
  if (simulated && !c.simulate.calibration.empty()) return "simulated as calibrated in " + c.simulate.calibration;
  if (simulated && !c.simulate.cluster.empty()) return "simulated on " + c.simulate.cluster;
  std::string text;
  if (c.emulate.compute_tflops) text += fmt::format("computation emulated at {} TFLOP/s", *c.emulate.compute_tflops);
  if (c.emulate.link_gb_per_s) {
    text += fmt::format("{}link emulated at {} GB/s + {} us a hop", text.empty() ? "" : ", ", *c.emulate.link_gb_per_s,
                        c.emulate.link_latency_us);
  }
  if (simulated) return "simulated: " + text;
  return text.empty() ? "nothing emulated" : text;
}

/// The GPU with the lowest clock in the measured steps; empty: nobody told.
std::string slowest_gpu_line(const engine::Measurement& result) {
  std::optional<account::GpuStep> slowest;
  std::size_t its_rank = 0;
  for (std::size_t rank = 0; rank < std::min(result.gpus.size(), result.traces.size()); ++rank) {
    if (!result.gpus[rank] || result.traces[rank].steps.empty()) continue;
    const trace::StepWindow all{result.traces[rank].steps.front().begin_ns, result.traces[rank].steps.back().end_ns, 0};
    const account::GpuStep gpu = account::gpu_steps(*result.gpus[rank], {all}).front();
    if (!gpu.sm_mhz || (slowest && *slowest->sm_mhz <= *gpu.sm_mhz)) continue;
    slowest = gpu;
    its_rank = rank;
  }
  if (!slowest) {
    const bool asked = !result.gpus.empty() && result.gpus.front().has_value();
    return asked ? fmt::format("{:7} {}\n", "clocks", result.gpus.front()->unknown_because) : "";
  }
  const GpuLimits& most = result.gpus[its_rank]->limits;
  std::string text = fmt::format("{:7} {} MHz", "clocks", *slowest->sm_mhz);
  if (most.sm_mhz) text += fmt::format(" of {}", *most.sm_mhz);
  if (slowest->power_mw) text += fmt::format(", {} W", *slowest->power_mw / 1000);
  if (slowest->power_mw && most.power_mw) text += fmt::format(" of {}", *most.power_mw / 1000);
  if (slowest->temperature_c) text += fmt::format(", at most {} C", *slowest->temperature_c);
  if (result.gpus.size() > 1) text += fmt::format(" (rank {}, the slowest clock)", its_rank);
  if (const std::string held = account::limits_text(slowest->limits); !held.empty()) text += "; held down by: " + held;
  return text + "\n";
}

/// Lines on rank 0's device, how it measured and how it communicates, where it tells.
std::string device_lines(const engine::Measurement& result) {
  std::string text;
  if (result.devices.empty()) return text;
  for (const auto& [name, value] : result.devices.front()) {
    if (name == "GPU" || name == "timer" || name == "ranks" || name == "collectives")
      text += fmt::format("{:7} {}\n", name, value);
  }
  text += slowest_gpu_line(result);
  return text.empty() ? text : "\n" + text;
}

/// Algorithms of a simulation's collectives, most frequent first within each kind.
std::string choices_line(const engine::Setup& setup, const Trial& trial) {
  std::map<std::string, int> counts;
  for (std::size_t op = 0; op < trial.choices.size(); ++op) {
    if (trial.choices[op].empty()) continue;
    ++counts[fmt::format("{} {}", to_string(setup.schedules.steady().ops[op].kind), trial.choices[op])];
  }
  std::vector<std::string> parts;
  for (const auto& [what, count] : counts) parts.push_back(fmt::format("{} x {}", count, what));
  return parts.empty() ? "" : fmt::format("\ncollectives  {}\n", fmt::join(parts, "; "));
}

/// Who is late for certain, and at what.
std::string late_ranks_text(const std::vector<account::LateRank>& late_ranks, const Trial& trial) {
  std::string text;
  for (const account::LateRank& late : late_ranks) {
    const auto add = [&](const std::optional<account::Lateness>& at, const char* what) {
      if (!at) return;
      text += fmt::format("rank {} is late: {} {} longer a step than the others' (slower in {} of {} trials)\n",
                          late.rank, what, shown(at->excess_ms.median, "ms"), at->late, at->trials);
    };
    add(late.work, "its own ops take");
    for (const account::Throttling& t : trial.throttled) {
      if (t.rank == late.rank) text += fmt::format("  {}\n", account::to_string(t));
    }
    add(late.issue, "its host takes");
    add(late.link, "its link takes");
  }
  return text;
}

/// Only the ranked names; the advice is for `explain --from`.
std::string causes_table(const account::CauseReport& report, const Trial& trial) {
  std::string text = "without computation, by cause:";
  for (const account::CauseShare& c : report.causes) {
    text += fmt::format("{} {} {}", &c == &report.causes.front() ? "" : ",", account::to_string(c.cause),
                        shown(c.ms, "ms"));
  }
  if (report.causes.empty() || report.small_ms > 0) {
    text += fmt::format("{} small {}", report.causes.empty() ? "" : ",", shown(report.small_ms, "ms"));
  }
  const double jitter_ms = report.jitter ? report.jitter->stalled_ms : 0;
  if (std::abs(jitter_ms) >= 0.005) text += ", jitter " + shown(jitter_ms, "ms");
  text += "\n";
  if (!report.no_typical_because.empty()) {
    text += fmt::format("of the measured steps, jitter and all, for there is no typical step: {}\n",
                        report.no_typical_because);
  }
  return text + late_ranks_text(report.late_ranks, trial);
}

/// Sentence in place of causes when the machine did not keep up: only that its cores were busy.
std::string of_unrated(const account::CauseReport& report) {
  std::string busy;
  for (const account::CauseShare& c : report.causes) {
    if (c.cause == account::Cause::cores_busy) busy = fmt::format("cores_busy {}, and ", shown(c.ms, "ms"));
  }
  return fmt::format("{}no {}causes and no advice: the run is not rated\n", busy, busy.empty() ? "" : "other ");
}

/// Number of measured steps that had a GPU that did not run as fast as it could.
std::string throttled_steps(const Trial& trial) {
  std::set<std::int32_t> steps;
  for (const account::Throttling& t : trial.throttled) steps.insert(t.steps.begin(), t.steps.end());
  if (steps.empty()) return "";
  return fmt::format("; in {} of {} steps a GPU throttled", steps.size(), trial.metrics->steps_ms.size());
}

/// Tokens a second of one rank, and the interval of both where the step has one: a longer step is a lower rate.
std::string throughput_note(const Trial& trial, double ranks) {
  const account::RunMetrics& m = *trial.metrics;
  if (!trial.sureness || !trial.sureness->step_ms)
    return fmt::format("; {} a rank", three_digits(m.tokens_per_s / ranks));
  const clock::Bounds& step = *trial.sureness->step_ms;
  const double per_ms = m.tokens_per_s * m.step_ms.median;
  if (step.low <= 0) {  // a step of no time has no rate
    return fmt::format(", 95 % at least {:.0f}; a rank {}, at least {}", per_ms / step.high,
                       three_digits(m.tokens_per_s / ranks), three_digits(per_ms / step.high / ranks));
  }
  const double low = per_ms / step.high, high = per_ms / step.low;
  return fmt::format(", 95 % {:.0f} to {:.0f}; a rank {}, {} to {}", low, high, three_digits(m.tokens_per_s / ranks),
                     three_digits(low / ranks), three_digits(high / ranks));
}

/// Left in the numbers: only the user knows whether the change belongs to what is studied.
std::string unsettled(const account::RunMetrics& m, std::int64_t warmup) {
  const int steps = m.settling->unsettled;
  if (m.settling->never_settled) {
    return fmt::format("no steady state within {} steps; measure more (train.steps)", m.step_ms.n);
  }
  return fmt::format("the first {} of {} differ from the rest; train.warmup={} would leave them out", steps,
                     m.step_ms.n, warmup + steps);
}

}  // namespace

std::string model_text(const config::RunConfig& c) {
  const config::Model& named = config::presets_of(c).model;
  if (named.kind == c.model.kind && named.width == c.model.width) return c.model.preset;
  return fmt::format("{} of {} layers, width {}", config::to_string(c.model.kind), c.model.layers, c.model.width);
}

std::string run_headline(const engine::Setup& p) {
  const config::RunConfig& c = p.config;
  const plan::Mesh& mesh = p.plan.mesh;
  return fmt::format(
      "{}: {} parameters in {} units, {} ranks ({} shards x {} replicas{}), {}, {}; {}", model_text(c),
      format_count(p.plan.shapes.parameter_count()), p.plan.units.size(), mesh.ranks(), mesh.shard, mesh.replicate,
      mesh.tensor == 1
          ? ""
          : fmt::format(" x {} that split layers{}", mesh.tensor, c.mesh.sequence_parallel ? " and tokens" : ""),
      config::to_string(c.fsdp.strategy), config::to_string(c.fsdp.layout), emulation(c));
}

std::string memory_basis(const config::RunConfig& config) {
  return fmt::format(
      "memory: states {} (fsdp.state_dtype), loss {} (simulate.loss), activations of {} (simulate.framework)",
      to_string(config.fsdp.state_dtype), config::to_string(config.loss()),
      config.framework() == config::Simulate::Framework::own ? "this engine" : config::to_string(config.framework()));
}

std::string run_table(const engine::Setup& setup, const Trial& trial, const std::filesystem::path& folder) {
  const config::RunConfig& c = setup.config;
  const engine::Measurement& result = trial.measurement;
  Table table;
  table.title = run_headline(setup);
  const auto row = [&](std::string name, std::string value, std::string unit, std::string note) {
    table.rows.push_back({std::move(name), std::move(value), std::move(unit), std::move(note)});
  };
  const auto amount = [&](std::string name, double value, std::string_view unit, std::string note) {
    const Shown as(unit, value);
    row(std::move(name), as.number(value), as.unit(), std::move(note));
  };
  const Shown ms("ms", trial.metrics ? trial.metrics->step_ms.median : 0);  // parts of a step have its unit
  const auto number = [&](double value) { return ms.number(value); };
  /// Row of a declared figure: its label and its unit.
  const auto figure = [&](const char* name, double value, std::string note, const char* mark = "") {
    const FieldFacts& field = figure_at(std::string("metrics.") + name);
    const Shown as = field.unit == "ms" ? ms : Shown(field.unit, value);
    row(field.figure.label + mark, as.number(value), as.unit(), std::move(note));
  };
  if (trial.metrics) {
    const account::RunMetrics& m = *trial.metrics;
    const auto share = [&](double part) { return fmt::format("{:.1f} % of the step", 100 * part / m.step_ms.median); };
    figure("step_ms", m.step_ms.median,
           m.step_ms.interval == account::IntervalKind::one_value ? "one step, slowest rank"
           : m.step_ms.ci_low == m.step_ms.ci_high
               ? fmt::format("{} steps, all alike, slowest rank", m.step_ms.n)
               : fmt::format("median of {} steps, slowest rank; {} {} to {}", m.step_ms.n,
                             to_string(m.step_ms.interval), number(m.step_ms.ci_low), number(m.step_ms.ci_high)));
    if (trial.sureness && trial.sureness->step_ms) {
      const PredictionInterval& p = *trial.sureness;
      const auto between = [&](const clock::Bounds& b) { return ms.range(b.low, b.high); };
      row("  95 % interval", between(*p.step_ms), ms.unit(),
          fmt::format("{}: {}; from {}{}", to_string(clock::least_sure(p.ops)), reach_text(p.ops), p.from,
                      p.leaves_ranks_out ? "; what so many ranks change is not in it" : ""));
      row("  its exposed part", between(*p.exposed_ms), ms.unit(), "the same of exposed communication");
    }
    if (m.aa_noise_pct && !trial.world.simulated()) {  // the same seed gives the same steps
      figure("aa_noise_pct", *m.aa_noise_pct,
             "the medians of two random halves of these steps differ by less, 95 times out of 100");
    }
    if (m.settling && m.settling->unsettled > 0)
      figure("unsettled_steps", m.settling->unsettled, unsettled(m, c.train.warmup));
    row(c.model.kind == config::ModelKind::decoder ? "tokens/s" : "samples/s", fmt::format("{:.0f}", m.tokens_per_s),
        "1/s", "all ranks" + throughput_note(trial, static_cast<double>(c.mesh.ranks)));
    if (trial.flops && trial.flops->mfu_pct) {
      row("MFU", fmt::format("{:.1f}", *trial.flops->mfu_pct), "%",
          fmt::format("{:.4g} of {:.4g} TFLOP/s a rank, without recomputation", trial.flops->tflops_per_rank,
                      *trial.flops->peak_tflops));
    }
    if (!result.losses.empty()) {
      row("loss", account::loss_text(result.losses.back()), "",
          fmt::format("first step {}", account::loss_text(result.losses.front())));
    } else {
      const bool simulated = c.device.backend == config::BackendKind::virtual_;
      row("loss", "-", "",
          fmt::format("nothing was computed: {}", simulated ? "simulated" : "computation is emulated"));
    }
    if (trial.fidelity) {
      row("emulation", fmt::format("{:+.1f}", trial.fidelity->over_pct()), "%",
          fmt::format("observed over modelled time, and lanes that began late; up to {:.0f} % is rated",
                      account::kFidelityLimitPct));
    }
    if (trial.spread) {
      row("steps p95, p99", fmt::format("{}, {}", number(trial.spread->p95_ms), number(trial.spread->p99_ms)),
          ms.unit(),
          fmt::format("{:.1f} % of the median is lost to jitter: {} without", trial.spread->lost_to_jitter_pct(),
                      number(trial.spread->without_jitter_ms)));
    }
    if (trial.causes && trial.causes->jitter) {
      const account::StepJitter& jitter = *trial.causes->jitter;
      row("typical step", number(trial.causes->typical_ms), ms.unit(),
          "every op takes its median; causes are found in it");
      row("jitter", number(jitter.ms), ms.unit(),
          share(jitter.ms) + ": time beyond the typical step that does not repeat, so no cause is assigned" +
              throttled_steps(trial));
    }
    figure("compute_ms", m.compute_ms, share(m.compute_ms), " *");
    figure("comm_ms", m.comm_ms, share(m.comm_ms));
    figure("exposed_comm_ms", m.exposed_comm_ms, share(m.exposed_comm_ms), " *");
    figure("exposed_copy_ms", m.exposed_copy_ms, share(m.exposed_copy_ms), " *");
    figure("idle_ms", m.idle_ms, share(m.idle_ms), " *");
    if (m.overlap_pct) {
      figure("overlap_pct", *m.overlap_pct, "of communication hidden behind computation");
    } else {
      row("overlap", "-", "", "there was no communication");
    }
    if (m.bound_ratio) {
      figure("step_over_bound", *m.bound_ratio, "bound: the schedule with the measured op times");
    }
    amount("on the wire", trial.expected_wire.total() / 1e6, "MB", "a rank and step; counted, equal to the schedule's");
  } else {
    row("step time", "-", "", "no measured step was completed");
  }
  if (!result.checkpoints.empty()) {
    row("checkpoints", fmt::format("{}", result.checkpoints.size()), "",
        fmt::format("{} each", format_bytes(result.checkpoints.back().bytes)));
  }
  row("", "", "", "");
  const clock::CachingAllocator::Statistics* const torch =
      trial.caching_allocator ? &*trial.caching_allocator : nullptr;
  const CategoryBytes& by_category = torch != nullptr ? torch->at_peak : trial.memory.peak_occupied;
  const auto memory = [&](std::string name, std::int64_t bytes, std::string note) {
    amount(std::move(name), static_cast<double>(bytes), "B", std::move(note));
  };
  if (torch != nullptr) {
    memory("peak memory", torch->peak_reserved, "reserved by PyTorch's allocator");
    memory("allocated", torch->peak_allocated, "at most, of that");
  } else {
    memory("peak memory", trial.memory.peak_occupied_total, "the rank that needed most");
  }
  for (MemoryCategory category : kMemoryCategories) {
    std::string name(to_string(category));
    std::replace(name.begin(), name.end(), '_', ' ');
    memory("  " + name, by_category[index_of(category)], torch != nullptr ? "then" : "its own peak");
  }
  if (trial.host_memory.reserved > 0) {
    memory("pinned host memory", trial.host_memory.peak_occupied_total, "fsdp.cpu_offload");
  }
  std::string text;
  for (const std::string& caveat : trial.caveats) text += caveat + ".\n";
  text += format_table(table);
  if (trial.metrics) text += std::string(kPartsNote) + "\n";
  if (!account::why_not_rated(trial.fidelity).empty()) {
    text += "\n" + of_unrated(*trial.causes);
  } else if (trial.causes) {
    text += "\n" + causes_table(*trial.causes, trial);
  }
  if (result.parameters_digest) text += fmt::format("\nparameters digest  {}\n", *result.parameters_digest);
  if (const std::string why = account::why_no_digest(c, result.parameters_not_finite); !why.empty()) {
    text += fmt::format("\nno parameters digest: {}\n", why);
  }
  if (!result.checkpoints.empty()) {
    text +=
        fmt::format("\ncheckpoint  {}  (go on: --resume {})\n", result.checkpoints.back().folder, c.checkpoint.folder);
  }
  if (torch != nullptr) text += "\n" + memory_basis(c) + "\n";
  text += device_lines(result);
  text += choices_line(setup, trial);
  text += fmt::format("\nresult  {}  (advice: fsdpbench explain --from {})\n", (folder / "result.json").string(),
                      (folder / "result.json").string());
  if (trial.metrics) {
    text += fmt::format("trace   {}  (open in https://ui.perfetto.dev or chrome://tracing)\n",
                        (folder / "trace.json").string());
    const std::vector<int> shown = shown_ranks(trial, c.trace.ranks);
    if (c.mesh.ranks > static_cast<std::int64_t>(result.traces.size())) {
      text += fmt::format("        shows ranks {} of {}; a simulation records so many (trace.ranks)\n",
                          fmt::join(shown, ", "), c.mesh.ranks);
    } else if (shown.size() < result.traces.size()) {
      text += fmt::format("        shows ranks {} of {}; --set trace.ranks=0 shows all; trace/ has a file of each\n",
                          fmt::join(shown, ", "), result.traces.size());
    }
  }
  return text;
}

}  // namespace fsdpbench::app
