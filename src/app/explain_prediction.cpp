#include "app/explain_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "config/fields.h"

namespace fsdpbench::app {
namespace {

double milliseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

double tera(double rate) { return rate / 1e12; }
double giga(double rate) { return rate / 1e9; }
double micro(double seconds) { return seconds * 1e6; }

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

// clang-format off
template <>
Fields<Prediction> declared() {
  using P = Prediction;
  using S = account::StepPrediction;
  using R = clock::Rates;
  const auto sends = [](const P& p) { return p.step && p.step->communication > 0; };
  const auto copies = [](const P& p) { return p.step && p.rates.pcie.bytes_per_second > 0; };
  return {"StepPrediction", "The step of a configuration that nobody has run.", "app/explain_prediction.h", {
    {"reason", &P::why_none, "", "why there is no step", when([](const P& p) { return !p.step; })},
    {"step_ms", via(&P::step, &S::step, milliseconds), "ms", "the step"},
    {"compute_ms", via(&P::step, &S::computation, milliseconds), "ms", "sum over the compute lane"},
    {"comm_ms", via(&P::step, &S::communication, milliseconds), "ms", "sum over all collectives of a rank, each as if alone"},
    {"exposed_comm_ms", via(&P::step, &S::exposed_communication, milliseconds), "ms", "time in which nothing is computed"},
    {"tflops", via(&P::rates, &R::flops_per_second, tera), "TFLOP/s", "rate of matrix products", when(&P::step)},
    {"link_gb_per_s", via(&P::rates, &R::link, &LinkModel::bytes_per_second, giga), "GB/s", "bandwidth of a link", when(sends)},
    {"link_latency_us", via(&P::rates, &R::link, &LinkModel::latency_seconds, micro), "us", "latency of a link", when(sends)},
    {"pcie_gb_per_s", via(&P::rates, &R::pcie, &LinkModel::bytes_per_second, giga), "GB/s", "bandwidth of PCIe in each direction", when(copies)},
    {"pcie_latency_us", via(&P::rates, &R::pcie, &LinkModel::latency_seconds, micro), "us", "latency of PCIe", when(copies)},
  }};
}
// clang-format on

}  // namespace fsdpbench::app
