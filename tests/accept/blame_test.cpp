// Clusters with planted faults, on a computed clock: is the right part named, and nobody else?

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include "accept/blame_links.h"
#include "accept/link_parts.h"
#include "accept/verdict.h"
#include "base/random.h"
#include "support/simulated_cluster.h"

namespace fsdpbench::accept {
namespace {

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

/// Nothing scatters, so every number follows from the faults. Pairs that are slow are measured three times more, by
/// ever fewer at once; then 9 pairs of others and 6 of each suspect, one at a time.
TEST(BlameTest, WithoutScatterEachFigureIsTheFaults) {
  using Kind = Element::Kind;
  const Cluster node{.nodes = 1}, nodes{.nodes = 16}, rails{.nodes = 8, .rails = 2};
  const Cluster switches{.nodes = 32, .nodes_per_switch = 8};
  const auto slow = [](Kind kind, int index, int other, double factor) {
    return Fault{{kind, index, other}, Fault::Kind::slow, factor};
  };
  const Fault duplex{{Kind::link, 3, 5}, Fault::Kind::half_duplex};
  const Fault now_and_then{{Kind::nic, 0, 0}, Fault::Kind::on_and_off, 0.7, 0.5, 8};
  const auto expect = [](const Cluster& cluster, const std::vector<Fault>& faults, const std::string& wanted,
                         int rounds, int measurements, std::size_t different) {
    SimulatedCluster simulated(cluster, faults, 1, 1, Scattering{0, 0, 0, 0, 0});
    std::set<std::pair<int, int>> alone;
    const LinkReport report = blame_links(cluster, [&](const Round& round) {
      if (round.size() == 1) alone.insert({round[0].a, round[0].b});
      std::set<int> ends;
      for (const Pairing& p : round) EXPECT_TRUE(p.a < p.b && ends.insert(p.a).second && ends.insert(p.b).second);
      return simulated.pair_rates(round);
    });
    std::string said;
    for (const Finding& f : report.findings) {
      said += said.empty() ? "" : "; ";
      said += f.evidence.substr(0, f.evidence.find(" of what its peers"));
      if (!f.accuses()) continue;
      said += fmt::format(", {} re-tests", f.relative.n);
      EXPECT_EQ(f.shortfall, 1 - f.relative.median);
      EXPECT_EQ(f.check, next_check(f.element, cluster, SlowAt::transfers));
    }
    if (report.remainder) said += "; " + report.remainder->sentence;
    EXPECT_EQ(said, wanted);
    EXPECT_EQ(report.rounds, rounds) << said;
    EXPECT_EQ(report.measurements, measurements) << said;
    EXPECT_EQ(alone.size(), different) << said;
  };
  expect(node, {}, "", 7, 28, 0);
  expect(node, {slow(Kind::link, 3, 5, 0.6)}, "the link between rank 3 and rank 5 carries 60.0 %, 6 re-tests", 25, 46,
         7);
  expect(node, {duplex}, "the link between rank 3 and rank 5 in both directions at once carries 50.0 %, 6 re-tests", 25,
         46, 7);
  expect(node, {slow(Kind::link, 3, 5, 0.95)}, "", 7, 28, 0);
  expect(node, {slow(Kind::link, 3, 5, 0.949)}, "the link between rank 3 and rank 5 carries 94.9 %, 6 re-tests", 25, 46,
         7);
  // Two sockets of four, far from each other by design.
  expect({.nodes = 1, .nodes_per_switch = 4}, {slow(Kind::uplink, 0, 1, 0.5)}, "", 7 + 3 * 16, 28 + 3 * 16, 16);
  expect(nodes, {slow(Kind::nic, 5, 0, 0.95)}, "", 15, 120, 0);
  expect(nodes, {slow(Kind::nic, 5, 0, 0.7)}, "NIC 0 of node 5 carries 70.0 %, 6 re-tests", 75, 180, 24);
  expect(rails, {slow(Kind::nic, 5, 1, 0.7)}, "NIC 1 of node 5 carries 70.0 %, 6 re-tests", 43, 64, 13);
  expect(rails, {slow(Kind::node, 5, 0, 0.7)}, "node 5 carries 70.0 %, 12 re-tests", 43, 64, 13);
  expect(switches, {slow(Kind::switch_, 2, 0, 0.7)}, "switch 2 carries 70.0 %, 6 re-tests", 433, 496 + 3 * 220 + 15,
         229);
  expect(switches, {slow(Kind::uplink, 1, 3, 0.7)}, "the path between switch 1 and switch 3 carries 70.0 %, 6 re-tests",
         160, 496 + 3 * 64 + 15, 71);
  expect(switches, {slow(Kind::nic, 5, 0, 0.5), slow(Kind::switch_, 2, 0, 0.8)},
         "switch 2 carries 80.0 %, 6 re-tests; NIC 0 of node 5 carries 50.0 %, 6 re-tests", 479, 496 + 3 * 243 + 21,
         252);
  expect(switches, {slow(Kind::switch_, 1, 0, 0.7), slow(Kind::nic, 11, 0, 0.6)},
         "switch 1 carries 70.0 %, 6 re-tests; part of what is slow is not explained by switch 1: 31 of 496 pairs "
         "carry less than that leaves them, and 8 of the 8 that were measured again, each alone, still carry 60.0 % of "
         "it (95 %: 60.0 to 60.0): node 0 with node 11; node 1 with node 11; node 2 with node 11; node 3 with node 11; "
         "and others; repair what is named, and accept again to see what remains",
         433 + 8, 1171 + 8, 229);
  expect(nodes, {now_and_then},
         "NIC 0 of node 0 fell by up to 30 % in 7 of 15 pairings and was as fast as its peers in the others", 92, 197,
         22);
}

/// Ends that carry 1 to each other but for what `rate` says; nothing scatters.
LinkReport carried(const Cluster& cluster, const std::function<double(int a, int b, int rail)>& rate) {
  return blame_links(cluster, [&](const Round& round) {
    std::vector<PairRate> rates;
    for (const Pairing& p : round) {
      PairRate& one = rates.emplace_back(PairRate{p, {}, {}});
      for (int rail = 0; rail < cluster.rails; ++rail) {
        one.one_way.push_back(rate(p.a, p.b, rail));
        one.both_ways.push_back(2 * one.one_way.back());
      }
      one.to_a = one.to_b = *std::ranges::min_element(one.one_way);
    }
    return rates;
  });
}

std::string names_of(const LinkReport& report, const Cluster& cluster) {
  std::string text;
  for (const Finding& f : report.findings) {
    text += (text.empty() ? "" : "; ") + std::string(f.accuses() ? "" : "not ") + name_of(f.element, cluster);
  }
  return text;
}

TEST(BlameTest, TwoSlowLinksOfAnEndAreLinksAndThreeAreAnEndThatWasSlowForAWhile) {
  const Cluster nodes{.nodes = 16};
  const auto slow_to = [&](int last) {
    return carried(nodes, [&](int a, int b, int) { return a == 0 && b <= last ? 0.4 : 1; });
  };
  EXPECT_EQ(names_of(slow_to(2), nodes), "the link between node 0 and node 1; the link between node 0 and node 2");
  const LinkReport three = slow_to(3);
  EXPECT_EQ(three.findings.front().relative.n, 15);
  EXPECT_EQ(three.findings.front().check, next_check({Element::Kind::nic, 0, 0}, nodes, SlowAt::transfers));
  EXPECT_EQ(names_of(three, nodes), "not NIC 0 of node 0");
  EXPECT_EQ(three.findings.front().evidence,
            "NIC 0 of node 0 fell by up to 60 % in 3 of 15 pairings and was as fast as its peers in the others");
  EXPECT_EQ(names_of(carried(nodes, [](int a, int b, int) { return a < 3 && b == 15 ? 0.6 : 1; }), nodes),
            "not NIC 0 of node 15");
}

/// Who is named if the pairs of `slow` carry 0.7, of 1, on the first `rails` rails.
TEST(BlameTest, APartIsToBlameIfFourFifthsOfItsPairsAreSlow) {
  using Pairs = std::set<std::pair<int, int>>;
  const auto named = [](const Cluster& cluster, const Pairs& slow, int rails = 1) {
    return names_of(carried(cluster,
                            [&](int a, int b, int rail) {
                              return slow.contains({a, b}) && rail < rails ? 0.7 : 1;
                            }),
                    cluster);
  };
  const auto of_node_0 = [](int last) {
    Pairs pairs;
    for (int other = 1; other <= last; ++other) pairs.insert({0, other});
    return pairs;
  };
  const Cluster eleven{.nodes = 11};
  EXPECT_EQ(named(eleven, of_node_0(8)), "NIC 0 of node 0") << "8 of 10";
  EXPECT_EQ(named(eleven, of_node_0(7)), "not NIC 0 of node 0");
  // Half of the others were slow once; 1 + 5 √1 are 6.
  EXPECT_EQ(named(eleven, of_node_0(6)), "not NIC 0 of node 0");
  EXPECT_EQ(named(eleven, of_node_0(5)), "");
  EXPECT_EQ(named({.nodes = 5}, of_node_0(4)), "NIC 0 of node 0") << "five are enough";
  EXPECT_EQ(named({.nodes = 8}, of_node_0(7)), "NIC 0 of node 0");
  EXPECT_EQ(named({.nodes = 8}, {{0, 7}}), "the link between node 0 and node 7") << "the pair that is measured first";
  const Cluster rails{.nodes = 8, .rails = 5};
  EXPECT_EQ(named(rails, {{2, 5}}, 4), "the link between node 2 and node 5");
  EXPECT_EQ(named(rails, {{2, 5}}, 3), "");
  // Two pairs are a path, and one is a link.
  Cluster switches{.nodes = 8, .switch_of = {0, 1, 1, 2, 2, 2, 2, 2}, .switches = {"a", "b", "c"}};
  EXPECT_EQ(named(switches, {{0, 1}, {0, 2}}), "the path between switch a and switch b");
  switches.switch_of[2] = 2;
  EXPECT_EQ(named(switches, {{0, 1}}), "the link between node 0 and node 1");
  // Three nodes of a switch are slow to each other, and to nobody else.
  EXPECT_EQ(
      named({.nodes = 12, .nodes_per_switch = 3}, {{0, 1}, {0, 2}, {1, 2}}),
      "the link between node 0 and node 1; the link between node 0 and node 2; the link between node 1 and node 2");
}

/// Rates of pairs are products of their ends'; only partners that nobody suspects measure an end again.
TEST(BlameTest, WhoIsMeasuredAgainMeetsTheHealthy) {
  const LinkReport report =
      carried({.nodes = 16}, [](int a, int b, int) { return (a == 0 ? 0.7 : 1) * (a == 1 || b == 1 ? 0.8 : 1); });
  ASSERT_EQ(report.findings.size(), 2U);
  EXPECT_EQ(report.findings[0].evidence,
            "NIC 0 of node 0 carries 70.0 % of what its peers do (95 %: 70.0 to 70.0), in the first measurement and "
            "again in 6 re-tests, each alone, against partners that are known to be healthy");
  EXPECT_EQ(report.findings[1].relative.low, 0.8);
  // Each end has a slow link: then everybody is good enough.
  const LinkReport matched =
      carried({.nodes = 8}, [](int a, int b, int) { return a % 2 == 0 && b == a + 1 ? 0.7 : 1; });
  EXPECT_EQ(matched.findings.size(), 4U);
  EXPECT_EQ(matched.rounds, 7 + 3 * 4 + 9 + 4 * 6);
}

/// Of n = 0, 1, …: healthy ends 5 n with 1 + 7 n further on; an end with 1 + 7 n further on; members n and 2 n of two
/// switches. What is suspected is passed over.
TEST(BlameTest, PairsThatAreMeasuredAgainAreInAMixedOrder) {
  const auto last = [](const Cluster& cluster, std::size_t count, const std::function<double(int, int)>& rate) {
    Round alone;
    blame_links(cluster, [&](const Round& round) {
      std::vector<PairRate> rates;
      for (const Pairing& p : round) rates.push_back({p, {rate(p.a, p.b)}, {2 * rate(p.a, p.b)}});
      alone.push_back(round.front());
      return rates;
    });
    return Round(alone.end() - static_cast<std::ptrdiff_t>(count), alone.end());
  };
  EXPECT_EQ(last({.nodes = 8}, 15, [](int a, int b) { return a == 3 || b == 3 ? 0.7 : 1; }), (Round{{0, 1},
                                                                                                    {5, 6},
                                                                                                    {1, 2},
                                                                                                    {5, 7},
                                                                                                    {1, 4},
                                                                                                    {1, 5},
                                                                                                    {1, 6},
                                                                                                    {4, 6},
                                                                                                    {0, 1},  // others
                                                                                                    {3, 4},
                                                                                                    {3, 4},
                                                                                                    {2, 3},
                                                                                                    {1, 3},
                                                                                                    {0, 3},
                                                                                                    {3, 7}}));
  const Cluster two{.nodes = 8, .switch_of = {0, 0, 0, 1, 1, 1, 1, 1}, .switches = {"a", "b"}};
  const auto across = [](int a, int b) { return a < 3 && b > 2 ? 0.7 : 1; };
  EXPECT_EQ(last(two, 6, across), (Round{{0, 3}, {1, 5}, {2, 7}, {0, 4}, {1, 6}, {2, 3}}));
  // Node 0 is slow, too: then the switch explains most, and what it leaves of node 0 is measured once more.
  EXPECT_EQ(last(two, 13, [&](int a, int b) { return (a == 0 ? 0.6 : 1) * across(a, b); }),
            (Round{{0, 3},
                   {1, 3},
                   {2, 3},
                   {0, 6},
                   {1, 6},
                   {2, 6},  // members of the switch in turn
                   {0, 3},
                   {0, 4},
                   {0, 5},
                   {0, 6},
                   {0, 7},
                   {0, 1},
                   {0, 2}}));
  const Cluster uneven{.nodes = 12, .switch_of = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, .switches = {"a", "b"}};
  const auto links = [](int a, int b) {
    return (a == 0 && b == 1) || (a == 2 && b == 3) || (a < 8 && b > 7) ? 0.7 : 1;
  };
  EXPECT_EQ(last(uneven, 18, links), (Round{{4, 8},
                                            {4, 9},
                                            {4, 10},
                                            {4, 11},
                                            {4, 8},
                                            {5, 10},  // nodes 0 to 3 are suspected
                                            {0, 1},
                                            {0, 1},
                                            {0, 1},
                                            {0, 1},
                                            {0, 1},
                                            {0, 1},
                                            {2, 3},
                                            {2, 3},
                                            {2, 3},
                                            {2, 3},
                                            {2, 3},
                                            {2, 3}}));
}

/// After the first 15 rounds and three looks at 15 slow pairs everything is half as fast.
TEST(BlameTest, WhatIsMeasuredAgainIsHeldAgainstOthersOfThatTime) {
  int rounds = 0;
  const LinkReport report = blame_links({.nodes = 16}, [&](const Round& round) {
    ++rounds;
    std::vector<PairRate> rates;
    for (const Pairing& p : round) {
      const double rate = (p.a == 5 || p.b == 5 ? 0.7 : 1) * (rounds > 60 ? 0.5 : 1);
      rates.push_back({p, {rate}, {2 * rate}});
    }
    return rates;
  });
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_DOUBLE_EQ(report.findings[0].relative.median, 0.7);
}

/// Rates of 0.96, 0.98 and 1, a third each: a deviation of 0.02 × 1.4826, 3.03 % of the median.
TEST(BlameTest, WhatScattersMoreMustBeSlower) {
  const Cluster nodes{.nodes = 16};
  const auto named = [&](const std::function<double(int a, int b)>& slow) {
    return names_of(carried(nodes,
                            [&](int a, int b, int) {
                              const double rate = slow(a, b);
                              return rate > 0 ? rate : 0.96 + 0.02 * ((a + b) % 3);
                            }),
                    nodes);
  };
  EXPECT_EQ(named([](int a, int b) { return a == 2 && b == 5 ? 0.88 : 0; }), "the link between node 2 and node 5")
      << "by 10.2 %, more than three deviations";
  EXPECT_EQ(named([](int a, int b) { return a == 2 && b == 5 ? 0.9 : 0; }), "") << "by 8.2 %";
  EXPECT_EQ(named([](int a, int b) { return a == 0 && b < 7 ? 0.82 : 0; }), "not NIC 0 of node 0")
      << "by 16 %, more than five";
  const LinkReport report = carried(nodes, [](int a, int b, int) {
    const double rate = 0.96 + 0.02 * ((a + b) % 3);
    return a > 0 ? rate : b == 3 || b == 5 ? 0.441 : rate / 2;
  });
  ASSERT_TRUE(report.remainder) << "10 % below what NIC 0 leaves";
  EXPECT_EQ(report.remainder->relative.n, 2);
  EXPECT_EQ(named([](int a, int b) { return a == 0 && b < 7 ? 0.84 : 0; }), "") << "by 14 %";
}

/// Pairs of node 0 beyond those that measure it again carry less than its NIC leaves them: 0.5.
TEST(BlameTest, WhatTheAccusedLeaveIsHeldAgainstWhatIsCarried) {
  const auto said = [](const std::map<int, double>& rates, const Cluster& cluster = {.nodes = 16}) {
    const LinkReport report = carried(cluster, [&](int a, int b, int) {
      return a > 0 ? 1 : rates.contains(b) ? rates.at(b) : 0.5;
    });
    EXPECT_EQ(report.findings.size(), 1U);
    return report.remainder ? report.remainder->sentence : "";
  };
  EXPECT_EQ(said({{3, 0.4}}), "") << "one pair may be anything";
  EXPECT_EQ(said({{3, 0.4}, {5, 0.3}}),
            "part of what is slow is not explained by NIC 0 of node 0: 2 of 120 pairs carry less than that leaves "
            "them, and 2 of the 2 that were measured again, each alone, still carry 70.0 % of it (95 %: 60.0 to 80.0): "
            "node 0 with node 5; node 0 with node 3; repair what is named, and accept again to see what remains");
  EXPECT_EQ(said({{3, 0.47}, {5, 0.48}}), "") << "6 % below may be chance";
  EXPECT_THAT(said({{3, 0.4}, {5, 0.3}}, {.nodes = 1, .gpus_per_node = 16}),
              ::testing::HasSubstr("rank 0 (device 0 of node 0) with rank 5 (device 5 of node 0); rank 0"));
  using ::testing::HasSubstr;
  const std::map<int, double> four{{2, 0.4}, {3, 0.4}, {5, 0.4}, {7, 0.4}};
  EXPECT_THAT(said(four), HasSubstr("node 0 with node 7; repair"));
  std::map<int, double> nine = four;
  for (const int other : {9, 10, 11, 12, 14}) nine[other] = 0.4;
  EXPECT_THAT(said(nine), AllOf(HasSubstr("9 of 120 pairs"), HasSubstr("8 of the 8 that were measured again"),
                                HasSubstr("node 0 with node 7; and others; repair")));
}

/// The slower of two rails counts. Where groups were inferred, nobody knows which paths an end uses that is slow to
/// all.
TEST(BlameTest, WhatRemainsIsOfTheSlowestRailAndOfPathsThatAreKnown) {
  const auto said = [](const Cluster& cluster, const std::function<double(int a, int b, int rail)>& rate) {
    const LinkReport report = carried(cluster, rate);
    const std::string text = report.remainder ? report.remainder->sentence : "";
    if (text.empty()) return text;
    const std::size_t from = text.find("): ") + 3;
    return text.substr(from, text.find("; repair") - from);
  };
  EXPECT_EQ(said({.nodes = 16, .rails = 2},
                 [](int a, int b, int rail) {
                   return a > 0 ? 1 : b == 3 ? 0.35 : b != 5 ? 0.5 : rail == 0 ? 0.4 : 0.2;
                 }),
            "node 0 with node 5; node 0 with node 3");
  const auto path = [](int a, int b) { return a < 5 && b > 4 ? 0.7 : 1; };
  EXPECT_EQ(said({.nodes = 14}, [&](int a, int b, int) { return b == a + 7 && a < 2 ? 0.4 : path(a, b); }),
            "node 0 with node 7; node 1 with node 8");
  EXPECT_EQ(said({.nodes = 17}, [&](int a, int b, int) { return b < 16             ? path(a, b)
                                                                : a == 3 || a == 5 ? 0.2
                                                                                   : 0.5; }),
            "");
}

/// Two groups of ranks that are slow to each other by design, and exactly so, while those within scatter.
TEST(BlameTest, OfTwoDeviationsTheLargerOneIsAllowed) {
  const Cluster node{.nodes = 1, .gpus_per_node = 16};
  const LinkReport report = carried(node, [](int a, int b, int) {
    return a / 8 == b / 8 ? 0.96 + 0.02 * ((a + b) % 3) : a == 2 && b == 12 ? 0.93 * 0.5 : 0.5;
  });
  EXPECT_EQ(report.inferred.size(), 16U);
  EXPECT_EQ(names_of(report, node), "");
  const LinkReport link = carried(node, [](int a, int b, int) {
    return a / 8 == b / 8 ? 1 : a == 2 && b == 12 ? 0.7 * 0.5 : 0.5;
  });
  EXPECT_EQ(link.findings.size(), 1U);
  EXPECT_THAT(link.findings.front().evidence, ::testing::HasSubstr("carries 70.0 % of what its peers do"));
  EXPECT_EQ(carried({.nodes = 16}, [](int a, int b, int) { return a < 3 && b > 2 ? 0.95 : 1; }).inferred.size(), 0U);
  // Ranks that are also slow among themselves are slow.
  Cluster slow = node;
  const LinkReport half = carried(node, [](int, int b, int) { return b > 7 ? 0.7 : 1; });
  slow.switch_of = half.inferred;
  EXPECT_EQ(names_of(half, slow), "what ranks 8 to 15 have in common");
}

/// Rates are 1, but both ways at once they are less.
TEST(BlameTest, HalfDuplexIsLessThanFourFifthsOfBothWays) {
  const auto judged = [](double both_ways, int last) {
    int rounds = 0;
    const LinkReport report = blame_links({.nodes = 1}, [&](const Round& round) {
      ++rounds;
      std::vector<PairRate> rates;
      for (const Pairing& p : round) {
        rates.push_back({p, {1}, {p == Pairing{2, 5} && rounds <= last ? both_ways : 2}});
      }
      return rates;
    });
    return std::pair(report.rounds, report.findings.size());
  };
  EXPECT_EQ(judged(1.6, 1000), (std::pair<int, std::size_t>(7, 0)));
  EXPECT_EQ(judged(1.5, 1000), (std::pair<int, std::size_t>(7 + 3 + 15, 1)));
  EXPECT_EQ(judged(1.5, 7), (std::pair<int, std::size_t>(7 + 1, 0))) << "only in the first rounds";
}

/// Four pairs are slow in the first rounds, and four of 64 transfers are until they were tried again so often.
TEST(BlameTest, APathThatSwitchesChooseAmongIsSlowWhoeverSends) {
  struct Spine {
    int slow, tries;  // transfers that are slow, from `first` on in steps of `step`, and tries until they are fast
    int first = 0, step = 1;
    bool link = false;  // and one link is slow all the time
    double fast = 1;    // what a transfer carries in the end
  };
  const auto found = [](const Spine& spine) {
    const int begin = spine.link ? 15 + 5 + 15 : 15 + 2;
    int rounds = 0, transfer = -1, given = 0, tries_left = 0;
    return blame_links({.nodes = 16}, [&](const Round& round) {
      std::vector<PairRate> rates;
      ++rounds;
      for (const Pairing& p : round) {
        double rate = rounds <= 15 && p.b == p.a + 1 && p.a % 2 == 0 && p.a < 8 ? 0.5
                      : spine.link && p == Pairing{12, 14}                      ? 0.6
                                                                                : 1;
        if (rounds > begin && tries_left > 0) {
          rate = --tries_left > 0 ? 0.5 : spine.fast;
        } else if (rounds > begin && ++transfer % spine.step == spine.first && given < spine.slow) {
          rate = 0.5;
          ++given;
          tries_left = spine.tries;
        }
        rates.push_back({p, {rate}, {2 * rate}});
      }
      return rates;
    });
  };
  for (const Spine& spine : {Spine{4, 1}, Spine{4, 5}, Spine{.slow = 4, .tries = 2, .link = true},
                             Spine{.slow = 4, .tries = 2, .fast = 0.95}}) {
    const LinkReport report = found(spine);
    ASSERT_EQ(report.findings.size(), 1U) << spine.tries;
    const Finding& f = report.findings.front();
    EXPECT_EQ(f.element, (Element{Element::Kind::spine, 0, 0}));
    EXPECT_EQ(f.kind, Finding::Kind::slow);
    EXPECT_EQ(f.shortfall, 0.5);
    EXPECT_EQ(f.check, next_check(f.element, {.nodes = 16}, SlowAt::transfers));
    EXPECT_EQ(
        f.evidence,
        "one of the paths that the switches choose among is slow: 4 of 64 transfers, each alone, carried 50.0 % of "
        "what the others did (95 %: 50.0 to 50.0); the same nodes were fast again with other ports");
  }
  EXPECT_TRUE(found({3, 1}).findings.empty()) << "three may be chance";
  EXPECT_TRUE(found({4, 6}).findings.empty()) << "five tries do not show it";
  EXPECT_TRUE(found({.slow = 4, .tries = 2, .fast = 0.94}).findings.empty());
  EXPECT_TRUE(found({.slow = 4, .tries = 1, .step = 16}).findings.empty()) << "node 0 is one end of each";
}

/// In the first rounds node 0 is slow to four others, and pairs of neighbours are 8 % below, which is no deep fall.
TEST(BlameTest, OnlyDeepFallsSayHowOftenEndsAreSlow) {
  const Cluster nodes{.nodes = 16};
  int rounds = 0;
  const LinkReport report = blame_links(nodes, [&](const Round& round) {
    ++rounds;
    std::vector<PairRate> rates;
    for (const Pairing& p : round) {
      const double once = p.a == 0 && p.b < 5 ? 0.7 : p.a > 4 && p.b == p.a + 1 ? 0.92 : 1;
      const double rate = rounds <= 15 ? once : 1;
      rates.push_back({p, {rate}, {2 * rate}});
    }
    return rates;
  });
  EXPECT_EQ(names_of(report, nodes), "not NIC 0 of node 0");
  EXPECT_EQ(names_of(carried(nodes, [](int a, int b, int) { return a == 0 && b < 7 ? 0.92 : 1; }), nodes), "");
}

/// 25 nodes in 25 rounds; pairs that were slow once are looked at again, three at a time.
TEST(BlameTest, ThreeInAHundredThatWereSlowOnceAskForTransfersAlone) {
  const auto needed = [](int nodes, int slow, double rate = 0.5) {
    int rounds = 0;
    blame_links({.nodes = nodes}, [&](const Round& round) {
      ++rounds;
      std::vector<PairRate> rates;
      for (const Pairing& p : round) {
        const bool once = rounds <= nodes && p.a % 2 == 0 && p.b == p.a + 1 && p.a < 2 * slow;
        rates.push_back({p, {once ? rate : 1}, {once ? 2 * rate : 2}});
      }
      return rates;
    });
    return rounds;
  };
  EXPECT_EQ(needed(25, 9), 25 + 3 + 64) << "of 300";
  EXPECT_EQ(needed(25, 8), 25 + 3);
  EXPECT_EQ(needed(25, 9, 0.92), 25 + 3) << "8 % below is no deep fall";
  EXPECT_EQ(needed(9, 1), 9 + 1) << "of 36";
}

TEST(BlameTest, RailsThatShareAPathOfTwoNodesAreNotToldFromASlowOne) {
  for (const int rails : {1, 2, 3}) {
    const Cluster nodes{.nodes = 8, .rails = rails};
    const auto of = [&](double factor) {
      const LinkReport report = carried(nodes, [&](int a, int b, int) { return a == 2 && b == 5 ? factor : 1; });
      EXPECT_EQ(report.findings.size(), 1U);
      EXPECT_EQ(report.findings.front().element, (Element{Element::Kind::link, 2, 5}));
      return report.findings.front();
    };
    for (const double factor : {0.5, 0.521, 0.479})
      EXPECT_EQ(of(factor).accuses(), rails == 1) << rails << ' ' << factor;
    for (const double factor : {0.54, 0.46, 0.6}) EXPECT_TRUE(of(factor).accuses()) << rails << ' ' << factor;
    EXPECT_EQ(of(0.34).accuses(), rails < 3);
    if (rails == 2) {
      EXPECT_THAT(of(0.5).evidence, ::testing::EndsWith("; 2 flows that the switches always put on one path, by their "
                                                        "addresses, carry as much, so nobody is accused"));
      EXPECT_EQ(of(0.5).check,
                "the switches' counters on the way between the two nodes, or accept again with adaptive routing or "
                "ports in their hash");
    }
  }
  const Cluster node{.nodes = 1, .rails = 2};
  EXPECT_TRUE(carried(node, [](int a, int b, int) { return a == 2 && b == 5 ? 0.5 : 1; }).findings.front().accuses())
      << "within a node no switch hashes";
}

/// Three slow paths may be three, or what two switches have; a switch that is slow within is told from them.
TEST(BlameTest, OfMostPathsBetweenSwitchesNobodyIsAccusedAndOfHalfOfThemEach) {
  const std::string unclear = "not the whole fleet";
  const auto slow = [](int switches, int each, const std::set<std::pair<int, int>>& paths) {
    const Cluster cluster{.nodes = switches * each, .nodes_per_switch = each};
    return names_of(carried(cluster,
                            [&](int a, int b, int) {
                              return paths.contains({a / each, b / each}) ? 0.7 : 1;
                            }),
                    cluster);
  };
  EXPECT_EQ(slow(4, 8, {{0, 1}, {0, 2}, {2, 3}}),
            "the path between switch 0 and switch 1; the path between switch 0 and "
            "switch 2; the path between switch 2 and switch 3");
  EXPECT_EQ(slow(4, 8, {{0, 1}, {1, 2}, {2, 3}, {0, 3}}), unclear);
  EXPECT_EQ(slow(4, 8, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}), unclear);
  EXPECT_EQ(slow(4, 8, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}}), "switch 0; switch 1");
  EXPECT_EQ(slow(3, 8, {{0, 1}, {0, 2}}), "switch 0");
  const std::set<std::pair<int, int>> three{{0, 1}, {0, 2}, {1, 2}};
  for (const int each : {3, 8, 16}) EXPECT_EQ(slow(3, each, three), unclear) << each << " nodes a switch";
  EXPECT_EQ(slow(3, 2, three), "") << "most pairs are how pairs are";
  EXPECT_EQ(slow(3, 8, {{0, 0}, {0, 1}, {0, 2}, {1, 2}}), "switch 0; the path between switch 1 and switch 2");

  // Two switches of two nodes, and one of eight; and an end that is slow within its switch, too.
  const auto small = [](int node) { return std::min(node / 2, 2); };
  Cluster sizes{.nodes = 12, .switches = {"a", "b", "c"}};
  for (int node = 0; node < 12; ++node) sizes.switch_of.push_back(small(node));
  EXPECT_EQ(names_of(carried(sizes, [&](int a, int b, int) { return small(a) == small(b) ? 1 : 0.7; }), sizes),
            unclear);
  const Cluster three_switches{.nodes = 24, .nodes_per_switch = 8};
  const LinkReport beside_paths =
      carried(three_switches, [](int a, int b, int) { return (a == 0 ? 0.5 : 1) * (a / 8 == b / 8 ? 1 : 0.7); });
  EXPECT_EQ(names_of(beside_paths, three_switches), unclear + "; NIC 0 of node 0");
  EXPECT_FALSE(beside_paths.remainder) << "the paths are told";
  // Both ways at once all paths carry as much as one way, and more of them are not listed.
  const Cluster four{.nodes = 32, .nodes_per_switch = 8};
  const LinkReport half = blame_links(four, [](const Round& round) {
    std::vector<PairRate> rates;
    for (const Pairing& p : round) rates.push_back({p, {1}, {p.a / 8 == p.b / 8 ? 2.0 : 1.0}});
    return rates;
  });
  ASSERT_EQ(half.findings.size(), 1U);
  EXPECT_EQ(
      half.findings.front().evidence,
      "6 of 6 paths between groups of nodes in both directions at once carry 50.0 % of what other pairs do (95 %: "
      "50.0 to 50.0): the path between switch 0 and switch 1, the path between switch 0 and switch 2, the path "
      "between switch 0 and switch 3, the path between switch 1 and switch 2 and others; pairs do not tell whether "
      "these paths are slow, or what is at their ends, so nobody is accused");
  // A slow end beside a slow path is no group of its own.
  EXPECT_EQ(slow(2, 8, {{0, 1}}), "the path between switch 0 and switch 1");
  Cluster two{.nodes = 17};
  const LinkReport beside = carried(two, [](int a, int b, int) { return b == 16 ? 0.5 : a / 8 != b / 8 ? 0.7 : 1; });
  two.switch_of = beside.inferred;
  EXPECT_EQ(names_of(beside, two), "the path between nodes 0 to 7 and nodes 8 to 15; NIC 0 of node 16");

  const Cluster nodes{.nodes = 15};  // nobody told of the three groups
  const LinkReport report = carried(nodes, [](int a, int b, int) { return a % 3 == b % 3 ? 1 : 0.75; });
  EXPECT_EQ(report.inferred.size(), 15U);
  EXPECT_EQ(report.rounds, 15 + 3 * 75) << "75 slow pairs were looked at again, one at a time";
  ASSERT_EQ(report.findings.size(), 1U);
  const Finding& f = report.findings.front();
  EXPECT_EQ(f.kind, Finding::Kind::unclear);
  EXPECT_EQ(f.relative.n, 75) << "pairs";
  EXPECT_EQ(f.shortfall, 0.25);
  EXPECT_EQ(f.check, "the cables and ports between all switches, and how routes are spread over them");
  EXPECT_EQ(f.evidence,
            "3 of 3 paths between groups of nodes carry 75.0 % of what other pairs do (95 %: 75.0 to 75.0): the path "
            "between nodes 0, 3, 6, 9, 12 and nodes 1, 4, 7, 10, 13, the path between nodes 0, 3, 6, 9, 12 and nodes "
            "2, 5, 8, 11, 14, the path between nodes 1, 4, 7, 10, 13 and nodes 2, 5, 8, 11, 14; pairs do not tell "
            "whether these paths are slow, or what is at their ends, so nobody is accused");
}

