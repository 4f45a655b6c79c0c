#include "foreign/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "account/run_view.h"
#include "base/error.h"
#include "config/validate.h"
#include "config/words/fsdpbench.h"
#include "foreign/host_words.h"
#include "foreign/job_causes.h"
#include "foreign/matched_collectives.h"
#include "schedule/memory_walk.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Op;
using schedule::OpKind;

/// One step of one rank, op by op.
class StepAdopter {
 public:
  StepAdopter(const RankRows& rank, const RecognisedRank& found, const UnitTable& table, std::size_t step,
              const schedule::Schedule& schedule, const std::vector<plan::ModuleSizes>& sizes, bool root)
      : rank_(rank),
        found_(found),
        table_(table),
        step_(found.cut.steps[step]),
        uses_(found.uses[step]),
        schedule_(schedule),
        sizes_(sizes),
        root_(root),
        rows_(schedule.ops.size()) {}

  /// Gives every op its rows; false if a collective is not where the schedule has it.
  bool match() {
    const bool units = table_.source != UnitSource::order;
    const auto own = launch_order(rank_, step_, uses_, table_, found_.compute_stream, units);
    const auto other = launch_order(schedule_, root_, units);
    const OrderDifference difference = compare_orders(own, other);
    std::size_t collectives = 0, met = 0;
    for (const LaunchToken& token : other) collectives += token.what != LaunchToken::What::computation;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const int to = difference.to_other[i];
      if (own[i].what != LaunchToken::What::computation) {
        if (to < 0) return false;
        ++met;
        rows_[other[to].begin] = {step_.device[own[i].begin]};
        continue;
      }
      if (to < 0) {
        spare_ = own[i];  // of computation that the schedule has elsewhere: to the next run
        continue;
      }
      LaunchToken run = own[i];
      if (spare_) run.begin = spare_->begin;
      spare_.reset();
      deal_run(run, other[to]);
    }
    if (met != collectives) return false;
    deal_by_name();
    deal_optimizer();
    return true;
  }

  trace::Record record(std::size_t op, std::int64_t offset) const {
    trace::Record r;
    r.op = static_cast<std::int32_t>(op);
    const std::vector<std::int32_t>& rows = rows_[op];
    if (rows.empty()) return r;
    r.begin_ns = device(rows.front()).begin_ns;
    r.issued_ns = launched_ns(rank_, rows.front());
    for (std::int32_t row : rows) {
      r.begin_ns = std::min(r.begin_ns, device(row).begin_ns);
      r.end_ns = std::max(r.end_ns, device(row).end_ns);
      r.issued_ns = std::min(r.issued_ns, launched_ns(rank_, row));
    }
    r.begin_ns += offset;
    r.end_ns += offset;
    r.issued_ns += offset;
    return r;
  }
  const std::vector<std::int32_t>& rows(std::size_t op) const { return rows_[op]; }

  /// When the host's last wait before its next launch was over: no time of what it does itself. The begin of the step
  /// where it did not wait.
  std::int64_t waited_until(std::size_t op) const {
    while (op < rows_.size() && rows_[op].empty()) ++op;
    if (op == rows_.size()) return step_.window.begin;
    const auto end_of = [&](std::int32_t wait) { return rank_.host[wait].end_ns; };
    const std::vector<std::int32_t>& waits = found_.cut.waits;
    const auto after = std::ranges::upper_bound(waits, launched_ns(rank_, rows_[op].front()), {}, end_of);
    return after == waits.begin() ? step_.window.begin : std::max(step_.window.begin, end_of(after[-1]));
  }

 private:
  const DeviceRow& device(std::int32_t row) const { return rank_.device[row]; }

  bool computes(std::int32_t row) const {
    const DeviceRow& d = device(row);
    if (d.kind != Activity::computation || d.stream != found_.compute_stream) return false;
    const std::string& name = rank_.names[d.name];
    const auto own = dialects::own_name(name);
    if (own) return own->op == "forward" || own->op == "backward" || own->op == "recompute";
    return !is_layout_copy(name);
  }

  double weight(const Op& op) const {
    if (op.module < 0) return 1;
    const plan::ModuleSizes& s = sizes_[op.module];
    const double flops = op.kind == OpKind::backward    ? s.backward_flops
                         : op.kind == OpKind::recompute ? s.recompute_flops
                                                        : s.forward_flops;
    return std::max(flops, 1.0);
  }

  /// One row an op where there are as many; else in order, so that each op has its share of the time.
  void deal(const std::vector<std::int32_t>& rows, const std::vector<std::size_t>& ops) {
    if (rows.empty() || ops.empty()) return;
    if (rows.size() == ops.size()) {
      for (std::size_t i = 0; i < ops.size(); ++i) rows_[ops[i]] = {rows[i]};
      return;
    }
    double time = 0, weights = 0;
    for (std::int32_t row : rows) time += static_cast<double>(device(row).end_ns - device(row).begin_ns);
    for (std::size_t op : ops) weights += weight(schedule_.ops[op]);
    double gone = 0, share = weight(schedule_.ops[ops.front()]);
    std::size_t at = 0;
    for (std::int32_t row : rows) {
      const double took = static_cast<double>(device(row).end_ns - device(row).begin_ns);
      while (at + 1 < ops.size() && (gone + took / 2) * weights > share * time) {
        share += weight(schedule_.ops[ops[++at]]);
      }
      rows_[ops[at]].push_back(row);
      gone += took;
    }
  }

  void deal_run(const LaunchToken& own, const LaunchToken& other) {
    std::vector<std::int32_t> rows;
    for (int i = own.begin; i < own.end; ++i) {
      if (computes(step_.device[i])) rows.push_back(step_.device[i]);
    }
    std::vector<std::size_t> ops;
    for (int i = other.begin; i < other.end; ++i) {
      const OpKind kind = schedule_.ops[i].kind;
      if (kind == OpKind::forward || kind == OpKind::backward || kind == OpKind::recompute) {
        ops.push_back(static_cast<std::size_t>(i));
      }
    }
    deal(rows, ops);
  }

  /// Copies and what else this program names itself, or PyTorch does.
  void deal_by_name() {
    std::map<std::string_view, std::vector<std::int32_t>> named;
    for (std::int32_t row : step_.device) {
      const DeviceRow& d = device(row);
      if (d.kind == Activity::collective) continue;
      const std::string& name = rank_.names[d.name];
      if (const auto own = dialects::own_name(name)) {
        named[own->op].push_back(row);
      } else if (name.find("split_with_sizes_copy") != std::string::npos) {
        named["copy_out"].push_back(row);
      } else if (name.find("chunk_cat") != std::string::npos) {
        named["reduce_copy_in"].push_back(row);
      }
    }
    std::map<OpKind, std::vector<std::size_t>> ops;
    for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
      const Op& op = schedule_.ops[i];
      if (op.has_work() && !op.is_collective() && rows_[i].empty() && op.kind != OpKind::forward &&
          op.kind != OpKind::backward && op.kind != OpKind::recompute) {
        ops[op.kind].push_back(i);
      }
    }
    for (const auto& [kind, list] : ops) {
      const auto rows = named.find(to_string(kind));
      if (rows != named.end() && rows->second.size() == list.size()) deal(rows->second, list);
    }
  }

  /// Computation after the last collective, where no names tell.
  void deal_optimizer() {
    std::vector<std::size_t> ops;
    for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
      if (schedule_.ops[i].kind == OpKind::optimizer && rows_[i].empty()) ops.push_back(i);
    }
    std::size_t after = 0;
    for (std::size_t i = 0; i < step_.device.size(); ++i) {
      if (device(step_.device[i]).kind == Activity::collective) after = i + 1;
    }
    std::vector<std::int32_t> rows;
    for (std::size_t i = after; i < step_.device.size(); ++i) {
      const DeviceRow& d = device(step_.device[i]);
      if (d.kind != Activity::computation) continue;
      if (dialects::own_name(rank_.names[d.name])) return;
      rows.push_back(step_.device[i]);
    }
    deal(rows, ops);
  }

  const RankRows& rank_;
  const RecognisedRank& found_;
  const UnitTable& table_;
  const JobStep& step_;
  const std::vector<CollectiveUse>& uses_;
  const schedule::Schedule& schedule_;
  const std::vector<plan::ModuleSizes>& sizes_;
  bool root_;
  std::vector<std::vector<std::int32_t>> rows_;  // by op
  std::optional<LaunchToken> spare_;
};

