#include "account/identity_checks.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace fsdpbench::account {

void check_wire_bytes(const plan::CommunicationVolume& expected, std::span<const plan::CommunicationVolume> counted,
                      const plan::Plan& plan, const config::RunConfig& config) {
  const double rounding = static_cast<double>(4 * plan.units.size()) * static_cast<double>(config.train.accumulate) + 1;
  for (std::size_t rank = 0; rank < counted.size(); ++rank) {
    const auto check = [&](const char* kind, double bytes, double formula, double allowed) {
      if (std::abs(bytes - formula) <= allowed) return;
      throw Error(
          fmt::format("rank {}: {} moved {} bytes a step where the formula says {}; these measurements must not "
                      "be used",
                      rank, kind, bytes, formula),
          ExitCode::check_failed);
    };
    check("all_gather", counted[rank].all_gather, expected.all_gather, 0.5);
    check("reduce_scatter", counted[rank].reduce_scatter, expected.reduce_scatter, 0.5);
    check("send_recv", counted[rank].send_recv, expected.send_recv, 0.5);
    if (!plan::rows_follow_the_data(config)) {
      check("all_to_all", counted[rank].all_to_all, expected.all_to_all, 0.5);
    } else if (const double most = plan::most_expert_bytes(config); counted[rank].all_to_all > most + 0.5) {
      throw Error(fmt::format("rank {}: all_to_all moved {} bytes a step where {} are the most that can; these "
                              "measurements must not be used",
                              rank, counted[rank].all_to_all, most),
                  ExitCode::check_failed);
    }
    check("all_reduce", counted[rank].all_reduce, expected.all_reduce, rounding);
  }
}

void check_memory(const PoolStatistics& expected, std::span<const PoolStatistics> measured) {
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    if (measured[rank].peak_occupied_total <= expected.peak_occupied_total) continue;
    throw Error(fmt::format("rank {}: the pool peaked at {} bytes where the plan estimates {}; these measurements must "
                            "not be used",
                            rank, measured[rank].peak_occupied_total, expected.peak_occupied_total),
                ExitCode::check_failed);
  }
}

}  // namespace fsdpbench::account
