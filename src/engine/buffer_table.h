#pragma once

#include <cstddef>
#include <vector>

#include "backend/device.h"
#include "schedule/schedule.h"

namespace fsdpbench::engine {

/// Memory behind a schedule's buffers on one rank. Persistent buffers live as long as the table.
class BufferTable {
 public:
  /// Allocates the persistent buffers, in schedule order.
  BufferTable(backend::Device& device, const schedule::Schedule& schedule);
  ~BufferTable();
  BufferTable(const BufferTable&) = delete;
  BufferTable& operator=(const BufferTable&) = delete;

  /// Starts a step; its transient buffers are not there yet.
  void begin_step(const schedule::Schedule& schedule);
  /// Gives a transient buffer of this step its memory, for ops of `lane` from now on.
  void allocate(schedule::BufferId id, Lane lane);
  /// Gives it back, once what was issued on `lane` so far is done.
  void free(schedule::BufferId id, Lane lane);

  /// Memory of the device, or of the host as the buffer says; null while a transient buffer has none.
  std::byte* at(schedule::BufferId id) const { return memory_[static_cast<std::size_t>(id)]; }
  const schedule::Buffer& info(schedule::BufferId id) const { return schedule_->buffers[static_cast<std::size_t>(id)]; }
  /// The persistent buffer of this role and unit; null if the plan has none.
  std::byte* persistent(schedule::BufferRole role, int unit) const;
  /// Its description; null likewise.
  const schedule::Buffer* persistent_info(schedule::BufferRole role, int unit) const;

 private:
  std::byte* allocate(const schedule::Buffer& buffer, Lane lane);
  /// persistent_count_ if there is none.
  std::size_t index_of_persistent(schedule::BufferRole role, int unit) const;

  backend::Device& device_;
  const schedule::Schedule* schedule_;
  std::size_t persistent_count_ = 0;
  std::vector<std::byte*> memory_;
};

}  // namespace fsdpbench::engine