/// ", the first of them ncclDevKernel_AllGather_RING_LL, 1.234 ms into step 3"
std::string first_elsewhere(const JobTrace& job, const Recognition& found) {
  if (found.schedule->first_off < 0) return {};
  const RankRows& rank = job.ranks.front();
  const JobStep& step = found.ranks.front().cut.steps[found.reference_step];
  const std::int32_t at = step.device[found.schedule->first_off];
  const DeviceRow& row = rank.device[at];
  const std::string& name = rank.names[row.name];
  return fmt::format(", the first of them {}, {:.3f} ms into step {}", name.substr(0, name.find('(')),
                     static_cast<double>(row.begin_ns - step.window.begin) / 1e6, step.number);
}

/// The recording that would tell the schedule, a sentence.
std::string_view what_would_settle(const Recognition& found) {
  for (const CollectiveUse& use : found.ranks.front().uses[found.reference_step]) {
    if (use.purpose == Purpose::pipeline) return "Stages of a pipeline order their microbatches: record it without.";
    if (use.elements < 0) return "Record sizes: ProfilerActivity.CPU, or `nsys export --include-blobs=true`.";
  }
  return found.table.source == UnitSource::order
             ? "Record names of units: ProfilerActivity.CPU has FSDP2's, Nsight under emit_nvtx(), too."
             : "All is recorded that would tell: the program has an order of its own.";
}

}  // namespace

