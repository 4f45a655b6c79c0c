#include "launch/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"
#include "launch/addresses.h"
#include "launch/own_ranks.h"

namespace fsdpbench::launch {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();
constexpr int kMostRanks = 1 << 20;   // as --ranks; a place is kept for each
constexpr int kTorchrunPort = 29500;  // what torchrun itself assumes
// Slurm numbers the steps that are no srun of the user's from the top: batch script, interactive shell and others.
constexpr unsigned long kFirstSpecialStep = 0xfffffff0UL;

constexpr const char* kPmiRank = "PMI_RANK";

/// Names of one launcher for what it tells a process.
struct Names {
  const char* title = "";
  std::string rank;
  std::string ranks;
  std::vector<std::string> local_rank;   ///< the first that is set
  std::vector<std::string> local_ranks;  ///< the first that is set
};

const Names kOwn{"fsdpbench itself", kOwnRank, kOwnRanks, {kOwnRank}, {kOwnRanks}};
const Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}};
const Names kSlurm{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_LOCALID"}, {}};
const std::vector<Names> kMpi{
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {"MVAPICH",
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE",
     {"MV2_COMM_WORLD_LOCAL_RANK"},
     {"MV2_COMM_WORLD_LOCAL_SIZE"}},
    {"MPI",
     kPmiRank,
     "PMI_SIZE",
     {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"},
     {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
};

/// A count that Slurm says node by node.
int slurm_local_ranks(const Variables& variables, int otherwise) {
  const std::string name = variables.first_set({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (name.empty()) return otherwise;
  const int node = variables.number("SLURM_NODEID", 0, kMost, 0);
  const std::optional<int> tasks = tasks_on_node(variables.text(name), node);
  if (!tasks) {
    throw ConfigError(fmt::format("{}={} in the environment has no number of tasks for node {} (SLURM_NODEID)", name,
                                  variables.text(name), node));
  }
  return *tasks;
}

/// Reads ranks and local ranks; what a launcher does not say of the host is taken as small as it can be.
Placement read(const Variables& variables, const Names& names) {
  for (const auto& [present, absent] : {std::pair{names.rank, names.ranks}, std::pair{names.ranks, names.rank}}) {
    if (variables.has(present) && !variables.has(absent)) {
      throw ConfigError(fmt::format("{}={} is in the environment, but {} is not: {} sets both", present,
                                    variables.text(present), absent, names.title));
    }
  }
  Placement placement;
  placement.rank = variables.number(names.rank, 0, kMostRanks - 1);
  placement.ranks = variables.number(names.ranks, 1, kMostRanks);
  if (placement.rank >= placement.ranks) {
    throw ConfigError(fmt::format("{}={} and {}={} in the environment contradict each other: ranks count from 0",
                                  names.rank, placement.rank, names.ranks, placement.ranks));
  }
  const std::string local_rank = variables.first_set(names.local_rank);
  const std::string local_ranks = variables.first_set(names.local_ranks);
  placement.local_rank = local_rank.empty() ? 0 : variables.number(local_rank, 0, kMostRanks - 1);
  placement.local_ranks = placement.local_rank + 1;
  if (!local_ranks.empty()) placement.local_ranks = variables.number(local_ranks, 1, kMostRanks);
  if (local_rank == "SLURM_LOCALID" && local_ranks.empty())
    placement.local_ranks = slurm_local_ranks(variables, placement.local_ranks);
  if (placement.local_rank >= placement.local_ranks || placement.local_ranks > placement.ranks) {
    throw ConfigError(
        fmt::format("the environment contradicts itself: local rank {} ({}) of {} on this host ({}), of {} in all ({})",
                    placement.local_rank, local_rank.empty() ? "not said" : local_rank, placement.local_ranks,
                    local_ranks.empty() ? "not said" : local_ranks, placement.ranks, names.ranks));
  }
  placement.source = fmt::format("{} ({}, {})", names.title, names.rank, names.ranks);
  return placement;
}

/// Whether this process is a task of an srun, not a batch script or an interactive shell.
bool in_slurm_step(const Variables& variables) {
  if (!variables.has("SLURM_PROCID") || !variables.has("SLURM_STEP_ID")) return false;
  const std::string step = variables.text("SLURM_STEP_ID");
  if (step == "batch" || step == "interactive" || step == "extern") return false;
  char* end = nullptr;
  const unsigned long number = std::strtoul(step.c_str(), &end, 10);
  if (*end != '\0') {
    throw ConfigError(fmt::format("SLURM_STEP_ID={} in the environment is not the number of a job step", step));
  }
  return number < kFirstSpecialStep;
}

std::string slurm_job(const Variables& variables) {
  const std::string job = variables.first_set({"SLURM_JOB_ID", "SLURM_JOBID"});
  return job.empty() ? "" : fmt::format("slurm {}.{}", variables.text(job), variables.text("SLURM_STEP_ID"));
}

/// One that differs from job to job.
int port_of(const std::string& job) {
  std::uint32_t hash = 2166136261U;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

void find_slurm_root(const Variables& variables, Placement& placement) {
  const std::string name = variables.first_set({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (name.empty()) return;
  const std::optional<std::string> host = first_host(variables.text(name));
  if (!host) {
    throw ConfigError(fmt::format("{}={} in the environment is no list of nodes", name, variables.text(name)));
  }
  placement.root_host = *host;
  placement.root_port = variables.number("FSDPBENCH_PORT", 1, kMostPort, port_of(placement.job));
}

void find_master(const Variables& variables, Placement& placement) {
  placement.root_host = variables.host("MASTER_ADDR");
  // torchrun's agent keeps MASTER_PORT itself.
  const int next = variables.number("MASTER_PORT", 1, kMostPort - 1, kTorchrunPort) + 1;
  placement.root_port = variables.number("FSDPBENCH_PORT", 1, kMostPort, next);
  placement.source.insert(placement.source.size() - 1, ", MASTER_ADDR");
}

/// Finds rank 0 if the launcher itself does not say it, as mpirun.
void find_root(const Variables& variables, Placement& placement) {
  if (variables.has("MASTER_ADDR")) return find_master(variables, placement);
  if (placement.local_ranks != placement.ranks) return;
  placement.root_host = kLoopback;
  placement.root_port = variables.number("FSDPBENCH_PORT", 1, kMostPort, port_of(placement.job));
}

Placement torchrun_placement(const Variables& variables) {
  Placement placement = read(variables, kTorchrun);
  if (variables.has("TORCHELASTIC_RUN_ID")) {
    placement.job = fmt::format("torchrun {} restart {}", variables.text("TORCHELASTIC_RUN_ID"),
                                variables.number("TORCHELASTIC_RESTART_COUNT", 0, kMost, 0));
  }
  find_master(variables, placement);
  return placement;
}

Placement mpi_placement(const Variables& variables, const Names& names) {
  Placement placement = read(variables, names);
  // mpirun's daemons are a Slurm step of their own, on other nodes than the job: only srun's own tasks count.
  if (names.rank == kPmiRank && in_slurm_step(variables)) {
    placement.job = slurm_job(variables);
    find_slurm_root(variables, placement);
  }
  if (variables.has("PMIX_NAMESPACE")) placement.job = "mpi " + variables.text("PMIX_NAMESPACE");
  return placement;
}

Placement slurm_placement(const Variables& variables) {
  Names names = kSlurm;
  if (!variables.has(names.ranks)) names.ranks = variables.first_set({"SLURM_NTASKS", "SLURM_NPROCS", names.ranks});
  if (names.ranks.empty()) names.ranks = kSlurm.ranks;
  Placement placement = read(variables, names);
  placement.job = slurm_job(variables);
  find_slurm_root(variables, placement);
  return placement;
}

/// A process that torchrun's variables describe only in part would run alone and measure nonsense.
void refuse_half_a_torchrun(const Variables& variables) {
  if (!variables.has("RANK")) return;
  const bool size = variables.has("WORLD_SIZE");
  const bool address = variables.has("MASTER_ADDR");
  if (size == address) return;
  throw ConfigError(
      fmt::format("RANK={} and {} are in the environment, but {} is not: a job started by torchrun has all three",
                  variables.text("RANK"),
                  size ? "WORLD_SIZE=" + variables.text("WORLD_SIZE") : "MASTER_ADDR=" + variables.text("MASTER_ADDR"),
                  size ? "MASTER_ADDR" : "WORLD_SIZE"));
}

/// Placement of ranks that are all on this host.
Placement own_placement(const Variables& variables) {
  Placement placement = read(variables, kOwn);
  placement.source = "fsdpbench itself";
  placement.job = variables.text(kOwnJob);
  placement.root_host = kLoopback;
  placement.root_port = variables.number(kOwnPort, 1, kMostPort);
  return placement;
}

std::optional<Placement> find_any(const Variables& variables) {
  if (variables.has(kOwnJob)) return own_placement(variables);
  if (variables.has("RANK") && variables.has("WORLD_SIZE") && variables.has("MASTER_ADDR")) {
    return torchrun_placement(variables);
  }
  for (const Names& names : kMpi) {
    if (variables.has(names.rank) || variables.has(names.ranks)) return mpi_placement(variables, names);
  }
  if (in_slurm_step(variables)) return slurm_placement(variables);
  refuse_half_a_torchrun(variables);
  return std::nullopt;
}

/// Takes the digits at the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(end - text.data());
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

}  // namespace

std::optional<Placement> find_placement(const Environment& environment) {
  const Variables variables(environment);
  std::optional<Placement> placement = find_any(variables);
  if (!placement || placement->ranks == 1) return std::nullopt;
  if (placement->root_host.empty()) find_root(variables, *placement);
  return placement;
}

std::optional<std::string> first_host(std::string_view node_list) {
  std::string host;
  // A name may have several bracketed parts, and letters after them.
  while (!node_list.empty() && node_list.front() != ',') {
    if (node_list.front() != '[') {
      host += node_list.front();
      node_list.remove_prefix(1);
      continue;
    }
    const std::size_t close = node_list.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view numbers = node_list.substr(1, close - 1);
    const std::string_view first = numbers.substr(0, numbers.find_first_of(",-"));
    if (first.empty()) return std::nullopt;
    host += first;
    node_list.remove_prefix(close + 1);
  }
  if (host.empty() || host.find(']') != std::string::npos) return std::nullopt;
  return host;
}

std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node) {
  while (!tasks_per_node.empty()) {
    const std::optional<int> tasks = take_number(tasks_per_node);
    if (!tasks) return std::nullopt;
    int nodes = 1;
    if (take(tasks_per_node, "(x")) {
      const std::optional<int> repeated = take_number(tasks_per_node);
      if (!repeated || !take(tasks_per_node, ")")) return std::nullopt;
      nodes = *repeated;
    }
    if (node < nodes) return tasks;
    node -= nodes;
    if (!take(tasks_per_node, ",")) break;
  }
  return std::nullopt;
}

}  // namespace fsdpbench::launch
