#include "backend/communicator.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend {

void check_root(const CollectiveCall& call, int size) {
  if (call.kind != Collective::broadcast || (call.root >= 0 && call.root < size)) return;
  throw BackendError(fmt::format("broadcast from rank {} of a group of {}", call.root, size));
}

std::int64_t ring_bytes(Collective kind, std::int64_t bytes, int size) {
  switch (kind) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all: return fsdpbench::ring_bytes(size * bytes, size);
    case Collective::all_reduce: return fsdpbench::ring_bytes(bytes, size, 2);
    case Collective::broadcast: return fsdpbench::ring_bytes(bytes, size);
    case Collective::send_recv: return size > 1 ? bytes : 0;
  }
  return 0;
}

}  // namespace fsdpbench::backend