AdoptedRun adopt(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                 const schedule::Schedules& schedules, const std::vector<plan::ModuleSizes>& sizes) {
  AdoptedRun run;
  const schedule::Schedule& steady = schedules.steady();
  std::size_t steps = found.ranks.front().cut.steps.size();
  for (const RecognisedRank& rank : found.ranks) steps = std::min(steps, rank.cut.steps.size());
  for (const RankRows& rank : job.ranks) {
    run.traces.push_back({});
    run.traces.back().rank = rank.rank;
  }
  const std::size_t first_number = schedules.steps.size();
  std::size_t adopted = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    std::vector<StepAdopter> parts;
    bool all = true;
    for (std::size_t r = 0; all && r < job.ranks.size(); ++r) {
      parts.emplace_back(job.ranks[r], found.ranks[r], found.table, s, steady, sizes, found.facts.root);
      all = parts.back().match();
    }
    if (!all) {
      ++run.left_out;
      continue;
    }
    const auto number = static_cast<std::int32_t>(first_number + adopted++);
    for (std::size_t r = 0; r < job.ranks.size(); ++r) {
      const std::int64_t offset = matched.offset_ns(static_cast<int>(r));
      const Interval window{found.ranks[r].cut.steps[s].window.begin + offset,
                            found.ranks[r].cut.steps[s].window.end + offset};
      std::array<std::int64_t, kLaneCount> lane;
      lane.fill(window.begin);
      std::vector<std::int64_t> done(static_cast<std::size_t>(schedules.event_count), window.begin);  // by event
      std::int64_t issued = window.begin;
      for (std::size_t i = 0; i < steady.ops.size(); ++i) {
        const Op& op = steady.ops[i];
        trace::Record record = parts[r].record(i, offset);
        record.op = static_cast<std::int32_t>(i);
        record.step = number;
        std::int64_t& last = lane[index_of(op.lane)];
        if (const std::vector<std::int32_t>& rows = parts[r].rows(i); !rows.empty()) {
          if (op.is_collective()) record.end_ns = matched.last_end_ns(static_cast<int>(r), rows.front()) + offset;
          issued = std::clamp(record.issued_ns, issued, window.end);
          record.begin_ns = std::clamp(record.begin_ns, last, window.end);
          record.end_ns = std::clamp(record.end_ns, record.begin_ns, window.end);
          last = record.end_ns;
          if (op.is_collective()) {
            const auto arrival = matched.last_arrival(static_cast<int>(r), rows.front());
            record.peers_arrived_ns = std::clamp(arrival.at_ns + offset, record.begin_ns, record.end_ns);
          }
        } else if (op.has_work()) {
          // It began when its lane was free, it was issued and what it waits for was done, and took no time.
          last = std::max(last, issued);
          for (const schedule::Wait& wait : op.waits) last = std::max(last, done[wait.event]);
          last = std::clamp(last, window.begin, window.end);
          record.begin_ns = record.end_ns = last;
          if (op.is_collective()) record.peers_arrived_ns = last;
        }
        if (op.record >= 0) done[op.record] = last;
        record.issued_ns = std::min(issued, op.has_work() ? record.begin_ns : issued);
        if (op.is_host()) {
          issued = std::clamp(parts[r].waited_until(i) + offset, issued, std::max(issued, window.end));
          record.end_ns = issued;
        }
        run.traces[r].records.push_back(record);
      }
      run.traces[r].steps.push_back({window.begin, window.end, issued});
    }
  }
  if (adopted == 0) run.traces.clear();
  return run;
}

}  // namespace fsdpbench::foreign

