#include "hardware/gpu_health.h"

#include <fmt/format.h>

namespace fsdpbench {

std::string_view xid_meaning(std::uint64_t xid) {
  switch (xid) {
    case 13: return "graphics engine exception";
    case 31: return "memory page fault";
    case 43: return "GPU stopped processing";
    case 45: return "work removed after another error";
    case 48: return "uncorrected memory error";
    case 63: return "row remapping recorded";
    case 64: return "row remapping failed";
    case 74: return "NVLink error";
    case 79: return "the GPU has fallen off the bus";
    case 92: return "many corrected memory errors";
    case 94: return "contained memory error";
    case 95: return "uncontained memory error";
    case 119: return "no answer from the GPU's system processor";
    case 149: return "NVLink error of the network";
    default: return "";
  }
}

std::string xid_text(std::uint64_t xid, std::int64_t times) {
  const std::string_view meaning = xid_meaning(xid);
  return fmt::format("Xid {}{}{}", xid, meaning.empty() ? "" : fmt::format(" ({})", meaning),
                     times > 1 ? fmt::format(" {} times", times) : "");
}

}  // namespace fsdpbench
