#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accept/blame_links.h"
#include "accept/collectives/collective_row.h"
#include "accept/finding.h"
#include "accept/link_parts.h"
#include "accept/stages/gpu_watch.h"
#include "accept/stages/measure_devices.h"
#include "accept/stages/stage_clock.h"
#include "accept/step_arms.h"
#include "config/accuracy.h"
#include "engine/setup.h"
#include "launch/clock_offset.h"
#include "launch/session.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// Amount of work that the ranks measure.
struct AcceptanceEffort {
  int matrix = 1024;  ///< rows and columns of the products
  int device_rounds = 15;
  int iterations = 20;  ///< of each collective
  int arm_rounds = 8;   ///< of a step's arms
  std::int64_t pair_bytes = std::int64_t{4} << 20;
  std::int64_t memory_bytes = std::int64_t{32} << 20;  ///< that are copied to measure a rank's memory
};

/// Effort for what `wanted` asks for; `full`: so many collectives that tails can be rated.
AcceptanceEffort effort_of(const config::Acceptance& wanted, bool full);
inline constexpr int kOpsOfAPair = 5;
inline constexpr int kBesideIterations = 3;  ///< of each collective, that warm up or check data

/// Between ranks.
template <>
Fields<AcceptanceEffort> declared();

/// Facts that must be the same everywhere, by name.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;
/// Names of those that are environment variables begin so; a rank without one has it not set.
inline constexpr const char* kVariableFact = "variable ";

/// Raw measurements of all ranks.
struct AcceptanceMeasurements {
  accept::Cluster cluster;
  std::vector<Fingerprint> fingerprints;    ///< by rank
  std::vector<std::string> hosts;           ///< by rank
  std::string topology;                     ///< who told of switches; empty: there is one node
  double others_share = 0;                  ///< of the busiest host's processors, what other programs took meanwhile
  bool rates_tails = false;                 ///< collectives were to be measured often enough for a p99
  std::vector<double> ready_s;              ///< by rank: until its device and its communicators were there
  std::vector<launch::ClockOffset> clocks;  ///< by rank; none: all are threads of one process
  std::vector<std::string> transports;      ///< by rank: what carried its bytes; empty: it does not know
  std::vector<std::optional<WatchedGpu>> gpus;  ///< by rank: how its GPU fared meanwhile; absent: it has none
  bool computes = true;                         ///< false: computation is emulated
  accept::DeviceRounds device_rates;            ///< FLOP/s, [round][rank]
  accept::DeviceRounds memory_rates;            ///< bytes read and written a second, [round][rank]
  accept::DeviceRounds launch_us;               ///< of kernels by hosts, [round][rank]; none without GPUs
  accept::LinkReport links;                     ///< GB/s
  std::vector<std::vector<double>> pairs;       ///< [from][to] of the ends, GB/s one way; 0: not measured
  bool on_processors = false;                   ///< ranks compute on these, not on GPUs
  bool shares_cores = false;                    ///< and those of a host outnumber its cores
  bool cores_move_bytes = true;                 ///< of CPU ranks, unless links are emulated
  std::vector<CollectiveRow> ladder;            ///< the collectives of the run's own units
  std::vector<CollectiveRow> scales;            ///< the most frequent unit's, in groups of ranks
  std::vector<accept::Arrivals> arrivals;       ///< at the reductions of the run's steps
  std::vector<accept::ArmRound> arms;           ///< of a step
  std::vector<accept::ArmRound> soak;           ///< rounds of the same arms, again and again; of a full acceptance
  std::string stopped_because;                  ///< nothing after the rendezvous was measured; empty: all was
  std::vector<Stage> stages;
  std::vector<double> standstill_s;  ///< by rank: for how long, at most, its process did not run at all
};

/// Facts of a rank, told before anything is measured. For a GPU, the model and the place on the bus, and the NIC
/// that the topology puts nearest, are what a vendor is told.
struct RankFacts {
  std::string host;
  Fingerprint print;
  std::string device;
  std::string uuid;
  std::string adapter;
  std::string leaf;  ///< its switch, as Slurm told it
};
RankFacts own_facts(const backend::Facts& device, const std::optional<GpuHealth>& gpu);

/// Microseconds of one rail of a pair: from its first end to its second, back, and both at once.
using PairTimes = std::array<double, 3>;
/// Rates of a pair that sends `bytes`, by rail.
accept::PairRate pair_rate(const accept::Pairing& pair, std::int64_t bytes, const std::vector<PairTimes>& rails_us);

/// Name before PIX or PXB in "NV18 to 7 GPUs; mlx5_0 PIX, mlx5_1 SYS"; empty: there is none.
std::string nearest_adapter(const std::string& paths);

/// Nodes of as many ranks each, numbered node by node; else one node, of which all ranks are ends.
accept::Cluster cluster_of(const std::vector<std::string>& hosts);

/// The messages that FSDP sends in the run of `setup`: its largest unit, its most frequent one, its smallest, and one
/// that fits no alignment; gathered and reduced, each once.
std::vector<Message> ladder_of(const engine::Setup& setup);

/// The leaf switch of a task, of Slurm's SLURM_TOPOLOGY_ADDR ("s0.s4.node12") and SLURM_TOPOLOGY_ADDR_PATTERN
/// ("switch.switch.node"); empty: they name none.
std::string leaf_of_address(const std::string& address, const std::string& pattern);

/// Sets the switches of `cluster`: by the profile's `nodes_per_switch` (0: it does not tell), else by `leaves`, the
/// leaf of each rank as Slurm told its task. Says in a sentence who told of them, or why they are not known.
std::string tell_switches(int nodes_per_switch, const std::vector<std::string>& leaves, accept::Cluster& cluster);

/// Decisions that rank 0 takes for all.
struct AcceptanceLead {
  StageClock& clock;
  int nodes_per_switch;  ///< as the profile tells; 0: it does not
  /// Asked once it is known who the ranks are: why nothing else is to be measured; empty: it is.
  std::function<std::string(const AcceptanceMeasurements&)> why_stop;
  AcceptanceMeasurements& measured;  ///< what all have measured so far, also where an error ends it
};

/// Options of the backend for ranks that measure so much.
backend::BackendOptions acceptance_options(const engine::Setup& setup, const AcceptanceEffort& effort,
                                           launch::Session* session);

/// One rank's part of measure_acceptance(), which tells `own` of itself. `transport`: what carries its bytes if its
/// device does not tell; `lead`: of rank 0, elsewhere null.
void measure_on_rank(const engine::Setup& setup, const AcceptanceEffort& effort, backend::RankContext& context,
                     RankMeeting& meeting, const RankFacts& own, const std::string& transport,
                     const AcceptanceLead* lead, AcceptanceMeasurements& m);

/// All stages that need ranks but no training, on threads of this process or on this process's rank of `session`. Rank
/// 0 has the `lead`, elsewhere it is null. Throws as Backend::run.
void measure_acceptance(const engine::Setup& setup, const AcceptanceEffort& effort, launch::Session* session,
                        const AcceptanceLead* lead);

}  // namespace fsdpbench::app
