// Clusters with planted faults, on a computed clock: is the right part named, and nobody else?

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include "accept/blame_links.h"
#include "accept/link_parts.h"
#include "accept/verdict.h"
#include "base/random.h"
#include "support/simulated_cluster.h"

namespace fsdpbench::accept {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Diagnosis {
  std::vector<Finding> findings;
  std::optional<Remainder> remainder;
  Judgement compute, links;

  std::vector<Finding> accused() const {
    std::vector<Finding> all;
    std::ranges::copy_if(findings, std::back_inserter(all), &Finding::accuses);
    return all;
  }
  bool calls_transient(const Element& element) const {
    return std::ranges::any_of(findings, [&](const Finding& f) { return !f.accuses() && f.element == element; });
  }
};

Diagnosis diagnose(const Cluster& cluster, SimulatedCluster& simulated) {
  constexpr int kRounds = 15;
  Diagnosis diagnosis;
  DeviceRounds rounds;
  std::vector<double> rates;
  for (int i = 0; i < kRounds; ++i) {
    rounds.push_back(simulated.device_rates());
    rates.insert(rates.end(), rounds.back().begin(), rounds.back().end());
  }
  diagnosis.findings = blame_devices(cluster, rounds);
  const LinkReport links = blame_links(cluster, [&](const Round& round) { return simulated.pair_rates(round); });
  diagnosis.findings.insert(diagnosis.findings.end(), links.findings.begin(), links.findings.end());
  diagnosis.remainder = links.remainder;
  const Reference healthy{1, "a healthy cluster"};
  diagnosis.compute = judge_floor("compute", "of healthy", rates, healthy);
  diagnosis.links = judge_floor("links", "of healthy", links.one_way, healthy);
  return diagnosis;
}

/// 8 to 4096 ranks.
std::vector<Cluster> clusters() {
  return {{.nodes = 1},
          {.nodes = 6},
          {.nodes = 8, .rails = 4},
          {.nodes = 16},
          {.nodes = 16, .rails = 2},
          {.nodes = 24, .rails = 1, .nodes_per_switch = 8},
          {.nodes = 32, .rails = 8, .nodes_per_switch = 8},
          {.nodes = 64, .rails = 1, .nodes_per_switch = 16},
          {.nodes = 128, .rails = 2, .nodes_per_switch = 16},
          {.nodes = 256, .rails = 1, .nodes_per_switch = 32},
          {.nodes = 512, .rails = 1, .nodes_per_switch = 32}};
}

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : seed_(seed) {}
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  double between(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t next() { return split_mixed(seed_ * 1'000'003 + ++drawn_); }
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

int switches_of(const Cluster& c) { return c.nodes_per_switch > 0 ? c.nodes / c.nodes_per_switch : 1; }

/// The kinds of persistent single faults that a cluster can have and a measurement can tell.
std::vector<std::string> faults_for(const Cluster& c) {
  std::vector<std::string> kinds{"gpu"};
  if (c.ends() <= kMostForAllPairs) kinds.insert(kinds.end(), {"link", "half duplex"});
  if (!c.one_node()) kinds.push_back("nic");
  if (c.rails > 1) kinds.push_back("node");
  if (switches_of(c) > 2) kinds.insert(kinds.end(), {"switch", "uplink"});
  return kinds;
}

Fault planted(const std::string& kind, const Cluster& c, Chance& chance) {
  Fault fault;
  fault.factor = chance.between(0.5, 0.9);
  const auto two_of = [&](int n) {
    const int a = chance.below(n - 1);
    return std::pair(a, a + 1 + chance.below(n - a - 1));
  };
  if (kind == "gpu") fault.element = {Element::Kind::gpu, chance.below(c.ranks()), 0};
  if (kind == "nic") fault.element = {Element::Kind::nic, chance.below(c.nodes), chance.below(c.rails)};
  if (kind == "node") fault.element = {Element::Kind::node, chance.below(c.nodes), 0};
  if (kind == "switch") fault.element = {Element::Kind::switch_, chance.below(switches_of(c)), 0};
  if (kind == "uplink") {
    const auto [a, b] = two_of(switches_of(c));
    fault.element = {Element::Kind::uplink, a, b};
  }
  if (kind == "link" || kind == "half duplex") {
    const auto [a, b] = two_of(c.ends());
    fault.element = {Element::Kind::link, a, b};
    if (kind == "half duplex") fault.kind = Fault::Kind::half_duplex;
  }
  return fault;
}

std::string text_of(const Diagnosis& d, const Cluster& c) {
  std::string text;
  for (const Finding& f : d.findings) text += name_of(f.element, c) + ": " + f.evidence + "\n";
  return text;
}

TEST(BlameTest, ASinglePersistentFaultIsNamed) {
  int planted_faults = 0, named = 0, others = 0;
  std::map<std::string, std::pair<int, int>> by_kind;
  std::string missed;
  for (std::uint64_t seed = 1; planted_faults < 260; ++seed) {
    for (const Cluster& cluster : clusters()) {
      // Large clusters take longest, and show nothing that some of them do not.
      if (cluster.nodes > 64 && seed % 4 != 0) continue;
      for (const std::string& kind : faults_for(cluster)) {
        Chance chance(seed * 131 + static_cast<std::uint64_t>(planted_faults));
        const Fault fault = planted(kind, cluster, chance);
        SimulatedCluster simulated(cluster, {fault}, seed * 7919 + static_cast<std::uint64_t>(planted_faults));
        const Diagnosis diagnosis = diagnose(cluster, simulated);
        const std::vector<Finding> accused = diagnosis.accused();
        const auto finds = [&](const Finding& f) {
          return f.element == fault.element &&
                 (f.kind == Finding::Kind::half_duplex) == (fault.kind == Fault::Kind::half_duplex);
        };
        const bool right = std::ranges::any_of(accused, finds);
        EXPECT_FALSE(diagnosis.remainder) << diagnosis.remainder->sentence;
        ++planted_faults;
        named += right ? 1 : 0;
        others += static_cast<int>(std::ranges::count_if(accused, [&](const Finding& f) { return !finds(f); }));
        ++by_kind[kind].second;
        by_kind[kind].first += right ? 1 : 0;
        if (!right) {
          missed += fmt::format("seed {}, {} nodes: {} by {:.1f} %; found: {}\n", seed, cluster.nodes,
                                name_of(fault.element, cluster), 100 * (1 - fault.factor), text_of(diagnosis, cluster));
        }
      }
    }
  }
  RecordProperty("planted", planted_faults);
  RecordProperty("named", named);
  RecordProperty("others_accused", others);
  EXPECT_GE(planted_faults, 250);
  EXPECT_GE(named, 0.98 * planted_faults) << named << " of " << planted_faults << "\n" << missed;
  EXPECT_LE(others, 0.01 * planted_faults) << "others were accused beside them";
  for (const auto& [kind, count] : by_kind) {
    EXPECT_GE(count.first, 0.9 * count.second) << kind << ": " << count.first << " of " << count.second;
    EXPECT_GE(count.second, 8) << kind;
  }
}

TEST(BlameTest, AHealthyClusterAccusesNobody) {
  int healthy = 0;
  for (std::uint64_t seed = 1; healthy < 60; ++seed) {
    for (const Cluster& cluster : clusters()) {
      if (cluster.nodes > 64 && seed % 4 != 0) continue;
      SimulatedCluster simulated(cluster, {}, seed * 104'729 + static_cast<std::uint64_t>(healthy));
      const Diagnosis diagnosis = diagnose(cluster, simulated);
      EXPECT_TRUE(diagnosis.findings.empty())
          << cluster.nodes << " nodes, seed " << seed << ": " << text_of(diagnosis, cluster);
      EXPECT_FALSE(diagnosis.remainder);
      EXPECT_EQ(diagnosis.compute.verdict, Verdict::pass);
      EXPECT_EQ(diagnosis.links.verdict, Verdict::pass);
      ++healthy;
    }
  }
}

TEST(BlameTest, AFleetThatIsUniformlySlowIsCaughtByTheFloor) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    for (const Cluster& cluster : clusters()) {
      if (cluster.nodes > 64) continue;
      SimulatedCluster simulated(cluster, {}, seed, 0.8);
      const Diagnosis diagnosis = diagnose(cluster, simulated);
      EXPECT_TRUE(diagnosis.accused().empty()) << text_of(diagnosis, cluster);
      EXPECT_EQ(diagnosis.compute.verdict, Verdict::fail);
      EXPECT_EQ(diagnosis.links.verdict, Verdict::fail);
    }
  }
}

TEST(BlameTest, WhatComesAndGoesIsCalledTransient) {
  int planted_faults = 0, right = 0, accused = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Chance chance(seed);
    for (const Cluster& cluster :
         {Cluster{.nodes = 1}, Cluster{.nodes = 16}, Cluster{.nodes = 64, .nodes_per_switch = 16}}) {
      for (const bool gpu : {true, false}) {
        if (!gpu && cluster.one_node()) continue;
        Fault fault = planted(gpu ? "gpu" : "nic", cluster, chance);
        fault.kind = Fault::Kind::on_and_off;
        fault.factor = chance.between(0.5, 0.85);
        fault.duty = chance.between(0.25, 0.5);
        fault.period_s = gpu ? 40 : 12;
        SimulatedCluster simulated(cluster, {fault}, seed * 31 + (gpu ? 1 : 0));
        const Diagnosis diagnosis = diagnose(cluster, simulated);
        ++planted_faults;
        EXPECT_FALSE(diagnosis.remainder) << "nobody is to blame";
        right += diagnosis.calls_transient(fault.element) ? 1 : 0;
        accused += static_cast<int>(diagnosis.accused().size());
      }
    }
  }
  RecordProperty("planted", planted_faults);
  RecordProperty("called_transient", right);
  RecordProperty("accused", accused);
  EXPECT_GE(right, 0.95 * planted_faults) << right << " of " << planted_faults;
  EXPECT_LE(accused, 0.01 * planted_faults);
}

