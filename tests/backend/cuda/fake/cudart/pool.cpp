#include "backend/cuda/fake/cudart/pool.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "backend/cuda/fake/cudart/order.h"
#include "backend/cuda/fake/cudart/stream.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) static_cast<void>(address)
#define ASAN_UNPOISON_MEMORY_REGION(address, size) static_cast<void>(address)
#endif

namespace {

constexpr std::int64_t kGranule = std::int64_t{2} << 20;

std::int64_t up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

CUmemPoolHandle_st::~CUmemPoolHandle_st() {
  for (const Chunk& chunk : chunks_) {
    ASAN_UNPOISON_MEMORY_REGION(chunk.memory, chunk.bytes);
    std::free(chunk.memory);
  }
}

bool CUmemPoolHandle_st::is_on(cudaMemPoolAttr attribute) const {
  const auto found = attributes.find(attribute);
  return found != attributes.end() && found->second != 0;
}

CUmemPoolHandle_st::Allowed CUmemPoolHandle_st::allowed(const Part& part, std::uint64_t stream) const {
  if (!part.free) return Allowed::no;
  if (part.stream == 0 || part.stream == stream || fake::host_knows(part.stream, part.mark)) return Allowed::yes;
  if (is_on(cudaMemPoolReuseFollowEventDependencies) && fake::stream_knows(stream, part.stream, part.mark)) {
    return Allowed::yes;
  }
  if (is_on(cudaMemPoolReuseAllowOpportunistic) && part.done->load()) return Allowed::yes;
  return is_on(cudaMemPoolReuseAllowInternalDependencies) ? Allowed::after_a_wait : Allowed::no;
}

std::byte* CUmemPoolHandle_st::carve(Chunk& chunk, std::int64_t offset, std::int64_t bytes, cudaStream_t stream) {
  const std::int64_t end = offset + bytes;
  for (auto part = chunk.parts.find(offset); part != chunk.parts.end() && part->first < end;) {
    if (part->second.done != nullptr && allowed(part->second, fake::stream_of(stream).id()) == Allowed::after_a_wait) {
      fake::run_on_stream(stream,
                          [done = part->second.done] {
                            while (!done->load()) std::this_thread::yield();
                          },
                          {.kind = fake::WorkKind::other});
    }
    const std::int64_t part_end = part->first + part->second.bytes;
    if (part_end > end) {
      Part rest = part->second;
      rest.bytes = part_end - end;
      chunk.parts.emplace(end, rest);
    }
    part = chunk.parts.erase(part);
  }
  chunk.parts[offset] = {.bytes = bytes};
  std::byte* const block = chunk.memory + offset;
  fake::run_on_stream(stream, [=] { ASAN_UNPOISON_MEMORY_REGION(block, bytes); }, {.kind = fake::WorkKind::other});
  used_high = std::max(used_high, used += bytes);
  return block;
}

std::byte* CUmemPoolHandle_st::find(std::int64_t bytes, cudaStream_t stream, bool with_waits) {
  const std::uint64_t id = fake::stream_of(stream).id();
  Chunk* best = nullptr;
  std::int64_t best_offset = 0, best_room = 0;
  for (Chunk& chunk : chunks_) {
    std::int64_t begin = 0, end = 0;  // of neighbouring parts that may be had
    const auto look = [&] {
      if (end - begin >= bytes && (best == nullptr || end - begin < best_room)) {
        best = &chunk;
        best_offset = begin;
        best_room = end - begin;
      }
    };
    for (const auto& [offset, part] : chunk.parts) {
      const Allowed here = allowed(part, id);
      if (here == Allowed::yes || (with_waits && here == Allowed::after_a_wait)) {
        if (end != offset) begin = offset;
        end = offset + part.bytes;
        look();
      }
    }
  }
  return best == nullptr ? nullptr : carve(*best, best_offset, bytes, stream);
}

std::byte* CUmemPoolHandle_st::take(std::int64_t bytes, cudaStream_t stream) {
  if (std::byte* const block = find(bytes, stream, false)) return block;
  if (std::byte* const block = find(bytes, stream, true)) return block;
  const std::int64_t size = up(bytes, kGranule);
  if (!may_grow_(device, size)) return nullptr;
  void* const memory = std::aligned_alloc(kGranule, static_cast<std::size_t>(size));
  if (memory == nullptr) return nullptr;
  ASAN_POISON_MEMORY_REGION(memory, static_cast<std::size_t>(size));
  chunks_.push_back({static_cast<std::byte*>(memory), size, {{0, {.bytes = size, .free = true}}}});
  reserved_high = std::max(reserved_high, reserved += size);
  return carve(chunks_.back(), 0, bytes, stream);
}

void CUmemPoolHandle_st::give_back(std::byte* block, cudaStream_t stream) {
  const std::uint64_t id = fake::stream_of(stream).id();
  for (Chunk& chunk : chunks_) {
    if (block < chunk.memory || block >= chunk.memory + chunk.bytes) continue;
    Part& part = chunk.parts.at(block - chunk.memory);
    part = {part.bytes, true, id, fake::mark(id), std::make_shared<std::atomic<bool>>(false)};
    used -= part.bytes;
    fake::run_on_stream(stream,
                        [block, bytes = part.bytes, done = part.done] {
                          ASAN_POISON_MEMORY_REGION(block, static_cast<std::size_t>(bytes));
                          done->store(true);
                        },
                        {.kind = fake::WorkKind::other});
    return;
  }
}

void CUmemPoolHandle_st::host_waited() {
  trim_to(static_cast<std::int64_t>(
      std::min<std::uint64_t>(attributes[cudaMemPoolAttrReleaseThreshold], std::uint64_t{1} << 62)));
}

void CUmemPoolHandle_st::trim_to(std::int64_t bytes) {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end() && reserved > bytes;) {
    const bool idle = std::ranges::all_of(chunk->parts, [](const auto& part) {
      return part.second.free && (part.second.stream == 0 || fake::host_knows(part.second.stream, part.second.mark));
    });
    if (!idle) {
      ++chunk;
      continue;
    }
    ASAN_UNPOISON_MEMORY_REGION(chunk->memory, static_cast<std::size_t>(chunk->bytes));
    std::free(chunk->memory);
    reserved -= chunk->bytes;
    chunk = chunks_.erase(chunk);
  }
}
