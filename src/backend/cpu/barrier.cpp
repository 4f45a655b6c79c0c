#include "backend/cpu/barrier.h"

#include "base/error.h"

namespace fsdpbench::backend::cpu {

void Barrier::wait_for_release(std::uint32_t phase) {
  constexpr int kYields = 64;
  released_.wait([&] { return phase_.load() != phase || ended_.load(); }, kYields);
  if (phase_.load() == phase) {
    throw BackendError("a rank of the group has ended without calling this collective or barrier");
  }
}

}  // namespace fsdpbench::backend::cpu