/// As a process that a crowded machine or a limit holds back: its rate scatters by half, and is never that of its
/// peers.
TEST(BlameTest, WhatIsAlwaysBelowItsPeersIsSlowHoweverMuchItScatters) {
  DeviceRounds rounds;
  for (int round = 0; round < 15; ++round) {
    rounds.push_back({1.0, 0.98, 0.1 + 0.015 * (round * 7 % 15), 1.02, 1.0, 0.99});
  }
  const std::vector<Finding> findings = blame_devices({.nodes = 1, .gpus_per_node = 6}, rounds);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].element, (Element{Element::Kind::gpu, 2, 0}));
  EXPECT_EQ(findings[0].kind, Finding::Kind::slow);
}

TEST(BlameTest, TwoFaultsAreBothNamed) {
  int pairs = 0, both = 0, others = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const Cluster& cluster : {Cluster{.nodes = 16}, Cluster{.nodes = 32, .rails = 8, .nodes_per_switch = 8},
                                   Cluster{.nodes = 64, .nodes_per_switch = 16}}) {
      Chance chance(seed * 17 + static_cast<std::uint64_t>(cluster.nodes));
      const std::vector<std::string> kinds = faults_for(cluster);
      const auto kind = [&] { return kinds[static_cast<std::size_t>(chance.below(static_cast<int>(kinds.size())))]; };
      Fault first = planted(kind(), cluster, chance), second = planted(kind(), cluster, chance);
      first.factor = std::min(first.factor, 0.85);
      second.factor = std::min(second.factor, 0.85);
      SimulatedCluster simulated(cluster, {first, second}, seed);
      const std::vector<Finding> accused = diagnose(cluster, simulated).accused();
      const auto has = [&](const Element& e) { return std::ranges::count(accused, e, &Finding::element) > 0; };
      ++pairs;
      both += has(first.element) && has(second.element) ? 1 : 0;
      others += static_cast<int>(std::ranges::count_if(
          accused, [&](const Finding& f) { return !(f.element == first.element) && !(f.element == second.element); }));
    }
  }
  RecordProperty("planted", pairs);
  RecordProperty("both_named", both);
  RecordProperty("others_accused", others);
  EXPECT_GE(both, 0.85 * pairs) << both << " of " << pairs
                                << "; one fault may lie within another, a NIC behind a switch";
  EXPECT_LE(others, 0.05 * pairs);
}

