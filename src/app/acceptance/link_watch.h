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
  std::string name;  ///< "eth0", "mlx5_2 port 1"
  bool up = false;
  double gbit_per_s = 0;   ///< 0: not known
  std::int64_t downs = 0;  ///< how often it went down or came up again, since it is there
  std::vector<std::pair<std::string, std::int64_t>> errors{};  ///< counters, by name
};

/// Links of this host below `sys`: what /sys has, or the folder that FSDPBENCH_SYS names.
std::filesystem::path sys_folder();
std::vector<HostLink> host_links();
std::vector<HostLink> host_links(const std::filesystem::path& sys);

/// Between ranks.
nlohmann::json to_json(const std::vector<HostLink>& links);
std::vector<HostLink> host_links_from_json(const JsonPart& json);

/// Whether a link fell between two looks; it may have come up again.
bool went_down(const HostLink& before, const HostLink& after);

/// Something that happened to a host's links or in its kernel's log while it was measured.
struct HostEvent {
  double at_s =
      0;  ///< when it was seen, in seconds after the host's watch began: HostWatch::kEvery_s after it happened at most
  std::string time;  ///< likewise by the clock of that host, UTC: "2026-11-25T14:03:07Z"
  std::string host;
  std::string part;  ///< the link's name, or kKernelLogRule
  std::string what;  ///< "went down", the counter that rose for the first time, the line of the log
  bool fails = false;
  std::string stage;  ///< that was measured then; empty: none, or it is not known
};
/// " (seen 47 s after the start, at 2026-11-25T14:03:07Z, while pairs were …)": of the first of `events` with that
/// host, part and what begins so; empty: there is none.
std::string when_seen(const std::vector<HostEvent>& events, const std::string& host, const std::string& part,
                      const std::string& what);

/// One link of one host, before and after: as result files have it.
struct WatchedLink {
  std::string host;
  HostLink now;                                                     ///< when all was measured
  std::int64_t changes = 0;                                         ///< how often it went down or came up meanwhile
  std::vector<std::pair<std::string, std::int64_t>> more_errors{};  ///< counted meanwhile, by name
};
/// Of each host once; `before` and `after` as below.
std::vector<WatchedLink> watched_links(const std::vector<std::string>& hosts,
                                       const std::vector<std::vector<HostLink>>& before,
                                       const std::vector<std::vector<HostLink>>& after);

inline constexpr const char* kHostLinkRule = "host links";

/// `before` and `after`: by rank, or of rank 0 only; each host is judged once. A link that went down meanwhile fails,
/// also if only `events` show it, and so does one that is gone; the sentence has when it was seen. Told, and unrated,
/// are: an error counter that rose; a link that is down, or slower, where the link of this name of most hosts is not.
/// Nothing where there is no link.
std::vector<accept::Judgement> judge_host_links(const std::vector<std::string>& hosts,
                                                const std::vector<std::vector<HostLink>>& before,
                                                const std::vector<std::vector<HostLink>>& after,
                                                const std::vector<HostEvent>& events = {});

}  // namespace fsdpbench::app
