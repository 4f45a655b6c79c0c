#include "app/acceptance/link_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using accept::Judgement;
using accept::Verdict;

/// The first line; empty of a file that is not there, or that the kernel refuses to read, as the speed of a link that
/// is down.
std::string first_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

std::optional<std::int64_t> whole_in(const fs::path& file) {
  const std::string text = first_line(file);
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  return end == text.c_str() ? std::nullopt : std::optional<std::int64_t>(value);
}

void add_errors(const fs::path& folder, std::initializer_list<const char*> names, HostLink& link) {
  for (const char* const name : names) {
    if (const auto value = whole_in(folder / name)) link.errors.emplace_back(name, *value);
  }
}

/// In the order of their names; nothing of a folder that cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    all.push_back(at->path());
  std::ranges::sort(all);
  return all;
}

const HostLink* link_named(const std::vector<HostLink>& links, const std::string& name) {
  const auto found = std::ranges::find(links, name, &HostLink::name);
  return found == links.end() ? nullptr : &*found;
}

/// One link on the hosts that have it.
struct Peers {
  int all = 0, up = 0;
  std::map<double, int> rates;  // of those that are up

  bool mostly_up() const { return 2 * up > all; }
  /// What more than half of them have; 0: there is no such rate.
  double usual() const {
    for (const auto& [rate, count] : rates) {
      if (2 * count > all) return rate;
    }
    return 0;
  }
};

/// By host, its first rank whose links are known.
std::map<std::string, std::size_t> first_ranks(const std::vector<std::string>& hosts,
                                               const std::vector<std::vector<HostLink>>& before,
                                               const std::vector<std::vector<HostLink>>& after) {
  std::map<std::string, std::size_t> all;
  for (std::size_t rank = 0; rank < std::min({hosts.size(), before.size(), after.size()}); ++rank) {
    all.try_emplace(hosts[rank], rank);
  }
  return all;
}

}  // namespace

fs::path sys_folder() {
  const char* const named = std::getenv("FSDPBENCH_SYS");
  return named == nullptr || *named == '\0' ? "/sys" : named;
}

std::vector<HostLink> host_links() { return host_links(sys_folder()); }

bool went_down(const HostLink& before, const HostLink& after) {
  const std::int64_t changes = after.downs - before.downs;
  return (before.up && (!after.up || changes > 0)) || changes > 1;  // one change of a link that was down: it came up
}

std::string when_seen(const std::vector<HostEvent>& events, const std::string& host, const std::string& part,
                      const std::string& what) {
  const auto seen = std::ranges::find_if(events, [&](const HostEvent& event) {
    return event.host == host && event.part == part && event.what.starts_with(what);
  });
  if (seen == events.end()) return {};
  return fmt::format(" (seen {:.0f} s after the start, at {}{})", seen->at_s, seen->time,
                     seen->stage.empty() ? "" : fmt::format(", in the stage {}", seen->stage));
}

std::vector<HostLink> host_links(const fs::path& sys) {
  std::vector<HostLink> links;
  std::error_code error;
  for (const fs::path& entry : entries(sys / "class/net")) {
    if (!fs::exists(entry / "device", error)) continue;  // bridges, loopback, ends of a container's cable
    HostLink& link = links.emplace_back(HostLink{.name = entry.filename().string()});
    const std::string state = first_line(entry / "operstate");
    link.up = state == "up" || state == "unknown";  // some drivers do not say
    if (const auto mbit = whole_in(entry / "speed"); mbit && *mbit > 0)
      link.gbit_per_s = static_cast<double>(*mbit) * 1e-3;
    link.downs = whole_in(entry / "carrier_changes").value_or(0);
    add_errors(entry / "statistics", {"rx_errors", "tx_errors", "rx_dropped"}, link);
  }
  for (const fs::path& adapter : entries(sys / "class/infiniband")) {
    for (const fs::path& port : entries(adapter / "ports")) {
      HostLink& link = links.emplace_back(
          HostLink{.name = fmt::format("{} port {}", adapter.filename().string(), port.filename().string())});
      link.up = first_line(port / "state").find("ACTIVE") != std::string::npos;   // "4: ACTIVE"
      link.gbit_per_s = std::strtod(first_line(port / "rate").c_str(), nullptr);  // "400 Gb/sec (4X NDR)"
      link.downs = whole_in(port / "counters/link_downed").value_or(0);
      add_errors(port / "counters", {"symbol_error", "port_rcv_errors"}, link);
    }
  }
  return links;
}

nlohmann::json to_json(const std::vector<HostLink>& links) {
  nlohmann::json all = nlohmann::json::array();
  for (const HostLink& link : links) {
    nlohmann::json errors = nlohmann::json::array();
    for (const auto& [name, value] : link.errors) errors.push_back({{"name", name}, {"value", value}});
    all.push_back({{"name", link.name},
                   {"up", link.up},
                   {"gbit_per_s", link.gbit_per_s},
                   {"downs", link.downs},
                   {"errors", std::move(errors)}});
  }
  return all;
}

