#pragma once

#include <cstdint>

#include "backend/communicator.h"

namespace fsdpbench::backend {

/// Bytes each of `size` ranks sends in a ring for one collective whose count is `bytes` long, rounded down where the
/// message does not split evenly.
constexpr std::int64_t ring_bytes(Collective kind, std::int64_t bytes, int size) {
  switch (kind) {
    case Collective::all_gather:
    case Collective::reduce_scatter: return (size - 1) * bytes;
    case Collective::all_reduce: return 2 * (size - 1) * bytes / size;
    case Collective::broadcast: return (size - 1) * bytes / size;
  }
  return 0;
}

}  // namespace fsdpbench::backend
