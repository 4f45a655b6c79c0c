#include "app/report/gpu_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fsdpbench::app {
namespace {

using nlohmann::json;

template <class T>
void add_known(json& j, const char* name, const std::optional<T>& value, double scale = 1) {
  if (!value) return;
  if (scale == 1) {
    j[name] = *value;
  } else {
    j[name] = static_cast<double>(*value) * scale;
  }
}

json limits_json(const GpuLimits& limits) {
  json j = json::object();
  add_known(j, "sm_mhz", limits.sm_mhz);
  add_known(j, "power_w", limits.power_mw, 1e-3);
  add_known(j, "pcie_width", limits.pcie_width);
  add_known(j, "pcie_generation", limits.pcie_generation);
  add_known(j, "ecc", limits.ecc);
  return j;
}

json errors_json(const GpuErrors& errors) {
  json j = json::object();
  add_known(j, "ecc_corrected", errors.ecc_corrected);
  add_known(j, "ecc_uncorrected", errors.ecc_uncorrected);
  add_known(j, "nvlink_replays", errors.nvlink_replays);
  add_known(j, "nvlink_recoveries", errors.nvlink_recoveries);
  add_known(j, "nvlink_crc", errors.nvlink_crc);
  return j;
}

json steps_of(const std::vector<metrics::GpuStep>& steps) {
  json j = json::object();
  const auto column = [&](const char* name, auto value) {
    json& list = j[name] = json::array();
    bool known = false;
    for (const metrics::GpuStep& step : steps) {
      list.push_back(value(step));
      known = known || !list.back().is_null();
    }
    if (!known) j.erase(name);
  };
  const auto or_null = [](const std::optional<std::int32_t>& value) { return value ? json(*value) : json(); };
  column("samples", [](const metrics::GpuStep& s) { return json(s.samples); });
  column("sm_mhz", [&](const metrics::GpuStep& s) { return or_null(s.sm_mhz); });
  column("power_w", [](const metrics::GpuStep& s) { return s.power_mw ? json(*s.power_mw * 1e-3) : json(); });
  column("temperature_c", [&](const metrics::GpuStep& s) { return or_null(s.temperature_c); });
  column("pcie_width", [&](const metrics::GpuStep& s) { return or_null(s.pcie_width); });
  column("pcie_generation", [&](const metrics::GpuStep& s) { return or_null(s.pcie_generation); });
  column("held_down_by",
         [](const metrics::GpuStep& s) { return s.samples > 0 ? json(metrics::limits_text(s.limits)) : json(); });
  return j;
}

json xids_json(const GpuHealth& health, const trace::RankTrace& trace) {
  const std::int32_t first = trace.records.empty() ? 0 : trace.records.front().step;
  json list = json::array();
  for (const GpuXid& xid : health.xids) {
    json& entry = list.emplace_back(json{{"code", xid.code}});
    for (std::size_t i = 0; i < trace.steps.size(); ++i) {
      if (xid.time_ns < trace.steps[i].begin_ns || xid.time_ns >= trace.steps[i].end_ns) continue;
      entry["step"] = first + static_cast<std::int32_t>(i);
    }
  }
  return list;
}

json throttling_json(const metrics::Throttling& t) {
  json j{{"why", metrics::limits_text(t.why)}, {"steps", t.steps}, {"of_steps", t.seen}};
  add_known(j, "sm_mhz", t.sm_mhz);
  add_known(j, "other_sm_mhz", t.other_sm_mhz);
  add_known(j, "longer_pct", t.longer_pct);
  return j;
}

}  // namespace

json gpus_json(const Trial& trial) {
  const engine::Measurement& m = trial.measurement;
  json list = json::array();
  for (std::size_t rank = 0; rank < m.gpus.size() && rank < m.traces.size(); ++rank) {
    if (!m.gpus[rank]) continue;
    const GpuHealth& health = *m.gpus[rank];
    json& j = list.emplace_back(json{{"rank", rank}});
    if (!health.unknown_because.empty()) j["unknown_because"] = health.unknown_because;
    if (health.samples.empty()) continue;
    j["limits"] = limits_json(health.limits);
    j["errors"] = errors_json(health.errors);
    j["xids"] = xids_json(health, m.traces[rank]);
    if (health.xids_left_out > 0) j["xids_left_out"] = health.xids_left_out;
    j["steps"] = steps_of(metrics::gpu_steps(health, m.traces[rank].steps));
    for (const metrics::Throttling& t : trial.throttled) {
      if (t.rank == static_cast<int>(rank)) j["throttled"].push_back(throttling_json(t));
    }
  }
  return list;
}

}  // namespace fsdpbench::app