/// Nodes 0 to n - 1 are slow to all others, and nobody told why.
TEST(BlameTest, AMuchSmallerGroupIsToBlameForThePathToTheOthers) {
  const auto slow = [](int ends, const std::function<bool(int)>& inside) {
    const Cluster nodes{.nodes = ends};
    const LinkReport report = carried(nodes, [&](int a, int b, int) { return inside(a) != inside(b) ? 0.7 : 1; });
    Cluster inferred = nodes;
    inferred.switch_of = report.inferred;
    return names_of(report, inferred);
  };
  EXPECT_EQ(slow(15, [](int end) { return end < 5; }), "what nodes 0 to 4 have in common above their NICs");
  EXPECT_EQ(slow(15, [](int end) { return end >= 10; }), "what nodes 10 to 14 have in common above their NICs");
  EXPECT_EQ(slow(14, [](int end) { return end < 5; }), "the path between nodes 0 to 4 and nodes 5 to 13");
  EXPECT_EQ(slow(14, [](int end) { return end >= 9; }), "the path between nodes 0 to 8 and nodes 9 to 13");
}

TEST(BlameTest, ADirectionIsNamedIfTheOtherOneIsFast) {
  const Cluster nodes{.nodes = 8};
  const auto found = [&](double sends, double receives, int end = 3) {
    const LinkReport report = blame_links(nodes, [&](const Round& round) {
      std::vector<PairRate> rates;
      for (const Pairing& p : round) {
        PairRate& one = rates.emplace_back(PairRate{p, {1}, {2}, 1, 1});
        if (p.a == end) one.to_b = sends, one.to_a = receives;
        if (p.b == end) one.to_a = sends, one.to_b = receives;
        if (p.a == end || p.b == end) one.one_way = {0.6}, one.both_ways = {1.2};
      }
      return rates;
    });
    EXPECT_EQ(report.findings.size(), 1U);
    const Finding& f = report.findings.front();
    EXPECT_EQ(f.element, (Element{Element::Kind::nic, end, 0}));
    const std::size_t at = f.evidence.find("; what it");
    return f.direction + (at == std::string::npos ? "" : f.evidence.substr(at));
  };
  EXPECT_EQ(found(0.6, 1), "sends; what it receives is as fast as its peers', what it sends is slow");
  EXPECT_EQ(found(1, 0.6), "receives; what it sends is as fast as its peers', what it receives is slow");
  EXPECT_EQ(found(0.6, 0.95), "sends; what it receives is as fast as its peers', what it sends is slow");
  EXPECT_EQ(found(0.6, 0.94), "");
  EXPECT_EQ(found(0.95, 0.6), "receives; what it sends is as fast as its peers', what it receives is slow");
  for (const auto& [sends, receives] : {std::pair{0.6, 0.0}, {0.0, 1.0}, {1.0, 0.0}}) {
    EXPECT_EQ(found(sends, receives), "") << "one of them is not told";
    EXPECT_EQ(found(sends, receives, 0), "");
  }
  EXPECT_EQ(found(0.6, 0.6), "");
}

