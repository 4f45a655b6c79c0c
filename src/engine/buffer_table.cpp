#include "engine/buffer_table.h"

namespace fsdpbench::engine {

using schedule::Buffer;
using schedule::BufferId;

BufferTable::BufferTable(backend::Device& device, const schedule::Schedule& schedule)
    : device_(device), schedule_(&schedule) {
  for (const Buffer& buffer : schedule.buffers) {
    if (!buffer.persistent) break;  // they come first
    memory_.push_back(allocate(buffer, Lane::compute));
  }
  persistent_count_ = memory_.size();
}

BufferTable::~BufferTable() {
  for (std::size_t i = 0; i < persistent_count_; ++i) {
    try {
      device_.free(memory_[i], Lane::compute);
    } catch (...) {  // the ranks are being stopped, and the device goes with them
    }
  }
}

void BufferTable::begin_step(const schedule::Schedule& schedule) {
  schedule_ = &schedule;
  memory_.resize(persistent_count_);
  memory_.resize(schedule.buffers.size(), nullptr);
}

void BufferTable::allocate(BufferId id, Lane lane) { memory_[static_cast<std::size_t>(id)] = allocate(info(id), lane); }

std::byte* BufferTable::allocate(const Buffer& buffer, Lane lane) {
  return buffer.space == MemorySpace::host ? device_.allocate_host(buffer.bytes, buffer.category, lane)
                                           : device_.allocate(buffer.bytes, buffer.category, lane);
}

void BufferTable::free(BufferId id, Lane lane) {
  std::byte*& memory = memory_[static_cast<std::size_t>(id)];
  device_.free(memory, lane);
  memory = nullptr;
}

std::size_t BufferTable::index_of_persistent(schedule::BufferRole role, int unit) const {
  std::size_t i = 0;
  while (i < persistent_count_ && (schedule_->buffers[i].role != role || schedule_->buffers[i].unit != unit)) ++i;
  return i;
}

std::byte* BufferTable::persistent(schedule::BufferRole role, int unit) const {
  const std::size_t i = index_of_persistent(role, unit);
  return i < persistent_count_ ? memory_[i] : nullptr;
}

const Buffer* BufferTable::persistent_info(schedule::BufferRole role, int unit) const {
  const std::size_t i = index_of_persistent(role, unit);
  return i < persistent_count_ ? &schedule_->buffers[i] : nullptr;
}

}  // namespace fsdpbench::engine