TEST(BlameTest, WhatTheNamedPartDoesNotExplainIsToldWithoutAName) {
  // All that goes through the NIC goes through the slow switch, too, which hides it.
  const Cluster cluster{.nodes = 32, .nodes_per_switch = 8};
  const Fault switch_fault{{Element::Kind::switch_, 1, 0}, Fault::Kind::slow, 0.7};
  SimulatedCluster both(cluster, {switch_fault, {{Element::Kind::nic, 11, 0}, Fault::Kind::slow, 0.6}}, 4);
  const Diagnosis diagnosis = diagnose(cluster, both);
  ASSERT_EQ(diagnosis.accused().size(), 1U) << text_of(diagnosis, cluster);
  EXPECT_EQ(diagnosis.accused().front().element, switch_fault.element);
  ASSERT_TRUE(diagnosis.remainder);
  EXPECT_NEAR(diagnosis.remainder->relative.median, 0.6, 0.05);
  EXPECT_THAT(diagnosis.remainder->sentence,
              AllOf(HasSubstr("part of what is slow is not explained by switch 1: 31 of 496 pairs carry less"),
                    HasSubstr("8 of the 8 that were measured again"), HasSubstr("node 11")));
  SimulatedCluster one(cluster, {switch_fault}, 4);
  EXPECT_FALSE(diagnose(cluster, one).remainder);
}

