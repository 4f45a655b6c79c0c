#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accept/verdict.h"
#include "app/acceptance/link_watch.h"
#include "app/console/json_part.h"

namespace fsdpbench::app {

/// What a line of the kernel's log says about the hardware; the worst last.
enum class KernelTrouble : std::uint8_t {
  none,
  told,  ///< corrected errors, errors that programs cause (Xid 13, 31, 43, 45), a program killed for want of memory,
         ///< links of NICs that are down
  fails,  ///< Xid and SXid of a broken GPU or switch, machine checks and PCIe errors not corrected, failed reads of
          ///< disks
};
KernelTrouble kernel_trouble(std::string_view line);

/// The troubles in a host's kernel log as it is now.
struct KernelLog {
  std::string unknown_because;  ///< why it cannot be read; then there is nothing else; empty: it was read
  std::int64_t last = -1;       ///< number of its last record
  std::vector<std::pair<std::int64_t, std::string>> lines{};  ///< the latest troubles, by the number of their record
};

/// Reads a kernel's log as it grows. One thread at a time.
class KernelLogReader {
 public:
  explicit KernelLogReader(const std::filesystem::path& kmsg);
  ~KernelLogReader();
  KernelLogReader(const KernelLogReader&) = delete;
  KernelLogReader& operator=(const KernelLogReader&) = delete;
  /// The log with what is new in it.
  const KernelLog& read();

 private:
  int file_;
  std::string rest_;  // of a record that is not complete
  KernelLog log_;
};

/// The log of this host is /dev/kmsg, or the file that FSDPBENCH_KMSG names.
std::filesystem::path kmsg_file();
KernelLog kernel_log();
KernelLog kernel_log(const std::filesystem::path& kmsg);

/// Between ranks.
nlohmann::json to_json(const KernelLog& log);
KernelLog kernel_log_from_json(const JsonPart& json);

inline constexpr const char* kKernelLogRule = "kernel log";

/// `before` and `after`: by rank, or of rank 0 only; each host is judged once, by what its kernel wrote in between.
/// `events` say when a line was seen. Hosts whose logs cannot be read are unrated, in one judgement.
std::vector<accept::Judgement> judge_kernel_logs(const std::vector<std::string>& hosts,
                                                 const std::vector<KernelLog>& before,
                                                 const std::vector<KernelLog>& after,
                                                 const std::vector<HostEvent>& events = {});

}  // namespace fsdpbench::app
