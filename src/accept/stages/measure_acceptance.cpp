#include "accept/stages/measure_acceptance.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "accept/collectives/collective_timer.h"
#include "accept/stages/measure_devices.h"
#include "account/statistics.h"
#include "backend/kernels.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/lane_pool.h"
#include "base/read_input.h"
#include "config/spelling.h"
#include "engine/setup.h"
#include "hardware/machine_facts.h"
#include "hardware/other_work.h"
#include "launch/addresses.h"
#include "record/json_fields.h"
#include "runs/build_info.h"
#include "runs/select_backend.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using backend::RankContext;
using backend::Stamp;

constexpr int kForTails = 100;  // iterations: of fewer there is no p99
constexpr Lane kPairLane = Lane::all_gather;

/// Ends the search for slow links in its middle.
struct BudgetSpent {};

/// Variables that choose a rank's libraries and their algorithms, not those that only log more or name a file per rank.
void add_variables(Fingerprint& print) {
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text(*at);
    const std::string_view name = text.substr(0, text.find('='));
    const bool tells = name.starts_with("NCCL_DEBUG") || name.ends_with("_DUMP_FILE") || name == "NCCL_HOSTID";
    const bool counts = name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH" || (name.starts_with("NCCL_") && !tells);
    if (!counts || name.size() >= text.size()) continue;
    print.emplace_back(kVariableFact + std::string(name), clean_text(text.substr(name.size() + 1), kMostOfAMessage));
  }
}

Fingerprint own_fingerprint(const backend::Facts& device, const std::optional<GpuHealth>& gpu) {
  static const MachineFacts kFacts = machine_facts();
  Fingerprint print{{"program", version_line()},
                    {"processor", kFacts.cpu},
                    {"hardware threads", fmt::format("{}", kFacts.threads)},
                    {"kernel", kFacts.kernel},
                    {"CUDA driver", kFacts.cuda_driver}};
  for (const auto& [name, version] : kFacts.libraries) print.emplace_back(name, version);
  for (const auto& [name, value] : device) {
    if (name == "GPU") print.emplace_back(name, value.substr(0, value.find(", PCI")));
  }
  if (gpu) {
    for (auto& setting : gpu_settings(*gpu)) print.push_back(std::move(setting));
  }
  add_variables(print);
  return print;
}

/// Numbers of elements that a rank holds of a unit, and of the units like it.
std::map<std::int64_t, int> shards_of(const engine::Setup& setup) {
  const int ranks = setup.plan.mesh.ranks();
  std::map<std::int64_t, int> shards;
  for (const plan::Unit& unit : setup.plan.units) {
    if (unit.layout.gathered_numel() > 0) ++shards[(unit.layout.gathered_numel() + ranks - 1) / ranks];
  }
  return shards;
}

std::int64_t most_frequent(const std::map<std::int64_t, int>& shards) {
  return std::ranges::max_element(shards, {}, [](const auto& s) { return s.second; })->first;
}

std::int64_t most_bytes(const std::vector<Message>& messages) {
  return std::ranges::max(messages, {}, &Message::bytes).bytes();
}

ScaleEffort scale_effort(const engine::Setup& setup, const AcceptanceEffort& effort) {
  const std::map<std::int64_t, int> shards = shards_of(setup);
  return {.count = most_frequent(shards),
          .gathered = setup.plan.param_dtype,
          .reduced = setup.plan.reduce_dtype,
          .iterations = effort.iterations};
}

/// Transport as the device tells it, else `otherwise`.
std::string transport_of(const backend::Facts& device, const std::string& otherwise) {
  const auto told = std::ranges::find(device, "collectives", &backend::Facts::value_type::first);
  return told == device.end() ? otherwise : told->second;
}

/// Transport if the device does not tell it, as those of processes without GPUs do.
std::string usual_transport(const engine::Setup& setup) {
  if (setup.config.device.backend == config::BackendKind::cuda) return {};  // NCCL chooses, and does not tell
  return "shared memory of one process";
}