TEST(BlameTest, OnlyAnEndHasADirection) {
  const auto found = [](const Cluster& cluster, const std::function<bool(const Pairing&)>& slow) {
    const LinkReport report = blame_links(cluster, [&](const Round& round) {
      std::vector<PairRate> rates;
      for (const Pairing& p : round) {
        const double to_b = slow(p) ? 0.6 : 1;
        rates.push_back({p, {to_b}, {2 * to_b}, to_b, 1});
      }
      return rates;
    });
    return names_of(report, cluster) + " " + report.findings.front().direction;
  };
  EXPECT_EQ(found({.nodes = 8},
                  [](const Pairing& p) {
                    return p == Pairing{2, 5};
                  }),
            "the link between node 2 and node 5 ");
  EXPECT_EQ(found({.nodes = 1}, [](const Pairing& p) { return p.a == 0; }), "rank 0 (device 0 of node 0) sends");
  EXPECT_EQ(found({.nodes = 8}, [](const Pairing& p) { return p.a == 0; }), "NIC 0 of node 0 sends");
}

TEST(BlameTest, AReportHasWhatWasMeasuredFirst) {
  const Cluster nodes{.nodes = 6};
  int rounds = 0;
  const LinkReport report = blame_links(nodes, [&](const Round& round) {
    ++rounds;
    std::vector<PairRate> rates;
    for (const Pairing& p : round) {
      const double rate = p.a == 1 && p.b == 2 && rounds <= 5 ? 0.5 : 2;  // once
      rates.push_back({p, {rate}, {2 * rate}, rate, rate});
    }
    return rates;
  });
  EXPECT_TRUE(report.compared);
  EXPECT_EQ(report.one_way.size(), 15U);
  EXPECT_EQ(std::ranges::count(report.one_way, 0.5), 1);
  EXPECT_TRUE(report.findings.empty()) << "it was as fast as any when it was measured again";
  EXPECT_EQ(report.rounds, 5 + 1 + 64) << "and so many single transfers look for a path that is slow now and then";
  EXPECT_EQ(report.measurements, 15 + 1 + 64);
}

