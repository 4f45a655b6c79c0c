#pragma once

#include <cstdint>
#include <string>

#include "base/lane.h"

namespace fsdpbench::trace {

/// Payload of a range (FORMAT.md): what it says beside its name.
struct NvtxPayload {
  std::int64_t unit = -1;  ///< -1: none
  std::int64_t step = 0;
  std::int64_t bytes = 0;
};

/// The layout of the payload as registered with the tool, and its category for work on the host.
inline constexpr std::uint64_t kNvtxPayloadSchema = 0x66736470;
inline constexpr std::uint32_t kNvtxHostCategory = 1;  ///< lanes: 2 and up, in the order of kLanes
inline constexpr std::uint32_t nvtx_category(Lane lane) {
  return kNvtxHostCategory + 1 + static_cast<std::uint32_t>(index_of(lane));
}

/// True if a tool listens (NVTX_INJECTION64_PATH, Nsight Systems). The first call loads it; later ones cost a load.
/// Without a tool everything below does nothing.
bool nvtx_listens();

/// For people: whether a tool listens now, or why none can (no_nvtx.cpp).
std::string nvtx_note();

/// A name that the tool knows already: a range then costs no text. Made once, e.g. one for each op of a schedule.
class NvtxName {
 public:
  NvtxName() = default;
  /// Registers it with the tool that listens, if one does.
  explicit NvtxName(const std::string& name);

 private:
  friend void nvtx_push(const NvtxName&, std::uint32_t, const NvtxPayload&);
  void* handle_ = nullptr;  // the tool's; null: nobody listens
};

/// Begins and ends a range in the domain `fsdpbench` on this thread; ranges of one thread nest.
void nvtx_push(const NvtxName& name, std::uint32_t category, const NvtxPayload& payload);
void nvtx_pop();

}  // namespace fsdpbench::trace
