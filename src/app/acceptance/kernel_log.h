#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accept/verdict.h"
#include "app/console/json_part.h"

namespace fsdpbench::app {

/// What a line of the kernel's log says about the hardware; the worst last.
enum class KernelTrouble : std::uint8_t {
  none,
  told,   ///< corrected errors, errors that programs cause (Xid 13, 31, 43, 45), a program killed for want of memory
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

/// The log of this host is /dev/kmsg, or the file that FSDPBENCH_KMSG names.
KernelLog kernel_log();
KernelLog kernel_log(const std::filesystem::path& kmsg);

/// Between ranks.
nlohmann::json to_json(const KernelLog& log);
KernelLog kernel_log_from_json(const JsonPart& json);

inline constexpr const char* kKernelLogRule = "kernel log";

/// `before` and `after`: by rank, or of rank 0 only; each host is judged once, by what its kernel wrote in between. Hosts
/// whose logs cannot be read are unrated, in one judgement.
std::vector<accept::Judgement> judge_kernel_logs(const std::vector<std::string>& hosts,
                                                 const std::vector<KernelLog>& before,
                                                 const std::vector<KernelLog>& after);

}  // namespace fsdpbench::app