TEST(BlameTest, RatesOfRoundsThatWereNotMeasuredAreLeftOut) {
  DeviceRounds rounds(6, std::vector<double>(6, 2.0));
  rounds[0].assign(6, 0.0);
  for (std::size_t round = 1; round < 6; ++round) rounds[round][4] = round < 3 ? 0 : 1.2;
  const std::vector<Finding> findings = blame_devices({.nodes = 1, .gpus_per_node = 6}, rounds);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].element.index, 4);
  EXPECT_EQ(findings[0].relative.n, 3);
  EXPECT_DOUBLE_EQ(findings[0].shortfall, 0.4);
  EXPECT_EQ(findings[0].check, next_check(findings[0].element, {.nodes = 1, .gpus_per_node = 6}, SlowAt::work));
  EXPECT_THROW(blame_devices({.nodes = 1, .gpus_per_node = 7}, rounds), std::invalid_argument);
}

/// Rank 2 at 0.7 of its peers, of whom half are not measured in the first round.
TEST(BlameTest, EachRoundIsHeldAgainstTheMedianOfWhatItMeasured) {
  for (const double unit : {0.25, 2.0}) {
    DeviceRounds rounds(3, std::vector<double>(8, unit));
    for (std::vector<double>& round : rounds) round[2] *= 0.7;
    std::fill_n(rounds[0].begin() + 4, 4, 0.0);
    const std::vector<Finding> findings = blame_devices({.nodes = 1, .gpus_per_node = 8}, rounds);
    ASSERT_EQ(findings.size(), 1U) << unit;
    EXPECT_DOUBLE_EQ(findings[0].relative.low, 0.7);
    EXPECT_DOUBLE_EQ(findings[0].relative.high, 0.7);
  }
  EXPECT_EQ(blame_devices({.nodes = 1, .gpus_per_node = 5}, {{1, 1, 0.5, 1, 1}}).size(), 1U) << "five are enough";
}