std::vector<HostLink> host_links_from_json(const JsonPart& json) {
  std::vector<HostLink> links;
  for (const JsonPart& one : json.list()) {
    HostLink& link = links.emplace_back(HostLink{.name = one.at("name").text()});
    link.up = one.at("up").flag();
    link.gbit_per_s = one.at("gbit_per_s").number();
    link.downs = one.at("downs").whole(INT64_MIN, INT64_MAX);
    for (const JsonPart& error : one.at("errors").list()) {
      link.errors.emplace_back(error.at("name").text(), error.at("value").whole(INT64_MIN, INT64_MAX));
    }
  }
  return links;
}

std::vector<WatchedLink> watched_links(const std::vector<std::string>& hosts,
                                       const std::vector<std::vector<HostLink>>& before,
                                       const std::vector<std::vector<HostLink>>& after) {
  std::vector<WatchedLink> all;
  for (const auto& [host, rank] : first_ranks(hosts, before, after)) {
    for (const HostLink& link : after[rank]) {
      WatchedLink& watched = all.emplace_back(WatchedLink{.host = host, .now = link});
      const HostLink* const was = link_named(before[rank], link.name);
      if (was == nullptr) continue;
      watched.changes = std::max<std::int64_t>(0, link.downs - was->downs);
      for (const auto& [name, value] : link.errors) {
        const auto same = std::ranges::find(was->errors, name, &std::pair<std::string, std::int64_t>::first);
        if (same != was->errors.end())
          watched.more_errors.emplace_back(name, std::max<std::int64_t>(0, value - same->second));
      }
    }
  }
  return all;
}

std::vector<Judgement> judge_host_links(const std::vector<std::string>& hosts,
                                        const std::vector<std::vector<HostLink>>& before,
                                        const std::vector<std::vector<HostLink>>& after,
                                        const std::vector<HostEvent>& events) {
  const std::map<std::string, std::size_t> first_rank = first_ranks(hosts, before, after);
  std::map<std::string, Peers> peers;
  for (const auto& [host, rank] : first_rank) {
    for (const HostLink& link : after[rank]) {
      Peers& of = peers[link.name];
      ++of.all;
      if (!link.up) continue;
      ++of.up;
      ++of.rates[link.gbit_per_s];
    }
  }
  std::vector<Judgement> all;
  std::size_t links = 0;
  for (const auto& [host, rank] : first_rank) {
    std::vector<HostLink> judged = after[rank];
    for (const HostLink& was : before[rank]) {
      if (link_named(after[rank], was.name) == nullptr) judged.push_back(HostLink{.name = was.name});
    }
    for (const HostLink& link : judged) {
      ++links;
      const auto add = [&, &host = host](Verdict verdict, const std::string& what) {
        Judgement& j = all.emplace_back(accept::judged(kHostLinkRule, fmt::format("{} of {}", link.name, host), verdict,
                                                       fmt::format("{} of {} {}", link.name, host, what)));
        j.place = {.host = host, .device = {}, .nic = link.name, .direction = {}};
        if (verdict != Verdict::fail) return;
        for (std::size_t r = 0; r < hosts.size(); ++r) {
          if (hosts[r] == host) j.ranks.push_back(static_cast<int>(r));
        }
      };
      const auto seen = [&, &host = host](const std::string& what) { return when_seen(events, host, link.name, what); };
      if (link_named(after[rank], link.name) == nullptr) {
        add(Verdict::fail, "is gone since it was measured" + seen("is gone"));
        continue;
      }
      const Peers& of = peers[link.name];
      const HostLink* const was = link_named(before[rank], link.name);
      std::string told;
      const auto tell = [&](const std::string& what) { told += (told.empty() ? "" : "; ") + what; };
      if (!link.up && of.mostly_up()) tell(fmt::format("is down, and up on {} of {} hosts", of.up, of.all));
      if (const double usual = of.usual(); link.up && link.gbit_per_s > 0 && link.gbit_per_s < usual) {
        tell(fmt::format("has {:g} Gbit/s, and most hosts have {:g}", link.gbit_per_s, usual));
      }
      for (const auto& [name, value] : link.errors) {
        if (was == nullptr) break;
        const auto same = std::ranges::find(was->errors, name, &std::pair<std::string, std::int64_t>::first);
        if (same == was->errors.end() || value <= same->second) continue;
        tell(fmt::format("counted {} more {} while it was measured{}", value - same->second, name, seen(name)));
      }
      const std::string fell = seen("went down");
      if (!fell.empty() || (was != nullptr && went_down(*was, link))) {
        add(Verdict::fail,
            fmt::format("went down while it was measured{}{}{}", fell, told.empty() ? "" : "; it ", told));
      } else if (!told.empty()) {
        add(Verdict::unrated, told);
      }
    }
  }
  if (links > 0 && all.empty()) {
    all.push_back(accept::judged(kHostLinkRule, "network interfaces and InfiniBand ports", Verdict::pass,
                                 fmt::format("none of {} {} of {} {} went down, is slower than that of most hosts, or "
                                             "counted errors",
                                             links, links == 1 ? "link" : "links", first_rank.size(),
                                             first_rank.size() == 1 ? "host" : "hosts")));
  }
  return all;
}

}  // namespace fsdpbench::app