/// Facts that a rank tells after everything else.
struct RankStory {
  std::string transport;
  std::optional<WatchedGpu> gpu;
};

/// Times of a rank: until it was ready, and what its host did while it measured.
struct RankTimes {
  double ready_s = 0;
  ProcessorTime used;
};

}  // namespace

// clang-format off
template <>
Fields<RankFacts> declared() {
  using F = RankFacts;
  return {"RankFacts", "Facts that a rank reports of itself.", "accept/stages/measure_acceptance.h", {
    {"host", &F::host, "", "its node"},
    {"print", &F::print, "", "facts that must be the same everywhere"},
    {"device", &F::device, "", "its GPU's place on the PCI bus"},
    {"uuid", &F::uuid, "", "its GPU's UUID"},
    {"adapter", &F::adapter, "", "the NIC nearest to its GPU"},
    {"leaf", &F::leaf, "", "its switch"},
  }};
}
template <>
Fields<RankTimes> declared() {
  using T = RankTimes;
  return {"RankTimes", "Times of a rank and its host.", "accept/stages/measure_acceptance.h", {
    {"ready_s", &T::ready_s, "s", "until its device and its communicators were there"},
    {"machine_s", via(&T::used, &ProcessorTime::machine_s), "s", "that all processors were there"},
    {"busy_s", via(&T::used, &ProcessorTime::busy_s), "s", "that somebody used them"},
    {"own_s", via(&T::used, &ProcessorTime::own_s), "s", "that its process used them"},
  }};
}
template <>
Fields<RankStory> declared() {
  return {"RankStory", "Last message of a rank, after everything else.", "accept/stages/measure_acceptance.h", {
    {"transport", &RankStory::transport, "", "what carried its bytes"},
    {"gpu", &RankStory::gpu, "", "how its GPU fared"},
  }};
}
// clang-format on

namespace {

/// One rank's part.
class AcceptanceRank {
 public:
  AcceptanceRank(const engine::Setup& setup, const AcceptanceEffort& effort, RankContext& context, RankMeeting& meeting,
                 const AcceptanceLead* lead)
      : setup_(setup), effort_(effort), context_(context), meeting_(meeting), lead_(lead) {}

  void run(const RankFacts& own, const std::string& transport, AcceptanceMeasurements& m) {
    take_inventory(own, m);
    if (leads()) m.stopped_because = lead_->why_stop(m);
    if (decided(m.stopped_because.empty() ? 0 : 1) != 0) return;
    measure_in_rounds(m);
    measure_pairs(m);
    measure_ladder(m);
    if (iterations_ > 0) {
      ScaleEffort scale = scale_effort(setup_, effort_);
      scale.iterations = iterations_;
      scale.link_bytes_per_s = link_bytes_per_s_;
      m.scales = measure_scales(cluster_, scale, context_, meeting_,
                                [this](const std::string& name, auto estimate_s) { return begins(name, estimate_s); });
    }
    const RankStory mine{transport_of(context_.device.facts(), transport), watched_gpu(context_.device.health())};
    for (RankStory& told : meeting_.gather(context_, mine)) {
      m.transports.push_back(std::move(told.transport));
      m.gpus.push_back(std::move(told.gpu));
    }
  }

 private:
  bool leads() const { return lead_ != nullptr; }
  void begin(const std::string& stage, std::optional<double> estimate_s = std::nullopt) {
    if (leads()) lead_->clock.begin(stage, estimate_s);
  }
  /// On all ranks what rank 0 says.
  int decided(int on_rank_0) {
    return static_cast<int>(meeting_.broadcast(context_, {static_cast<double>(on_rank_0)}).at(0));
  }