/// 0.8 to 1.2: three robust deviations of 0.074 and 1.25 of them more, over √7 / 2, are 29.2 % that may be scatter.
TEST(BlameTest, WhatScattersMoreIsAllowedMore) {
  const std::vector<Finding> findings =
      blame_devices({.nodes = 1, .gpus_per_node = 7}, {{0.8, 0.95, 1, 0.3, 1.05, 1.05, 1.2}});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].evidence,
            "rank 3 (device 3 of node 0) reaches 30.0 % of the median of 7 ranks in matrix products (95 %: 30.0 to "
            "30.0, 1 rounds); up to 29.2 % less would be their own scatter");
}

TEST(BlameTest, NormsAreOfTheFastestFifthAndWhatScattersLikeIt) {
  const Cluster nodes{.nodes = 8, .nodes_per_switch = 4};
  const Parts parts(nodes);
  std::vector<PairRate> rates;
  for (int i = 0; i < 10; ++i) {  // within: 10 of 4.0 but for a slow one; between: 8 of 2.0 and 2 of 3.0
    rates.push_back({{0, 1}, {i == 0 ? 1.0 : 4.0}, {8}});
    rates.push_back({{0, 5}, {i < 2 ? 3.0 : 2.0}, {3}});
  }
  rates.push_back({{0, 2}, {0}, {1}});
  const Norms apart = norms_of(rates, parts, true), together = norms_of(rates, parts, false);
  EXPECT_EQ(apart.rate[1].usual, 4);
  EXPECT_EQ(apart.rate[0].usual, 2) << "two of ten are not the fastest fifth";
  EXPECT_EQ(apart.duplex[1].usual, 2) << "8 over 1 is one of ten";
  EXPECT_EQ(apart.duplex[0].usual, 1.5);
  EXPECT_EQ(together.rate[0].usual, 4);
  EXPECT_EQ(together.rate[1].usual, 4);
  const std::vector<Value> values = values_of({rates[0], rates[3], rates.back()}, parts, apart);
  ASSERT_EQ(values.size(), 2U) << "what was not measured is no value";
  EXPECT_DOUBLE_EQ(values[0].rate, 0.25);
  EXPECT_DOUBLE_EQ(values[0].duplex, 4);
  EXPECT_DOUBLE_EQ(values[1].rate, 1.5);
  EXPECT_DOUBLE_EQ(values[1].duplex, 1 / 1.5);
  EXPECT_EQ(values[1].rail, 0);

  const auto usual = [&](const std::vector<double>& within) {
    std::vector<PairRate> all;
    for (const double rate : within) all.push_back({{0, 1}, {rate}, {rate}});
    return norms_of(all, parts, true).rate[1].usual;
  };
  EXPECT_EQ(usual({1, 1, 1, 1, 2, 2}), 2) << "two of six are more than a fifth";
  EXPECT_EQ(usual({0, 0, 0, 0, 0, 4}), 4) << "0 was not measured";
  EXPECT_EQ(usual({0.5, 0.5}), 0.5);
  EXPECT_EQ(usual({}), 1);
  EXPECT_EQ(values_of({{{0, 1}, {0.5}, {1}}}, parts, together).size(), 1U);
}

