#pragma once

#include <cstdint>

#include "backend/communicator.h"
#include "base/ring.h"

namespace fsdpbench::backend {

/// Bytes each of `size` ranks sends in a ring for one collective whose count is `bytes` long, rounded down where the
/// message does not split evenly.
constexpr std::int64_t ring_bytes(Collective kind, std::int64_t bytes, int size) {
  switch (kind) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all: return fsdpbench::ring_bytes(size * bytes, size);
    case Collective::all_reduce: return fsdpbench::ring_bytes(bytes, size, 2);
    case Collective::broadcast: return fsdpbench::ring_bytes(bytes, size);
  }
  return 0;
}

}  // namespace fsdpbench::backend
