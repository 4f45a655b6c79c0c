#include "app/report/job_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "app/experiment/cause_json.h"
#include "base/enum_table.h"
#include "config/write.h"
#include "metrics/cause.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

template <typename Times>
json causes_json(const Times& times, double scale) {
  json out = json::object();
  for (const metrics::Cause cause : kEnumerators<metrics::Cause>) {
    const double value = static_cast<double>(times[cause]) * scale;
    if (value > 0) out[std::string(to_string(cause))] = value;
  }
  return out;
}

json recognition_json(const foreign::Recognition& r) {
  json out{{"kind", to_string(r.kind)},
           {"name", r.name},
           {"findings", json::array()},
           {"unknown", r.unknown},
           {"units", json::array()}};
  for (const foreign::Finding& f : r.findings) {
    out["findings"].push_back(
        {{"what", f.what}, {"value", f.value}, {"evidence", f.evidence}, {"confidence", f.confidence}});
  }
  for (std::size_t i = 0; i < r.table.units.size(); ++i) {
    const foreign::FoundUnit& unit = r.table.units[i];
    json one{{"label", unit.label}, {"root", static_cast<int>(i) == r.table.root}};
    if (unit.elements >= 0) one["elements"] = unit.elements;
    if (unit.bytes >= 0) one["bytes"] = unit.bytes;
    out["units"].push_back(std::move(one));
  }
  if (r.is_fsdp()) {
    out["mesh"] = {{"shard", r.facts.shard}, {"replicate", r.facts.replicate}};
    out["accumulate"] = r.facts.accumulate;
  }
  if (r.schedule) {
    out["schedule"] = {{"preset", r.schedule->config.fsdp.preset},
                       {"exact", r.schedule->exact()},
                       {"collectives_off", r.schedule->collectives_off},
                       {"distance", r.schedule->distance},
                       {"same_order", r.schedule->same_order},
                       {"deviations", r.schedule->deviations},
                       {"fsdp", config::to_json(r.schedule->config)["fsdp"]}};
  }
  return out;
}

json stalls_json(const std::vector<metrics::Stall>& stalls, const foreign::RankRows& rank, std::int64_t begin_ns,
                 const foreign::JobTrace& job) {
  json out = json::array();
  for (const metrics::Stall& stall : stalls) {
    if (stall.time.end - stall.time.begin < 1000) continue;  // the sums have them
    json one{{"begin_us", static_cast<double>(stall.time.begin - begin_ns) / 1e3},
             {"us", static_cast<double>(stall.time.end - stall.time.begin) / 1e3},
             {"cause", to_string(stall.cause)}};
    if (stall.op >= 0) {
      one["row"] = rank.names[static_cast<std::size_t>(rank.device[static_cast<std::size_t>(stall.op)].name)];
    }
    if (stall.late_rank >= 0) one["late_rank"] = job.ranks[static_cast<std::size_t>(stall.late_rank)].rank;
    out.push_back(std::move(one));
  }
  return out;
}

/// Milliseconds; `steps`: that `parts` are the sum of.
json parts_json(const metrics::StepBreakdown& parts, std::size_t steps) {
  const auto in_ms = [&](std::int64_t ns) { return static_cast<double>(ns) / 1e6 / static_cast<double>(steps); };
  return {{"step_ms", in_ms(parts.step)},
          {"computation_ms", in_ms(parts.computation)},
          {"communication_ms", in_ms(parts.communication)},
          {"overlap_ms", in_ms(parts.overlap)},
          {"exposed_communication_ms", in_ms(parts.exposed_communication)},
          {"exposed_copy_ms", in_ms(parts.exposed_copy)},
          {"idle_ms", in_ms(parts.idle)}};
}

