#include "backend/cuda/nccl/make_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <array>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "backend/cuda/nccl/nccl_communicator.h"
#include "backend/cuda/nccl/nccl_version.h"

namespace fsdpbench::backend::cuda {
namespace {

// Nothing of a cluster's addresses or users.
constexpr auto kVariables = std::to_array<const char*>({
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_CGA_CLUSTER_SIZE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_COMM_BLOCKING",
    "NCCL_CONF_FILE",
    "NCCL_CROSS_NIC",
    "NCCL_CTA_POLICY",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_DMABUF_ENABLE",
    "NCCL_GRAPH_FILE",
    "NCCL_GRAPH_REGISTER",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_IB_MERGE_NICS",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_TC",
    "NCCL_LAUNCH_MODE",
    "NCCL_LOCAL_REGISTER",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MNNVL_ENABLE",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_NET",
    "NCCL_NET_GDR_C2C",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_PLUGIN",
    "NCCL_NTHREADS",
    "NCCL_NVLS_CHUNKSIZE",
    "NCCL_NVLS_ENABLE",
    "NCCL_NVLS_NCHANNELS",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_USE_CUDA_MEMCPY",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_PROTO",
    "NCCL_PXN_DISABLE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_TOPO_FILE",
    "NCCL_TUNER_CONFIG_FILE",
    "NCCL_TUNER_PLUGIN",
    "NCCL_WIN_ENABLE",
});

std::string wishes(const NcclOptions& options) {
  std::vector<std::string> all;
  if (options.registration == NcclOptions::Register::local) all.emplace_back("register_buffers local");
  if (options.registration == NcclOptions::Register::window) all.emplace_back("register_buffers window");
  if (options.cta_policy == NcclOptions::CtaPolicy::efficiency) all.emplace_back("cta_policy efficiency");
  if (options.cta_policy == NcclOptions::CtaPolicy::zero) all.emplace_back("cta_policy zero");
  if (options.blocking) all.emplace_back("blocking");
  if (options.max_ctas > 0) all.push_back(fmt::format("max_ctas {}", options.max_ctas));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

std::string nccl_environment() {
  std::string all;
  for (const char* const name : kVariables) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    if (!all.empty()) all += ' ';
    all += name;
    all += '=';
    all += value;
  }
  return all;
}

std::unique_ptr<Communicator> make_world_communicator(LaneAccess& lanes, IdExchange& ids, int rank, int ranks,
                                                      const NcclOptions& options) {
  if (ranks == 1) return std::make_unique<SoloCommunicator>(lanes);
  NcclDeadlines deadlines;
  deadlines.op = std::chrono::duration<double>(options.timeout_s);
  return make_nccl_communicator(lanes, ids, rank, ranks, options, deadlines);
}

Facts communicator_facts(const Communicator& world) {
  const auto* const nccl = dynamic_cast<const NcclCommunicator*>(&world);
  if (nccl == nullptr) return {{"nccl", "not used: one rank"}};
  const NcclRank& rank = nccl->nccl_rank();
  Facts facts{{"nccl", nccl_version()}};
  if (std::string asked = wishes(rank.options()); !asked.empty()) facts.emplace_back("nccl asked for", asked);
  if (std::string set = nccl_environment(); !set.empty()) facts.emplace_back("nccl environment", set);
  if (rank.windows_asked > 0) {
    facts.emplace_back("nccl windows",
                       fmt::format("accepted on {} of {} communicators; without symmetric memory they only are "
                                   "registered buffers, which NCCL does not tell",
                                   rank.windows_made, rank.windows_asked));
  }
  if (const LaunchTimes& times = rank.launches; times.count > 0) {
    using Microseconds = std::chrono::duration<double, std::micro>;
    facts.emplace_back("nccl launches",
                       fmt::format("{} collectives took {:.0f} us of the host each, at most {:.0f} us", times.count,
                                   Microseconds(times.all).count() / static_cast<double>(times.count),
                                   Microseconds(times.longest).count()));
  }
  return facts;
}

}  // namespace fsdpbench::backend::cuda
