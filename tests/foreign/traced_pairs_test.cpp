// A PyTorch job under two settings (tests/peer/pairs.py): what the trace of one says that the other would gain
// is what it did gain, to within the interval.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "account/counterfactual.h"
#include "account/run_view.h"
#include "account/statistics.h"
#include "account/typical_step.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/validate.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "foreign/traced_profile.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> recorded_pairs() {
  std::vector<fs::path> pairs;
  for (const auto& entry : fs::directory_iterator(FSDPBENCH_RECORDED_DIR)) {
    if (!entry.path().filename().string().starts_with("pairs-")) continue;
    for (const auto& pair : fs::directory_iterator(entry)) pairs.push_back(pair.path());
  }
  std::ranges::sort(pairs);
  return pairs;
}

struct Side {
  explicit Side(const fs::path& folder)
      : job(foreign::read_job({folder.string()})),
        found(foreign::recognise(job)),
        explained(foreign::explain(job, found)) {}
  foreign::JobTrace job;
  foreign::Recognition found;
  foreign::Explanation explained;
};

/// `config` without what `was` sets, and with what `is` sets.
config::RunConfig with_setting(config::RunConfig config, const nlohmann::json& was, const nlohmann::json& is) {
  const auto set = [&](const std::string& key, const std::string& value) {
    const config::Entry entry = config::read_override(key + "=" + value);
    ASSERT_TRUE(config::find_field(entry.name)->read(config, entry.value)) << key;
  };
  static const std::vector<std::pair<std::string, std::string>> kUnset{{"fsdp.strategy", "full_shard"},
                                                                       {"fsdp.forward_prefetch", "implicit"},
                                                                       {"fsdp.backward_prefetch", "pre"},
                                                                       {"fsdp.wrap", "block"}};
  for (const auto& [key, value] : kUnset) {
    if (was.contains(key)) set(key, value);
  }
  for (const auto& [key, value] : is.items()) set(key, value.is_string() ? value.get<std::string>() : value.dump());
  return config;
}

/// Gain of another valid configuration of the same training.
account::Counterfactual gain_of_setting(const AdoptedJob& adopted, const TracedStep& step,
                                        const config::RunConfig& other) {
  const double percent = std::max(100 * account::kPracticalThreshold, adopted.metrics.aa_noise_pct.value_or(0));
  const double noise_ms = percent / 100 * adopted.causes.step_ms;
  const account::RunView view(adopted.setup.schedules, adopted.traces);
  const account::TypicalStep typical(view, adopted.setup, noise_ms);
  account::Counterfactual gain = account::find_gain(typical, other, noise_ms);
  count_from_trace(step, step.least_ms, gain);
  return gain;
}

TEST(TracedPairs, WhatASettingGainsIsInsideTheInterval) {
  int asked = 0, inside = 0, pairs = 0;
  for (const fs::path& folder : recorded_pairs()) {
    std::ifstream file(folder / "pair.json");
    const nlohmann::json pair = nlohmann::json::parse(file);
    if (pair["sleeps"].get<double>() > 0) continue;
    ++pairs;
    const Side a(folder / "a"), b(folder / "b");
    const double gained = a.explained.step_ms.median - b.explained.step_ms.median;  // by going from a to b
    for (const bool forth : {true, false}) {
      // A trace of larger units does not tell of what they are made.
      if (!forth && pair["b"].contains("fsdp.wrap")) continue;
      const Side& from = forth ? a : b;
      const double actual = forth ? gained : -gained;
      const std::string what = folder.filename().string() + (forth ? ", a to b" : ", b to a");
      try {
        const AdoptedJob adopted = adopt_job(from.job, from.found);
        const TracedStep step = traced_step(from.explained, adopted);
        const config::RunConfig other =
            with_setting(adopted.setup.config, pair[forth ? "a" : "b"], pair[forth ? "b" : "a"]);
        const account::Counterfactual gain = gain_of_setting(adopted, step, other);
        ++asked;
        const bool in = gain.ci_low <= actual && actual <= gain.ci_high;
        inside += in;
        if (!in) {
          std::cout << what << ": " << gain.gain_ms << " ms [" << gain.ci_low << " to " << gain.ci_high << "], did "
                    << actual << "\n";
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": " << error.what();
      }
    }
  }
  EXPECT_EQ(pairs, 12);
  EXPECT_EQ(asked, 21);  // three are asked one way only
  EXPECT_GE(12 * inside, 11 * asked);
}

}  // namespace
}  // namespace fsdpbench::app
