#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "accept/blame_links.h"
#include "account/statistics.h"
#include "base/random.h"

namespace fsdpbench::accept {

/// A fabric made of links that flows share: NICs, leaf uplinks chosen by a hash or spread over all, spines, links
/// between groups. It knows nothing of what blame takes for a part, and pairs of one round get in each other's way.
class Fabric {
 public:
  enum class Kind : std::uint8_t { fat_tree, rail_optimised, dragonfly };
  struct Shape {
    Kind kind = Kind::fat_tree;
    int nodes = 16;
    int rails = 1;
    int leaf = 8;         ///< nodes of a leaf switch, or of a dragonfly's group
    double taper = 1;     ///< of a leaf's ports, over its uplinks: 2 is 2:1
    bool by_hash = true;  ///< a flow takes the uplink that a hash of its ports says; else all uplinks share all flows
    /// The hash sees addresses alone: a flow has the same uplink in every measurement, and each uplink carries one NIC.
    bool by_address = false;
    bool shuffled = false;  ///< the job's nodes are numbered in no order of their leaves
  };
  struct Fault {
    enum class Part : std::uint8_t { none, nic, receive, leaf, leaf_uplinks, path, spine, rail, leaf_rail };
    Part part = Part::none;
    int a = 0;  ///< node, leaf, spine or rail
    int b = 0;  ///< rail, or the other leaf
    double factor = 1;
  };

  Fabric(const Shape& shape, const Fault& fault, std::uint64_t seed) : Fabric(shape, std::vector{fault}, seed) {}
  Fabric(const Shape& shape, std::vector<Fault> faults, std::uint64_t seed)
      : shape_(shape), faults_(std::move(faults)), seed_(split_mixed(seed)) {
    leaf_of_.resize(static_cast<std::size_t>(shape.nodes));
    for (int node = 0; node < shape.nodes; ++node) leaf_of_[static_cast<std::size_t>(node)] = node / shape.leaf;
    if (shape.shuffled) {
      for (std::size_t i = leaf_of_.size(); i > 1; --i) std::swap(leaf_of_[i - 1], leaf_of_[draw() % i]);
    }
  }

  int leaf_of(int node) const { return leaf_of_[static_cast<std::size_t>(node)]; }
  const std::vector<int>& leaves() const { return leaf_of_; }
  int uplinks() const {
    const int nics = shape_.leaf * (shape_.by_address ? shape_.rails : 1);
    return std::max(1, static_cast<int>(nics / shape_.taper));
  }

  std::vector<PairRate> measure(const Round& round) {
    std::vector<PairRate> rates;
    for (const Pairing& pair : round) rates.emplace_back().pair = pair;
    const std::vector<std::vector<double>> to_b = flows(round, {true, false}), to_a = flows(round, {false, true});
    const std::vector<std::vector<double>> both = flows(round, {true, true});
    for (std::size_t i = 0; i < round.size(); ++i) {
      for (std::size_t rail = 0; rail < static_cast<std::size_t>(shape_.rails); ++rail) {
        rates[i].one_way.push_back(std::min(to_b[i][rail], to_a[i][rail]));
        rates[i].both_ways.push_back(2 * both[i][rail]);
      }
      rates[i].to_b = *std::ranges::min_element(to_b[i]);
      rates[i].to_a = *std::ranges::min_element(to_a[i]);
    }
    return rates;
  }

 private:
  enum class Link : std::uint8_t { send, receive, up, down, global };
  using Key = std::tuple<Link, int, int, int>;  // what, its switch or node, uplink or other switch, rail
  struct Ways {
    bool to_b, to_a;
  };

  std::uint64_t draw() { return split_mixed(seed_ + ++drawn_ * 0x9E3779B97F4A7C15ULL); }
  double uniform() { return (static_cast<double>(draw() >> 11) + 0.5) * 0x1p-53; }
  double noise() {
    std::vector<double> transfers;
    for (int i = 0; i < 5; ++i) {
      const double slow = uniform() < 0.01 ? 0.10 + 0.05 * uniform() : 0;
      transfers.push_back((1 - slow) * (1 + 0.02 * normal_quantile(uniform())));
    }
    return account::median(transfers);
  }

