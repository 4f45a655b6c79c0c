#include "app/explain_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "config/fields.h"

namespace fsdpbench::app {
namespace {

double milliseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

/// An option must be what its key may be.
void check_option(const char* option, const char* key, const std::optional<double>& value) {
  config::RunConfig scratch;
  const config::Field& field = *config::find_field(key);
  if (!value || field.read(scratch, *value)) return;
  throw ConfigError(fmt::format("{} {} is not valid; expected {}.", option, *value, field.valid));
}

}  // namespace

Prediction predict(const engine::Setup& p, const GivenRates& given) {
  check_option("--tflops", "emulate.compute_tflops", given.tflops);
  check_option("--link-gb-per-s", "emulate.link_gb_per_s", given.link_gb_per_s);
  check_option("--link-latency-us", "emulate.link_latency_us", given.link_latency_us);
  const config::Emulate& emulate = p.config.emulate;
  const std::optional<double> tflops = given.tflops ? given.tflops : emulate.compute_tflops;
  const std::optional<double> bandwidth = given.link_gb_per_s ? given.link_gb_per_s : emulate.link_gb_per_s;
  Prediction prediction;
  prediction.wasted_gathers = schedule::wasted_gathers(p.plan, p.schedules.steady());
  if (!tflops) {
    prediction.why_none = "no rate of computation is known; --tflops (or emulate.compute_tflops) says one";
    return prediction;
  }
  if (!bandwidth && p.plan.mesh.ranks() > 1) {
    prediction.why_none = "no bandwidth of a link is known; --link-gb-per-s (or emulate.link_gb_per_s) says one";
    return prediction;
  }
  const bool offloads = p.host_memory.reserved > 0;
  if (offloads && !emulate.pcie_gb_per_s) {
    prediction.why_none = "no bandwidth of PCIe is known (fsdp.cpu_offload); emulate.pcie_gb_per_s says one";
    return prediction;
  }
  if (offloads) prediction.rates.pcie = *emulate.pcie();
  prediction.rates.flops_per_second = *tflops * 1e12;
  prediction.rates.link.bytes_per_second = bandwidth.value_or(0) * 1e9;
  prediction.rates.link.latency_seconds = given.link_latency_us.value_or(emulate.link_latency_us) * 1e-6;
  clock::OpTimes times = clock::emulated_times(p, prediction.rates);
  if (clock::too_long(times)) {
    prediction.why_none = "at these rates its ops would take over 104 days";
    return prediction;
  }
  prediction.step = account::predict_step(p, std::move(times));
  return prediction;
}

std::string prediction_text(const Prediction& prediction) {
  if (!prediction.step) return fmt::format("Predicted step: none, because {}\n", prediction.why_none);
  const account::StepPrediction& s = *prediction.step;
  const clock::Rates& r = prediction.rates;
  std::string text =
      fmt::format("Predicted step {:.2f} ms: compute {:.2f} ms, ", milliseconds(s.step), milliseconds(s.computation));
  const double tflops = r.flops_per_second / 1e12;
  if (s.communication == 0) return text + fmt::format("no communication; matrix products at {:.4g} TFLOP/s\n", tflops);
  const bool offloads = r.pcie.bytes_per_second > 0;
  text += fmt::format("exposed communication{} {:.2f} {} {:.2f} ms,\n", offloads ? " and copies" : "",
                      milliseconds(s.exposed_communication()), offloads ? "beside communication of" : "of",
                      milliseconds(s.communication));
  if (offloads) {
    text += fmt::format("copies over PCIe at {:.4g} us + {:.4g} GB/s each direction, the host's update in no time,\n",
                        r.pcie.latency_seconds * 1e6, r.pcie.bytes_per_second / 1e9);
  }
  return text + fmt::format(
                    "by the schedule with modelled op times: matrix products at {:.4g} TFLOP/s, a collective of\n"
                    "n ranks n-1 times ({:.4g} us + a rank's part at {:.4g} GB/s), a ring: not log2(n) times\n",
                    tflops, r.link.latency_seconds * 1e6, r.link.bytes_per_second / 1e9);
}

nlohmann::json prediction_json(const Prediction& prediction) {
  if (!prediction.step) return {{"reason", prediction.why_none}};
  const account::StepPrediction& s = *prediction.step;
  nlohmann::json j{{"step_ms", milliseconds(s.step)},
                   {"compute_ms", milliseconds(s.computation)},
                   {"comm_ms", milliseconds(s.communication)},
                   {"exposed_comm_ms", milliseconds(s.exposed_communication())},
                   {"tflops", prediction.rates.flops_per_second / 1e12}};
  if (s.communication > 0) {
    j["link_gb_per_s"] = prediction.rates.link.bytes_per_second / 1e9;
    j["link_latency_us"] = prediction.rates.link.latency_seconds * 1e6;
  }
  if (prediction.rates.pcie.bytes_per_second > 0) {
    j["pcie_gb_per_s"] = prediction.rates.pcie.bytes_per_second / 1e9;
    j["pcie_latency_us"] = prediction.rates.pcie.latency_seconds * 1e6;
  }
  return j;
}

}  // namespace fsdpbench::app