TEST(BlameTest, AFindingIsOneSentenceWithItsEvidenceAndWhatToCheck) {
  const Cluster cluster{.nodes = 16, .rails = 2};
  SimulatedCluster simulated(cluster, {{{Element::Kind::nic, 5, 1}, Fault::Kind::slow, 0.7}}, 1);
  const std::vector<Finding> accused = diagnose(cluster, simulated).accused();
  ASSERT_EQ(accused.size(), 1U);
  const Finding& finding = accused.front();
  EXPECT_THAT(finding.evidence, HasSubstr("NIC 1 of node 5 carries 7"));
  EXPECT_THAT(finding.check, HasSubstr("cable"));
  EXPECT_NEAR(finding.shortfall, 0.3, 0.05);
  EXPECT_GE(finding.relative.n, 5);
}

TEST(BlameTest, TooFewPeersAreNotCompared) {
  const Cluster cluster{.nodes = 2, .gpus_per_node = 2};
  SimulatedCluster simulated(cluster, {{{Element::Kind::gpu, 1, 0}, Fault::Kind::slow, 0.5}}, 1);
  EXPECT_TRUE(blame_devices(cluster, {simulated.device_rates()}).empty());
  const LinkReport report = blame_links(cluster, [&](const Round& round) { return simulated.pair_rates(round); });
  EXPECT_FALSE(report.compared);
  EXPECT_EQ(report.one_way.size(), 1U);
}

TEST(BlameTest, WhatWasNotMeasuredAccusesNobody) {
  const Cluster cluster{.nodes = 8};
  const LinkReport report = blame_links(cluster, [](const Round&) { return std::vector<PairRate>{}; });
  EXPECT_TRUE(report.findings.empty());
  EXPECT_FALSE(report.compared);
  EXPECT_TRUE(blame_devices(cluster, {std::vector<double>(64, 0.0)}).empty());
}

}  // namespace
}  // namespace fsdpbench::accept
