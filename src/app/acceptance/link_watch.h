#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "accept/verdict.h"
#include "app/console/json_part.h"

namespace fsdpbench::app {

/// A link of a host, as its kernel has it: a network interface with a device, or a port of an InfiniBand adapter.
struct HostLink {
  std::string name;       ///< "eth0", "mlx5_2 port 1"
  bool up = false;
  double gbit_per_s = 0;  ///< 0: not known
  std::int64_t downs = 0;  ///< how often it went down or came up again, since it is there
  std::vector<std::pair<std::string, std::int64_t>> errors{};  ///< counters, by name
};

/// Links of this host below `sys`: what /sys has, or the folder that FSDPBENCH_SYS names.
std::vector<HostLink> host_links();
std::vector<HostLink> host_links(const std::filesystem::path& sys);

/// Between ranks.
nlohmann::json to_json(const std::vector<HostLink>& links);
std::vector<HostLink> host_links_from_json(const JsonPart& json);

/// One link of one host, before and after: as result files have it.
struct WatchedLink {
  std::string host;
  HostLink now;             ///< when all was measured
  std::int64_t changes = 0;  ///< how often it went down or came up meanwhile
  std::vector<std::pair<std::string, std::int64_t>> more_errors{};  ///< counted meanwhile, by name
};
/// Of each host once; `before` and `after` as below.
std::vector<WatchedLink> watched_links(const std::vector<std::string>& hosts,
                                       const std::vector<std::vector<HostLink>>& before,
                                       const std::vector<std::vector<HostLink>>& after);

inline constexpr const char* kHostLinkRule = "host links";

/// `before` and `after`: by rank, or of rank 0 only; each host is judged once. A link that went down meanwhile fails. Told,
/// and unrated, are: an error counter that rose; a link that is down, or slower, where the link of this name of most hosts
/// is not. Nothing where there is no link.
std::vector<accept::Judgement> judge_host_links(const std::vector<std::string>& hosts,
                                                const std::vector<std::vector<HostLink>>& before,
                                                const std::vector<std::vector<HostLink>>& after);

}  // namespace fsdpbench::app