TEST(BlameTest, AFewRoundsBelowItsOwnBestAreTransientAndFourFifthsAreSlow) {
  const auto said = [](int low, double factor) {
    DeviceRounds rounds(15, std::vector<double>(6, 2.0));
    for (int i = 0; i < low; ++i) rounds[static_cast<std::size_t>(i)][2] *= factor;
    std::string text;
    for (const Finding& f : blame_devices({.nodes = 1, .gpus_per_node = 6}, rounds, "products")) {
      text += fmt::format("{} {:.4f}: {}", f.accuses(), f.shortfall, f.evidence);
    }
    return text;
  };
  EXPECT_EQ(said(1, 0.7), "") << "once";
  EXPECT_EQ(said(4, 0.96), "") << "by less than a twentieth";
  EXPECT_EQ(said(4, 0.95), "") << "by just a twentieth";
  EXPECT_EQ(
      said(2, 0.4),
      "false 0.6000: rank 2 (device 2 of node 0) fell by up to 60 % in 2 of 15 rounds of products and was as fast "
      "as ever in the others");
  EXPECT_THAT(said(11, 0.7), ::testing::StartsWith("false 0.3000: "));
  EXPECT_EQ(
      said(12, 0.7),
      "true 0.3000: rank 2 (device 2 of node 0) reaches 70.0 % of the median of 6 ranks in products (95 %: 70.0 to "
      "70.0, 15 rounds); up to 5.0 % less would be their own scatter");
  EXPECT_THAT(said(15, 0.949), ::testing::StartsWith("true 0.0510: "));
  EXPECT_EQ(said(15, 0.95), "");
  // Its own best is what it reaches in four rounds of 15 at least; so much below its peers is healthy.
  DeviceRounds rounds(15, std::vector<double>(6, 2.0));
  for (std::size_t round = 0; round < 4; ++round) rounds[round][2] = round == 0 ? 2.3 : 2.4;
  std::vector<Finding> found = blame_devices({.nodes = 1, .gpus_per_node = 6}, rounds);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].evidence, ::testing::HasSubstr("fell by up to 13 % in 11 of 15 rounds"));
  for (std::size_t round = 0; round < 15; ++round) rounds[round][2] = round < 2 ? 1 : 1.9;
  found = blame_devices({.nodes = 1, .gpus_per_node = 6}, rounds);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Finding::Kind::transient);
}