json ranks_json(const ExplainedJob& e) {
  json out = json::array();
  for (std::size_t r = 0; r < e.explanation.ranks.size(); ++r) {
    const foreign::ExplainedRank& rank = e.explanation.ranks[r];
    const foreign::RankRows& rows = e.job.ranks[r];
    const foreign::RecognisedRank& found = e.recognition.ranks[r];
    json one{{"rank", rank.rank},
             {"file", rows.file},
             {"clock_offset_ns", rank.clock_offset_ns},
             {"steps", json::array()},
             {"streams", json::array()}};
    if (rank.overlap_pct) one["overlap_pct"] = *rank.overlap_pct;
    if (rank.most_allocated) one["most_allocated_bytes"] = *rank.most_allocated;
    if (rank.most_reserved) one["most_reserved_bytes"] = *rank.most_reserved;
    for (std::size_t s = 0; s < found.streams.size(); ++s) {
      one["streams"].push_back({{"stream", rows.streams[s].id},
                                {"device", rows.streams[s].device},
                                {"role", found.streams[s].role},
                                {"rows", found.streams[s].rows},
                                {"busy_ms", static_cast<double>(found.streams[s].busy_ns) / 1e6}});
    }
    metrics::StepBreakdown sum;
    for (std::size_t s = 0; s < rank.steps.size(); ++s) {
      const foreign::ExplainedStep& step = rank.steps[s];
      json collectives = json::array();
      for (const foreign::CollectiveUse& use : found.uses[s]) {
        const foreign::DeviceRow& row = rows.device[static_cast<std::size_t>(use.row)];
        json c{{"kind", to_string(use.kind)},
               {"purpose", to_string(use.purpose)},
               {"phase", to_string(use.phase)},
               {"begin_us", static_cast<double>(row.begin_ns - found.cut.steps[s].window.begin) / 1e3},
               {"us", static_cast<double>(row.end_ns - row.begin_ns) / 1e3}};
        if (use.unit >= 0) c["unit"] = e.recognition.table.units[static_cast<std::size_t>(use.unit)].label;
        collectives.push_back(std::move(c));
      }
      json one_step = parts_json(step.parts, 1);
      one_step["step"] = step.number;
      one_step["causes_ms"] = causes_json(step.causes, 1e-6);
      one_step["collectives"] = std::move(collectives);
      one_step["stalls"] = stalls_json(step.stalls, rows, found.cut.steps[s].window.begin, e.job);
      one["steps"].push_back(std::move(one_step));
      sum += step.parts;
    }
    if (!rank.steps.empty()) one["mean"] = parts_json(sum, rank.steps.size());
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

json job_json(const ExplainedJob& e) {
  const foreign::Explanation& x = e.explanation;
  json out{{"kind", "trace_explanation"}, {"schema_version", 2}, {"recognition", recognition_json(e.recognition)}};
  out["step"] = {{"mean_ms", x.mean_step_ms},
                 {"computation_ms", x.computation_ms},
                 {"communication_ms", x.communication_ms},
                 {"exposed_communication_ms", x.exposed_communication_ms},
                 {"exposed_copy_ms", x.exposed_copy_ms},
                 {"idle_ms", x.idle_ms},
                 {"causes_ms", causes_json(x.causes_ms, 1)}};
  if (x.step_ms.n > 0) {
    out["step"]["slowest_rank"] = {
        {"median_ms", x.step_ms.median}, {"low_ms", x.step_ms.ci_low},
        {"high_ms", x.step_ms.ci_high},  {"min_ms", x.step_ms.min},
        {"max_ms", x.step_ms.max},       {"steps", x.step_ms.n},
        {"steps_ms", x.steps_ms},        {"interval", metrics::to_string(x.step_ms.interval)}};
  }
  out["collectives"] = json::array();
  for (const foreign::ExplainedCollective& one : x.collectives) {
    json c{{"kind", one.kind},
           {"unit", one.unit},
           {"phase", one.phase},
           {"purpose", to_string(one.purpose)},
           {"a_step", one.times},
           {"time_ms", one.time_ms},
           {"waited_ms", one.waited_ms},
           {"exposed_ms", one.exposed_ms},
           {"causes_ms", causes_json(one.causes_ms, 1)}};
    if (one.bytes >= 0) c["bytes"] = one.bytes;
    if (one.ranks > 0) c["ranks"] = one.ranks;
    if (one.busbw_gb_s) c["busbw_gb_s"] = *one.busbw_gb_s;
    out["collectives"].push_back(std::move(c));
  }
  out["contention"] = json::array();
  for (const foreign::Contention& one : x.contention) {
    out["contention"].push_back({{"kernel", one.kernel},
                                 {"alone_us", one.alone_us},
                                 {"beside_us", one.beside_us},
                                 {"alone", one.alone},
                                 {"beside", one.beside},
                                 {"lost_ms", one.lost_ms}});
  }
  if (x.launches_known) out["late_launches_pct"] = x.late_launches_pct;
  out["clock_residual_ns"] = x.clock_residual_ns;
  if (x.late_rank) out["late_rank"] = e.job.ranks[static_cast<std::size_t>(*x.late_rank)].rank;
  out["causes"] = json::array();
  for (const metrics::CauseShare& share : x.causes) out["causes"].push_back(cause_json(share));
  if (e.typical_ms > 0) out["typical_ms"] = e.typical_ms;
  out["knobs"] = json::array();
  for (const ReplayedKnob& knob : e.replayed) {
    json one = knob_json(knob.gain, knob.words);
    one["words"] = knob.words;
    one["no_word"] = knob.no_word;
    out["knobs"].push_back(std::move(one));
  }
  if (!e.not_replayed_because.empty()) out["not_replayed_because"] = e.not_replayed_because;
  out["notes"] = x.notes;
  out["ranks"] = ranks_json(e);
  return out;
}

}  // namespace fsdpbench::app
