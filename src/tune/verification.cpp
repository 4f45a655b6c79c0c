#include "tune/verification.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "account/statistics.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

std::string mib_text(std::int64_t bytes) { return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 20)); }

const tune::Tried& tried_of(const Tuning& tuning, const VerifiedPolicy& policy) {
  return tuning.result.tried[policy.tried];
}

std::vector<std::string> row_of(const Tuning& tuning, const VerifiedPolicy& policy, const char* name) {
  const tune::Tried& tried = tried_of(tuning, policy);
  const double predicted = tried.step_ns / 1e6, measured = policy.median_ms();
  std::vector<std::string> row{name, fmt::format("{:.3f}", predicted)};
  if (measured > 0) {
    row.insert(row.end(),
               {fmt::format("{:.3f}", measured), fmt::format("{:+.1f} %", 100 * (predicted / measured - 1))});
  } else {
    row.insert(row.end(), {"-", "-"});
  }
  row.push_back(policy.against ? fmt::format("{:.3f}", policy.against->ratio) : "-");
  row.push_back(policy.against ? fmt::format("{:.3f} to {:.3f}", policy.against->ci_low, policy.against->ci_high)
                               : "-");
  row.push_back(mib_text(tried.need.live));
  row.push_back(measured > 0 ? mib_text(policy.live_bytes) : "-");
  row.push_back(fmt::format("{}", policy.trials_ms.size()));
  return row;
}

json policy_json(const Tuning& tuning, const VerifiedPolicy& policy) {
  const tune::Tried& tried = tried_of(tuning, policy);
  json j{{"settings", settings_of(tuning.space, tried.point)},
         {"predicted_ms", tried.step_ns / 1e6},
         {"trials_ms", policy.trials_ms},
         {"predicted_live_bytes", tried.need.live},
         {"live_bytes", policy.trials_ms.empty() ? json() : json(policy.live_bytes)}};
  if (!policy.failed.empty()) j["failed"] = policy.failed;
  if (policy.against) {
    j["ratio"] = policy.against->ratio;
    j["ci_low"] = policy.against->ci_low;
    j["ci_high"] = policy.against->ci_high;
  }
  return j;
}

}  // namespace

double VerifiedPolicy::median_ms() const {
  std::vector<double> medians;
  for (const std::vector<double>& trial : trials_ms) medians.push_back(account::median(trial));
  return medians.empty() ? 0 : account::median(medians);
}

std::optional<double> kendall_tau(const Tuning& tuning, const Verification& verification) {
  std::vector<std::pair<double, double>> pairs;
  const auto add = [&](const VerifiedPolicy& policy) {
    if (!policy.trials_ms.empty()) pairs.emplace_back(tried_of(tuning, policy).step_ns, policy.median_ms());
  };
  add(verification.in_force);
  for (const VerifiedPolicy& proposal : verification.proposals) add(proposal);
  return account::kendall_tau(pairs);
}

std::string verification_text(const Tuning& tuning, const Verification& verification) {
  Table table;
  table.title = "run for real, in turns";
  table.header = {"",     "predicted, ms",        "measured, ms", "off",    "of current",
                  "99 %", "live, predicted, MiB", "measured",     "trials", "settings"};
  const auto add_row = [&](const char* name, const VerifiedPolicy& policy) {
    add_with_settings(
        table, row_of(tuning, policy, name),
        policy.failed.empty() ? settings_of(tuning.space, tried_of(tuning, policy).point) : policy.failed);
  };
  add_row("current", verification.in_force);
  add_row("once more (A/A)", verification.control);
  for (const VerifiedPolicy& proposal : verification.proposals) {
    add_row(proposal.tried == verification.chosen ? "chosen" : "", proposal);
  }
  std::string text = format_table(table);
  if (const std::optional<double> tau = kendall_tau(tuning, verification)) {
    text += fmt::format("order, predicted against measured: Kendall's tau {:.2f}\n", *tau);
  }
  if (verification.chosen == 0) text += "none was faster than the current configuration with certainty: keep what you have\n";
  return text;
}

json verification_json(const Tuning& tuning, const Verification& verification) {
  json j{{"in_force", policy_json(tuning, verification.in_force)},
         {"control", policy_json(tuning, verification.control)},
         {"proposals", json::array()},
         {"chosen", settings_of(tuning.space, tuning.result.tried[verification.chosen].point)}};
  for (const VerifiedPolicy& proposal : verification.proposals) {
    j["proposals"].push_back(policy_json(tuning, proposal));
  }
  const std::optional<double> tau = kendall_tau(tuning, verification);
  j["kendall_tau"] = tau ? json(*tau) : json();
  return j;
}

}  // namespace fsdpbench::app
