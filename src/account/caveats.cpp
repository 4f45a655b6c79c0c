#include "account/caveats.h"

#include <fmt/format.h>

namespace fsdpbench::account {

std::string why_not_rated(const std::optional<Fidelity>& fidelity) {
  if (!fidelity || fidelity->rated()) return {};
  std::string parts;
  const auto part = [&](const char* what, const std::optional<ModelledTime>& time) {
    if (!time) return;
    parts += fmt::format("{}{} took {:.1f} ms a step where {:.1f} are modelled", parts.empty() ? "" : ", ", what,
                         time->observed_ms, time->modelled_ms);
  };
  part("computation", fidelity->compute);
  part("transfers", fidelity->transfer);
  if (fidelity->late_pct && *fidelity->late_pct > 0) {
    parts += fmt::format(", and a step {:.1f} % longer than its own op times allow, because lanes began late",
                         *fidelity->late_pct);
  }
  return fmt::format(
      "this machine did not keep up with what it emulates: {} ({:.1f} % over, {:.0f} % are allowed); use fewer ranks, "
      "or a larger model whose ops take longer",
      parts, fidelity->over_pct(), kFidelityLimitPct);
}

std::vector<std::string> caveats(const RunMetrics& metrics, const std::optional<Fidelity>& fidelity,
                                 int computing_ranks, int cores) {
  std::vector<std::string> result;
  if (const std::string why = why_not_rated(fidelity); !why.empty()) result.push_back("not rated: " + why);
  if (metrics.aa_noise_pct && metrics.step_ms.median > 0) {
    const double noise = *metrics.aa_noise_pct;
    const double exposed = 100 * metrics.exposed_comm_ms / metrics.step_ms.median;
    if (noise > kNoisyPct) {
      result.push_back(
          fmt::format("noisy: two halves of these steps differ by up to {:.1f} % (A/A noise); smaller "
                      "differences between runs mean nothing. Measure more steps, or on a quieter machine",
                      noise));
    } else if (metrics.overlap_pct && noise > kQuietPct && noise > exposed) {
      result.push_back(
          fmt::format("noisy: two halves of these steps differ by up to {:.1f} % (A/A noise), more than the "
                      "{:.1f} % of the step that is exposed communication",
                      noise, exposed));
    }
  }
  if (computing_ranks > cores && cores > 0) {
    result.push_back(
        fmt::format("{} ranks compute on {} cores: they take turns, so these are not the times of {} devices; "
                    "emulate.compute_tflops lets ranks compute without a core each",
                    computing_ranks, cores, computing_ranks));
  }
  return result;
}

}  // namespace fsdpbench::account