  /// On all ranks: whether something is left of the budget.
  bool goes_on() { return decided(!leads() || !lead_->clock.is_spent() ? 1 : 0) != 0; }
  /// On all ranks: true, and said, if less is left than rank 0 says that the stage takes at least.
  bool skips(const std::string& stage, double least_s = 0) {
    return decided(!leads() || lead_->clock.admits(stage, least_s) ? 1 : 0) == 0;
  }
  /// On all ranks: whether there is time for the stage, which begins then.
  bool begins(const std::string& stage, std::optional<double> estimate_s) {
    if (skips(stage, estimate_s.value_or(0))) return false;
    begin(stage, estimate_s);
    return true;
  }

  void take_inventory(const RankFacts& own, AcceptanceMeasurements& m) {
    begin("inventory");
    std::vector<std::string> leaves;
    accept::Cluster told;  // to all: its shape
    std::vector<RankFacts> facts = meeting_.gather(context_, own);
    if (leads()) {
      for (RankFacts& f : facts) {
        m.hosts.push_back(f.host);
        m.fingerprints.push_back(std::move(f.print));
        leaves.push_back(std::move(f.leaf));
      }
      told = cluster_of(m.hosts);
    }
    const std::vector<double> shape = meeting_.broadcast(
        context_,
        {static_cast<double>(told.nodes), static_cast<double>(told.gpus_per_node), static_cast<double>(told.rails)});
    cluster_ = {.nodes = static_cast<int>(shape.at(0)),
                .gpus_per_node = static_cast<int>(shape.at(1)),
                .rails = static_cast<int>(shape.at(2)),
                .on_processors = setup_.config.device.backend == config::BackendKind::cpu};
    if (leads()) {
      cluster_.hosts = m.hosts;
      for (const RankFacts& f : facts) {
        cluster_.devices.push_back(f.device);
        cluster_.uuids.push_back(f.uuid);
        cluster_.adapters.push_back(f.adapter);
      }
      if (!cluster_.one_node()) {
        m.topology = tell_switches(lead_->nodes_per_switch, leaves, cluster_);
      }
    }
    m.cluster = cluster_;
    m.on_processors = cluster_.on_processors;
    m.shares_cores = m.on_processors && cluster_.gpus_per_node > static_cast<int>(std::thread::hardware_concurrency());
    m.cores_move_bytes = !setup_.config.emulate.link();
  }

  /// Measures the rates of single ranks and nodes beside the fabric. A stage is a row.
  void measure_in_rounds(AcceptanceMeasurements& m) {
    m.computes = context_.device.computes();
    const auto of_all = [this](const char* what) {
      return fmt::format("{} of all {} ranks", what, context_.world.size());
    };
    struct Row {
      std::string name;
      bool applies;
      accept::DeviceRounds& rates;
      std::function<accept::DeviceRounds(const Rounds&)> measure;
    };
    // clang-format off
    const Row rows[] = {
        {of_all("matrix products"), true, m.device_rates, [&](const Rounds& r) { return measure_products(effort_.matrix, r); }},
        {of_all("copies in memory"), m.computes, m.memory_rates, [&](const Rounds& r) { return measure_memory(effort_.memory_bytes, r); }},
        {"launches of kernels", m.computes && !m.on_processors, m.launch_us, measure_launches},
    };
    // clang-format on
    for (const Row& row : rows) {
      if (!row.applies || skips(row.name)) continue;
      // It begins once it is known how long a round takes, if there is time for it.
      const auto begin_it = [&](double round_s, int rounds) {
        if (skips(row.name, round_s)) return false;
        begin(row.name, round_s * rounds);
        return true;
      };
      row.rates = row.measure({effort_.device_rounds, context_, meeting_, begin_it, [this] { return goes_on(); }});
    }
  }