/// Groups of three and more whose members are slow to the same others; the rest is one more.
TEST(BlameTest, GroupsAreThoseWhoAreSlowToTheSameOthers) {
  const auto inferred = [](const std::vector<int>& of) {  // slow between groups, and fast to group 9
    return infer_groups(static_cast<int>(of.size()), [&](int a, int b) {
      const int x = of[static_cast<std::size_t>(a)], y = of[static_cast<std::size_t>(b)];
      return x != y && x != 9 && y != 9;
    });
  };
  for (const std::vector<int>& groups :
       {std::vector{0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0}, {0, 0, 0, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 2, 2, 2}}) {
    EXPECT_EQ(inferred(groups), groups);
  }
  EXPECT_EQ(inferred({0, 0, 0, 1, 1, 1, 9}), (std::vector{0, 0, 0, 1, 1, 1, 2}));
  for (const std::vector<int>& none : {std::vector{0, 0, 0, 0, 0, 0}, {0, 0, 1, 1, 1, 1, 1}, {0, 0, 1, 1}}) {
    EXPECT_EQ(inferred(none), std::nullopt);
  }
  EXPECT_EQ(infer_groups(6, [](int, int) { return true; }), std::nullopt) << "all are slow to all";

  // Ends 0 to 2 are slow to all others, but for one pair of them, or with one of their own.
  const auto with = [](int ends, std::pair<int, int> other) {
    return infer_groups(ends, [&](int a, int b) {
      const auto [low, high] = std::minmax(a, b);
      return (low < 3 && high > 2) != (std::pair(low, high) == other);
    });
  };
  std::vector<int> groups(13, 1);
  groups[0] = groups[1] = groups[2] = 0;
  EXPECT_EQ(with(13, {0, 1}), groups) << "what two are to each other does not count";
  groups[3] = 2;
  EXPECT_EQ(with(13, {0, 3}), groups) << "one in ten may differ";
  groups.assign(12, 0);
  groups[0] = groups[1] = groups[2] = groups[3] = 1;
  EXPECT_EQ(with(12, {0, 3}), groups) << "one in nine may not, and two are no group";
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
