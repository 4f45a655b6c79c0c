#include "app/acceptance/kernel_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clean_text.h"
#include "base/xid.h"

namespace fsdpbench::app {
namespace {

using accept::Judgement;
using accept::Verdict;

constexpr std::size_t kMostLines = 10;
constexpr std::size_t kMostOfAKernelLine = 160;

bool has(std::string_view line, std::string_view words) { return line.find(words) != std::string_view::npos; }

/// "NVRM: Xid (PCI:0000:3b:00): 79, …" has 79; -1: there is no number.
int xid_of(std::string_view lower) {
  const std::size_t end = lower.find("): ", lower.find("xid ("));
  return end == std::string_view::npos ? -1 : std::atoi(std::string(lower.substr(end + 3, 6)).c_str());
}

/// Adds what a record of /dev/kmsg says: "priority,number,microseconds,flags;text", and lines of facts that begin with
/// a space. Programs may write there, too, with a facility of their own: those are left out.
void add_record(std::string_view record, KernelLog& log) {
  const std::size_t text = record.find(';');
  const std::size_t comma = record.find(',');
  if (text == std::string_view::npos || comma == std::string_view::npos || comma > text) return;
  constexpr int kBitsOfLevel = 3;
  const int priority = std::atoi(std::string(record.substr(0, comma)).c_str());
  log.last = std::max<std::int64_t>(log.last, std::atoll(std::string(record.substr(comma + 1, text)).c_str()));
  if (priority >> kBitsOfLevel != 0) return;
  const std::string line = clean_text(record.substr(text + 1, record.find('\n') - text - 1), kMostOfAKernelLine);
  if (kernel_trouble(line) == KernelTrouble::none) return;
  log.lines.emplace_back(log.last, line);
  if (log.lines.size() > kMostLines) log.lines.erase(log.lines.begin());
}

}  // namespace

KernelTrouble kernel_trouble(std::string_view line) {
  std::string lower(line);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool severe = (has(lower, "uncorrect") || has(lower, "fatal")) && !has(lower, "non-fatal");
  if (has(lower, "sxid (")) return has(lower, "non-fatal") ? KernelTrouble::told : KernelTrouble::fails;
  if (has(lower, "xid (")) {
    const int xid = xid_of(lower);
    return xid >= 0 && is_xid_of_programs(static_cast<std::uint64_t>(xid)) ? KernelTrouble::told : KernelTrouble::fails;
  }
  if (has(lower, "[hardware error]") || has(lower, "machine check") || has(lower, "aer: ")) {
    const bool reports = has(lower, "error") || has(lower, "machine check event");  // not "AER: enabled with IRQ 27"
    return severe ? KernelTrouble::fails : reports ? KernelTrouble::told : KernelTrouble::none;
  }
  for (const char* const words :
       {"i/o error, dev ", "ext4-fs error", "xfs: metadata i/o error", "critical medium error"}) {
    if (has(lower, words)) return KernelTrouble::fails;
  }
  if (has(lower, "nvme") && has(lower, "timeout")) return KernelTrouble::told;
  // "mlx5_core 0000:3b:00.0 eth2: Link down", "bnxt_en …: NIC Link is Down", "NETDEV WATCHDOG: eth0 …: transmit queue 0
  // timed out"
  if (has(lower, "link down") || has(lower, "link is down") || has(lower, "netdev watchdog"))
    return KernelTrouble::told;
  if (has(lower, "out of memory: killed process")) return KernelTrouble::told;
  return KernelTrouble::none;
}

std::filesystem::path kmsg_file() {
  const char* const named = std::getenv("FSDPBENCH_KMSG");
  return named == nullptr || *named == '\0' ? "/dev/kmsg" : named;
}

KernelLog kernel_log() { return kernel_log(kmsg_file()); }

KernelLog kernel_log(const std::filesystem::path& kmsg) { return KernelLogReader(kmsg).read(); }

KernelLogReader::KernelLogReader(const std::filesystem::path& kmsg)
    : file_(::open(kmsg.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (file_ < 0) log_.unknown_because = std::strerror(errno);
}

KernelLogReader::~KernelLogReader() {
  if (file_ >= 0) ::close(file_);
}

const KernelLog& KernelLogReader::read() {
  // The device gives a record per read; a plain file gives several, or a part of one.
  std::array<char, 8192> buffer{};
  while (file_ >= 0) {
    const ssize_t got = ::read(file_, buffer.data(), buffer.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: older records have been overwritten
    if (got < 0 && errno != EAGAIN) log_.unknown_because = std::strerror(errno);
    if (got <= 0) break;
    rest_.append(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1)) {
      if (rest_.front() != ' ') add_record(std::string_view(rest_).substr(0, end), log_);
    }
  }
  return log_;
}

nlohmann::json to_json(const KernelLog& log) {
  nlohmann::json lines = nlohmann::json::array();
  for (const auto& [number, line] : log.lines) lines.push_back({{"number", number}, {"line", line}});
  return {{"unknown_because", log.unknown_because}, {"last", log.last}, {"lines", std::move(lines)}};
}

KernelLog kernel_log_from_json(const JsonPart& json) {
  KernelLog log;
  log.unknown_because = json.at("unknown_because").text();
  log.last = json.at("last").whole(-1, INT64_MAX);
  for (const JsonPart& line : json.at("lines").list()) {
    log.lines.emplace_back(line.at("number").whole(0, INT64_MAX), line.at("line").text());
  }
  return log;
}

std::vector<Judgement> judge_kernel_logs(const std::vector<std::string>& hosts, const std::vector<KernelLog>& before,
                                         const std::vector<KernelLog>& after, const std::vector<HostEvent>& events) {
  std::map<std::string, std::size_t> first_rank;  // by host
  for (std::size_t rank = 0; rank < std::min({hosts.size(), before.size(), after.size()}); ++rank) {
    first_rank.try_emplace(hosts[rank], rank);
  }
  std::vector<Judgement> all;
  std::size_t read = 0, earlier = 0, unread = 0;
  std::string why_unread;  // on the first such host: a thousand containers have the same reason
  for (const auto& [host, rank] : first_rank) {
    const auto add = [&, &host = host](Verdict verdict, const std::string& sentence) {
      Judgement& j = all.emplace_back(accept::judged(kKernelLogRule, "of " + host, verdict, sentence));
      j.place = {.host = host, .device = {}, .nic = {}, .direction = {}};
      if (verdict != Verdict::fail) return;
      for (std::size_t r = 0; r < hosts.size(); ++r) {
        if (hosts[r] == host) j.ranks.push_back(static_cast<int>(r));
      }
    };
    const std::string& unknown =
        after[rank].unknown_because.empty() ? before[rank].unknown_because : after[rank].unknown_because;
    if (!unknown.empty()) {
      if (unread++ == 0) why_unread = fmt::format("{} cannot be read: {}", host, unknown);
      continue;
    }
    ++read;
    earlier += before[rank].lines.size();
    KernelTrouble worst = KernelTrouble::none;
    std::string said;
    for (const auto& [number, line] : after[rank].lines) {
      if (number <= before[rank].last) continue;
      worst = std::max(worst, kernel_trouble(line));
      said += (said.empty() ? "" : "; ") + line + when_seen(events, host, kKernelLogRule, {line});
    }
    if (worst == KernelTrouble::none) continue;
    add(worst == KernelTrouble::fails ? Verdict::fail : Verdict::unrated,
        fmt::format("the kernel of {} wrote while it was measured: {}", host, said));
  }
  if (read > 0 && all.empty()) {
    all.push_back(accept::judged(
        kKernelLogRule, "errors of hardware", Verdict::pass,
        fmt::format("the kernel of none of {} {} wrote of one while it was measured{}", read,
                    read == 1 ? "host" : "hosts", earlier == 0 ? "" : "; there are some from before (dmesg)")));
  }
  if (unread > 0) {
    all.push_back(accept::judged(
        kKernelLogRule, "that is not read", Verdict::unrated,
        fmt::format("the kernel log of {}{}", why_unread,
                    unread == 1 ? "" : fmt::format(", and {} more {}", unread - 1, unread == 2 ? "host" : "hosts"))));
  }
  return all;
}

}  // namespace fsdpbench::app