  /// Rank 0 decides which pairs are measured; the others do what it says until it says nothing.
  void measure_pairs(AcceptanceMeasurements& m) {
    const std::string name = fmt::format("pairs of {}", cluster_.one_node() ? "ranks" : "nodes");
    if (cluster_.ends() < 2 || skips(name)) return;
    const Blocks<2> blocks(context_, 2 * effort_.pair_bytes, kPairLane);
    blocks_ = &blocks;
    if (leads()) {
      const std::size_t count = cluster_.ends();
      m.pairs.assign(count, std::vector<double>(count));
      const auto measure_by_all = [this](const accept::Round& round) {
        std::vector<double> ends;
        for (const accept::Pairing& pair : round) ends.insert(ends.end(), {double(pair.a), double(pair.b)});
        meeting_.broadcast(context_, ends);
        return measure_round(round);
      };
      const std::vector<accept::Round> rounds = accept::first_rounds(cluster_);
      const std::int64_t first_ns = now_ns();
      measure_by_all(rounds.front());  // warms up, and tells how long the rest will take
      const double all_s = seconds_since(first_ns) * static_cast<double>(rounds.size());
      // Some pairs blame nobody: their time is left to other stages.
      if (lead_->clock.admits(name, all_s)) {
        begin(fmt::format("{}: {} measurements", name, accept::measurements(rounds)), all_s);
        try {
          m.links = accept::blame_links(cluster_, [&](const accept::Round& round) {
            if (lead_->clock.is_spent()) throw BudgetSpent();
            std::vector<accept::PairRate> rates = measure_by_all(round);
            for (const accept::PairRate& rate : rates) note_pair(rate, m.pairs);
            return rates;
          });
          if (!m.links.inferred.empty()) m.cluster.switch_of = m.links.inferred;
        } catch (const BudgetSpent&) {  // of some pairs nobody is to blame
          lead_->clock.skip(name, lead_->clock.spent());
        }
      }
      meeting_.broadcast(context_, {});
    } else {
      for (;;) {
        const std::vector<double> ends = meeting_.broadcast(context_, {});
        if (ends.empty()) break;
        accept::Round round;
        for (std::size_t i = 0; i + 1 < ends.size(); i += 2) {
          round.push_back({static_cast<int>(ends[i]), static_cast<int>(ends[i + 1])});
        }
        measure_round(round);
      }
    }
  }

  /// Keeps the first measurement of a pair that is measured again: those of all other pairs are of that time, too.
  static void note_pair(const accept::PairRate& rate, std::vector<std::vector<double>>& pairs) {
    const auto a = static_cast<std::size_t>(rate.pair.a), b = static_cast<std::size_t>(rate.pair.b);
    if (pairs[a][b] > 0) return;
    pairs[a][b] = rate.to_b;
    pairs[b][a] = rate.to_a;
  }

  int rank_of(int end, int rail) const { return cluster_.one_node() ? end : end * cluster_.gpus_per_node + rail; }

  std::vector<accept::PairRate> measure_round(const accept::Round& round) {
    const int end = cluster_.one_node() ? context_.rank : context_.rank / cluster_.gpus_per_node;
    const int rail = cluster_.one_node() ? 0 : context_.rank % cluster_.gpus_per_node;
    int color = static_cast<int>(round.size()) * cluster_.rails + context_.rank;  // alone
    for (std::size_t i = 0; i < round.size(); ++i) {
      if (round[i].a == end || round[i].b == end) color = static_cast<int>(i) * cluster_.rails + rail;
    }
    const std::unique_ptr<backend::Communicator> pair = context_.world.split(color, context_.rank);
    std::vector<double> mine;
    if (pair->size() == 2) {
      const std::int64_t count = effort_.pair_bytes / size_of(DType::f32);
      const auto timed = [&](const auto& issue) {
        std::vector<Stamp> stamps(kOpsOfAPair);
        issue(nullptr);
        pair->barrier();
        for (Stamp& stamp : stamps) issue(&stamp);
        context_.device.synchronize();
        context_.device.settle_stamps();
        mine.push_back(account::median(microseconds(stamps)));
      };
      for (const int root : {0, 1}) {  // the lower end is root 0: members are in the order of their ranks
        timed([&](Stamp* stamp) { pair->broadcast(kPairLane, (*blocks_)[1], count, DType::f32, root, stamp); });
      }
      timed([&](Stamp* stamp) { pair->all_gather(kPairLane, (*blocks_)[0], (*blocks_)[1], count, DType::f32, stamp); });
    }
    const std::vector<std::vector<double>> all = meeting_.gather(context_, mine);
    if (!leads()) return {};
    std::vector<accept::PairRate> rates;
    for (const accept::Pairing& p : round) {
      std::vector<PairTimes> rails;
      for (int r = 0; r < cluster_.rails; ++r) {
        const std::vector<double>& a = all.at(rank_of(p.a, r));
        const std::vector<double>& b = all.at(rank_of(p.b, r));
        PairTimes& slower = rails.emplace_back();
        for (std::size_t i = 0; i < slower.size(); ++i) slower[i] = std::max(a.at(i), b.at(i));
      }
      rates.push_back(pair_rate(p, effort_.pair_bytes, rails));
    }
    return rates;
  }

