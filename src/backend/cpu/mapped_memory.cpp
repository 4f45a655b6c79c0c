#include "backend/cpu/mapped_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Not canonical on any 64-bit CPU with up to 57 address bits: no mapping can be there, a touch always traps.
constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 60;

std::byte* map(std::int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw ResourceError(
        fmt::format("the system grants no address range of {}: {}", format_bytes(bytes), std::strerror(errno)));
  }
  madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // advice: refusal changes nothing but speed
  return static_cast<std::byte*>(memory);
}

}  // namespace

MappedMemory::MappedMemory(std::int64_t bytes, Kind kind)
    : data_(kind == Kind::touchable ? map(bytes) : reinterpret_cast<std::byte*>(kNowhere)),
      bytes_(bytes),
      kind_(kind) {}

MappedMemory::~MappedMemory() {
  if (kind_ == Kind::touchable) munmap(data_, static_cast<std::size_t>(bytes_));
}

}  // namespace fsdpbench::backend::cpu