  struct Flow {
    std::size_t pair = 0, rail = 0;
    std::vector<Key> links;
    double factor = 1;  // of what is broken on its way
  };

  /// Time of a flow from `from` to `to` on `rail`, and how much of its rate the broken parts there leave.
  Flow flow(int from, int to, int rail) {
    using Part = Fault::Part;
    Flow flow;
    const int a = leaf_of(from), b = leaf_of(to);
    const bool crosses = a != b;
    const int lane = shape_.kind == Kind::rail_optimised ? rail : 0;  // whose leaf switch it is
    const std::uint64_t addresses =
        split_mixed(seed_ ^ (static_cast<std::uint64_t>(from) << 40U) ^ (static_cast<std::uint64_t>(to) << 20U) ^
                    static_cast<std::uint64_t>(rail));
    const int spine =
        static_cast<int>((shape_.by_address ? addresses : draw()) % static_cast<std::uint64_t>(uplinks()));
    flow.links = {{Link::send, from, 0, rail}, {Link::receive, to, 0, rail}};
    if (crosses && shape_.kind == Kind::dragonfly) {
      flow.links.push_back({Link::global, a, b, 0});
    } else if (crosses) {
      flow.links.push_back({Link::up, a, shape_.by_hash ? spine : 0, lane});
      flow.links.push_back({Link::down, b, shape_.by_hash ? spine : 0, lane});
    }
    const auto touches = [&](int leaf) { return a == leaf || b == leaf; };
    for (const Fault& fault : faults_) {
      bool broken = false;
      switch (fault.part) {
        case Part::none: break;
        case Part::nic: broken = (from == fault.a || to == fault.a) && rail == fault.b; break;
        case Part::receive: broken = to == fault.a && rail == fault.b; break;
        case Part::leaf: broken = touches(fault.a); break;
        case Part::leaf_uplinks: broken = crosses && touches(fault.a); break;
        case Part::path: broken = crosses && touches(fault.a) && touches(fault.b); break;
        case Part::spine: broken = crosses && spine == fault.a; break;
        case Part::rail: broken = rail == fault.a; break;
        case Part::leaf_rail: broken = touches(fault.a) && rail == fault.b; break;
      }
      if (broken) flow.factor = std::min(flow.factor, fault.factor);  // the narrowest place of its way
    }
    return flow;
  }

  double capacity(const Key& key) const {
    const double nics = shape_.leaf * (shape_.kind == Kind::rail_optimised ? 1 : shape_.rails);
    switch (std::get<0>(key)) {
      case Link::send:
      case Link::receive: return 1;
      case Link::up:
      case Link::down:
        return shape_.by_address ? 1
               : shape_.by_hash  ? std::max(1.0, nics / shape_.taper / uplinks())
                                 : nics / shape_.taper;
      case Link::global: return std::max(1.0, nics / shape_.taper / 2);
    }
    return 1;
  }

  /// By pair and rail: what each carries in one direction while all of the round send.
  std::vector<std::vector<double>> flows(const Round& round, Ways ways) {
    std::vector<Flow> all;
    for (std::size_t i = 0; i < round.size(); ++i) {
      for (int rail = 0; rail < shape_.rails; ++rail) {
        for (const bool forth : {true, false}) {
          if (forth ? !ways.to_b : !ways.to_a) continue;
          all.push_back(flow(forth ? round[i].a : round[i].b, forth ? round[i].b : round[i].a, rail));
          all.back().pair = i;
          all.back().rail = static_cast<std::size_t>(rail);
        }
      }
    }
    std::map<Key, int> users;
    for (const Flow& flow : all) {
      for (const Key& key : flow.links) ++users[key];
    }
    std::vector<std::vector<double>> rates(round.size(),
                                           std::vector<double>(static_cast<std::size_t>(shape_.rails), 1e9));
    for (const Flow& flow : all) {
      double rate = 1;
      for (const Key& key : flow.links) rate = std::min(rate, capacity(key) / users[key]);
      double& of = rates[flow.pair][flow.rail];
      of = std::min(of, rate * flow.factor * noise());
    }
    return rates;
  }

  const Shape shape_;
  const std::vector<Fault> faults_;
  const std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
  std::vector<int> leaf_of_;
};

}  // namespace fsdpbench::accept