  /// Number of times that each collective is measured, so that all take about a third of what is left.
  int affordable_iterations(const AcceptanceMeasurements& m, const std::vector<Message>& messages) {
    constexpr int kFewest = 6;  // of fewer there is no interval
    if (!leads() || lead_->clock.is_spent()) return 0;
    if (m.links.one_way.empty()) return cluster_.ends() > 1 ? kFewest : effort_.iterations;  // pairs took too long
    link_bytes_per_s_ = account::median(m.links.one_way) * 1e9;
    double each_s = 0;
    for (const Message& message : messages) each_s += about_s(message);
    return lead_->clock.fitting(effort_.iterations, kFewest, each_s, 0.3);
  }

  /// An iteration in both arrangements, by what pairs carry.
  double about_s(const Message& message) const {
    const auto bytes = static_cast<double>(message.bytes());
    return link_bytes_per_s_ > 0 ? 2 * bytes * (message.ranks - 1) / message.ranks / link_bytes_per_s_ : 0;
  }

  void measure_ladder(AcceptanceMeasurements& m) {
    const std::vector<Message> messages = ladder_of(setup_);
    iterations_ = decided(affordable_iterations(m, messages));
    if (iterations_ == 0) {
      if (leads()) lead_->clock.skip("collectives", lead_->clock.spent());
      return;
    }
    CollectivesArguments arguments;
    arguments.iterations = iterations_;
    arguments.checks = context_.device.computes() ? 1 : 0;  // else nothing is moved that could be checked
    arguments.most_bytes = most_bytes(messages);
    CollectiveTimer timer(arguments, context_, meeting_);
    for (const Message& message : messages) {
      const double estimate_s = about_s(message) * (iterations_ + kBesideIterations);
      const std::string name = fmt::format("{} of {}", to_string(message.op), format_bytes(message.bytes()));
      if (!begins(name, estimate_s > 0 ? std::optional(estimate_s) : std::nullopt)) return;
      CollectiveRow row;
      row.message = message;
      if (message.reduces()) row.reduction = Reduction::sum;
      row.out_of_place = timer.timing(message, Reduction::sum, false);
      row.in_place = timer.timing(message, Reduction::sum, true);
      if (leads()) m.ladder.push_back(std::move(row));
    }
  }

  const engine::Setup& setup_;
  const AcceptanceEffort& effort_;
  RankContext& context_;
  RankMeeting& meeting_;
  const AcceptanceLead* lead_;
  accept::Cluster cluster_;
  int iterations_ = 0;
  double link_bytes_per_s_ = 0;        // about; rank 0 only
  const Blocks<2>* blocks_ = nullptr;  // of pairs: what one sends, what both have
};

}  // namespace

// clang-format off
template <>
Fields<AcceptanceEffort> declared() {
  using E = AcceptanceEffort;
  return {"AcceptanceEffort", "Effort that the ranks make.", "accept/stages/measure_acceptance.h", {
    {"matrix", &E::matrix, "", "rows and columns of the products", check_positive},
    {"device_rounds", &E::device_rounds, "", "rounds of what devices do", check_positive},
    {"iterations", &E::iterations, "", "of each collective", check_positive},
    {"arm_rounds", &E::arm_rounds, "", "of a step's arms", check_positive},
    {"pair_bytes", &E::pair_bytes, "B", "that a pair sends", check_positive},
    {"memory_bytes", &E::memory_bytes, "B", "that are copied to measure a rank's memory", check_positive},
  }};
}
// clang-format on

