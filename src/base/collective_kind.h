#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_table.h"

namespace fsdpbench {

/// What the ranks of a group do together; backend/communicator.h says what each gets.
enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all, send_recv };

/// As traces and messages call it.
constexpr std::string_view to_string(CollectiveKind kind) {
  constexpr EnumNames<CollectiveKind> kNames{"all_gather", "reduce_scatter", "all_reduce",
                                             "broadcast",  "all_to_all",     "send_recv"};
  return kNames[kind];
}

}  // namespace fsdpbench
