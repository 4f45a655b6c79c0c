#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "backend/device.h"

namespace fsdpbench::backend::cuda {

/// What a log of NCCL at level INFO says of how bytes travel. NCCL documents none of its lines: what is not
/// recognised is passed over.
struct NcclLogFacts {
  using Connection = std::pair<int, int>;  ///< sender and receiver, ranks of their communicator

  std::map<std::string, std::set<Connection>> transports;  ///< by "P2P/CUMEM", "NET/IB/0/GDRDMA", "SHM/direct" …
  std::set<std::string> networks;                          ///< "IB", "Socket": what NCCL would use between hosts
  std::optional<bool> multicast;                           ///< whether the GPUs can do NVLS
  int channels = 0;                                        ///< most of any communicator
  int nvls_channels = 0;
  std::map<std::string, std::set<std::string>> algorithms;  ///< by "AllGather": "RING/SIMPLE"; subsystem TUNING only
};

/// From a log of NCCL_DEBUG=INFO, whole or cut off; lines that say nothing of this are passed over.
NcclLogFacts parse_nccl_log(std::string_view text);

/// The same for people: "nccl transport", "nccl network", "nccl nvls", "nccl channels", "nccl algorithms"; what the log
/// does not tell is absent.
Facts describe(const NcclLogFacts& log);

}  // namespace fsdpbench::backend::cuda