AcceptanceEffort effort_of(const config::Acceptance& wanted, bool full) {
  AcceptanceEffort effort;
  effort.matrix = wanted.matrix;
  effort.memory_bytes = wanted.memory_mib << 20;
  if (full) effort.iterations = 200;
  if (full) effort.arm_rounds = 30;
  return effort;
}

accept::Cluster cluster_of(const std::vector<std::string>& hosts) {
  const int ranks = static_cast<int>(hosts.size());
  const accept::Cluster one{.nodes = 1, .gpus_per_node = ranks};
  std::vector<int> sizes;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (i == 0 || hosts[i] != hosts[i - 1]) {
      if (!seen.insert(hosts[i]).second) return one;
      sizes.push_back(0);
    }
    ++sizes.back();
  }
  if (sizes.size() < 2 || std::ranges::any_of(sizes, [&](int size) { return size != sizes.front(); })) return one;
  return {.nodes = static_cast<int>(sizes.size()), .gpus_per_node = sizes.front(), .rails = sizes.front()};
}

accept::PairRate pair_rate(const accept::Pairing& pair, std::int64_t bytes, const std::vector<PairTimes>& rails_us) {
  const double kilobytes = static_cast<double>(bytes) * 1e-3;  // over us they are GB/s
  accept::PairRate rate{pair, {}, {}};
  PairTimes slowest{};
  for (const PairTimes& us : rails_us) {
    rate.one_way.push_back(kilobytes / std::max(us[0], us[1]));
    rate.both_ways.push_back(2 * kilobytes / us[2]);
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], us[i]);
  }
  rate.to_b = kilobytes / slowest[0];
  rate.to_a = kilobytes / slowest[1];
  return rate;
}

std::string nearest_adapter(const std::string& paths) {
  for (const char* const near : {" PIX", " PXB"}) {
    const std::size_t end = paths.find(near);
    if (end == std::string::npos) continue;
    const std::size_t begin = paths.find_last_of(" ;,", end - 1) + 1;  // npos + 1 is 0
    return paths.substr(begin, end - begin);
  }
  return {};
}

RankFacts own_facts(const backend::Facts& device, const std::optional<GpuHealth>& gpu) {
  const launch::Environment environment = launch::process_environment();
  const auto variable = [&](const char* name) {
    const char* const text = environment(name);
    return std::string(text == nullptr ? "" : text);
  };
  RankFacts own;
  own.host = launch::node_name();
  own.print = own_fingerprint(device, gpu);
  own.leaf = leaf_of_address(variable("SLURM_TOPOLOGY_ADDR"), variable("SLURM_TOPOLOGY_ADDR_PATTERN"));
  for (const auto& [name, value] : device) {
    if (name == "GPU") own.device = value.substr(std::min(value.rfind("PCI "), value.size()));
    if (name == "GPU UUID") own.uuid = value;
    if (name == "topology") own.adapter = nearest_adapter(value);
  }
  return own;
}

std::string leaf_of_address(const std::string& address, const std::string& pattern) {
  std::istringstream names(address), kinds(pattern);
  std::string leaf;
  for (std::string name, kind; std::getline(names, name, '.') && std::getline(kinds, kind, '.');) {
    if (kind == "switch") leaf = name;
  }
  return leaf;
}