namespace fsdpbench::app {

AdoptedJob adopt_job(const foreign::JobTrace& job, const foreign::Recognition& found) {
  if (!found.is_fsdp()) {
    throw ConfigError(
        fmt::format("This is {}: only sharded training follows a schedule that is known here.", found.name));
  }
  if (job.ranks.front().is_compiled() && !found.schedule) {
    throw ConfigError("XLA orders the collectives of a compiled program itself; `explain --hlo` reads the program.");
  }
  if (!found.schedule || !found.schedule->exact()) {
    throw ConfigError(fmt::format(
        "The order of collectives is not one of the schedules that are known here: {}. {}",
        found.schedule ? fmt::format("{} of them are elsewhere than {} has them{}", found.schedule->collectives_off,
                                     found.schedule->config.fsdp.preset, foreign::first_elsewhere(job, found))
                       : "none is possible with these units",
        foreign::what_would_settle(found)));
  }
  config::RunConfig config = found.schedule->config;
  if (static_cast<std::int64_t>(job.ranks.size()) != config.mesh.ranks) {
    throw ConfigError(fmt::format("The job has {} ranks; files were given for {}: one file per rank is needed.",
                                  config.mesh.ranks, job.ranks.size()));
  }
  // Its times are given: no link and no arithmetic is modelled.
  config.device.backend = config::BackendKind::cpu;
  config.emulate = {};
  config::validate(config);
  AdoptedJob adopted;
  adopted.setup = engine::set_up(config);
  const foreign::MatchedCollectives matched(job);
  foreign::AdoptedRun run = foreign::adopt(job, found, matched, adopted.setup.schedules, adopted.setup.sizes);
  if (run.traces.empty()) throw ConfigError("No step of the trace follows the schedule on all ranks.");
  adopted.traces = std::move(run.traces);
  adopted.left_out = run.left_out;
  const engine::Setup& s = adopted.setup;
  const account::RunView view(s.schedules, adopted.traces);
  const double tokens = static_cast<double>(config.train.batch_per_rank * config.train.seq_len *
                                            config.train.accumulate * config.mesh.ranks);
  adopted.metrics = account::run_metrics(view, s.plan.groups, tokens);
  adopted.causes =
      account::report_causes(view, s, adopted.metrics, {}, {.gpus = !job.ranks.front().computes_on_host()});
  return adopted;
}

}  // namespace fsdpbench::app