std::string tell_switches(int nodes_per_switch, const std::vector<std::string>& leaves, accept::Cluster& cluster) {
  if (nodes_per_switch > 0) {
    cluster.nodes_per_switch = nodes_per_switch;
    return fmt::format("the profile: {} nodes on each, in the order of their ranks", nodes_per_switch);
  }
  std::map<std::string, int> number;
  std::vector<int> switch_of;
  for (int node = 0; node < cluster.nodes; ++node) {
    const std::size_t rank = node * cluster.gpus_per_node;
    if (rank >= leaves.size() || leaves[rank].empty()) {
      return "nobody told of switches: groups of nodes are inferred where pairs show them";
    }
    switch_of.push_back(number.try_emplace(leaves[rank], static_cast<int>(number.size())).first->second);
  }
  cluster.switch_of = std::move(switch_of);
  cluster.switches.resize(number.size());
  for (const auto& [name, index] : number) cluster.switches[index] = name;
  return fmt::format("Slurm (SLURM_TOPOLOGY_ADDR): {} switches", cluster.switches.size());
}

std::vector<Message> ladder_of(const engine::Setup& setup) {
  const std::map<std::int64_t, int> shards = shards_of(setup);
  const std::int64_t most = shards.rbegin()->first, odd = most / 2 | 1;
  const std::set<std::int64_t> counts{shards.begin()->first, most_frequent(shards), most, odd};
  const int ranks = setup.plan.mesh.ranks();
  std::vector<Message> messages;
  for (const std::int64_t count : counts) {
    messages.push_back({Collective::all_gather, setup.plan.param_dtype, count, ranks});
    messages.push_back({Collective::reduce_scatter, setup.plan.reduce_dtype, count, ranks});
  }
  return messages;
}

backend::BackendOptions acceptance_options(const engine::Setup& setup, const AcceptanceEffort& effort,
                                           launch::Session* session) {
  backend::BackendOptions options = engine::backend_options(setup, session);
  const std::int64_t matrix_bytes = std::int64_t{effort.matrix} * effort.matrix * size_of(DType::f32);
  options.pool_bytes = CollectiveBuffers::bytes(most_bytes(ladder_of(setup))) + Blocks<3>::bytes(matrix_bytes) +
                       Blocks<2>::bytes(effort.memory_bytes) + Blocks<2>::bytes(2 * effort.pair_bytes) +
                       scale_bytes(scale_effort(setup, effort), options.ranks);
  options.category_bytes = {};
  return options;
}

void measure_on_rank(const engine::Setup& setup, const AcceptanceEffort& effort, RankContext& context,
                     RankMeeting& meeting, const RankFacts& own, const std::string& transport,
                     const AcceptanceLead* lead, AcceptanceMeasurements& m) {
  AcceptanceRank(setup, effort, context, meeting, lead).run(own, transport, m);
}

void measure_acceptance(const engine::Setup& setup, const AcceptanceEffort& effort, launch::Session* session,
                        const AcceptanceLead* lead) {
  const backend::BackendOptions options = acceptance_options(setup, effort, session);
  RankMeeting meeting(options.ranks, session);
  const std::string transport = usual_transport(setup);
  std::vector<launch::ClockOffset> clocks;
  if (session != nullptr) clocks = launch::measure_clock_offsets(session->control());
  const std::int64_t begin_ns = now_ns();
  const auto backend = select_backend(std::string(config::to_string(setup.config.device.backend)));
  backend->run(options, [&](RankContext& context) {
    const ProcessorTime before = processor_time();
    RankTimes mine{.ready_s = seconds_since(begin_ns), .used = {}};
    AcceptanceMeasurements of_no_use;
    const AcceptanceLead* const own_lead = context.rank == 0 ? lead : nullptr;
    AcceptanceMeasurements& m = own_lead != nullptr ? lead->measured : of_no_use;
    m.clocks = clocks;
    m.rates_tails = effort.iterations >= kForTails;
    measure_on_rank(setup, effort, context, meeting, own_facts(context.device.facts(), context.device.health()),
                    transport, own_lead, m);
    mine.used = since(before);
    std::vector<ProcessorUse> uses;
    for (const RankTimes& of_rank : meeting.gather(context, mine)) {
      m.ready_s.push_back(of_rank.ready_s);
      uses.push_back({m.hosts.at(uses.size()), of_rank.used});
    }
    m.others_share = taken_by_others(uses, session == nullptr);
  });
}

}  // namespace fsdpbench::app
