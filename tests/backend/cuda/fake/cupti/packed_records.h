#pragma once

// Records as CUPTI writes them, made by hand.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/cupti/cupti_generation.h"

namespace fake {

/// Facts of a piece of work and of the call that made it. Times in nanoseconds.
struct WorkFacts {
  const char* name = "kernel";  ///< must stay valid
  std::uint32_t device = 0;
  std::uint32_t stream = 7;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;
};

/// One record's bytes.
template <typename Record>
std::vector<std::uint8_t> bytes_of(const Record& record) {
  static_assert(sizeof(Record) % 8 == 0);
  std::vector<std::uint8_t> bytes(sizeof record);
  std::memcpy(bytes.data(), &record, sizeof record);
  return bytes;
}

namespace cuda = fsdpbench::backend::cuda;

inline cuda::KernelRecord kernel_record(std::uint32_t correlation, const WorkFacts& facts) {
  cuda::KernelRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.correlationId = correlation;
  record.name = facts.name;
  record.deviceId = facts.device;
  record.streamId = facts.stream;
  record.start = facts.begin;
  record.end = facts.end;
  return record;
}

inline cuda::CopyRecord copy_record(std::uint32_t correlation, const WorkFacts& facts) {
  cuda::CopyRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.correlationId = correlation;
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  record.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  record.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.deviceId = facts.device;
  record.streamId = facts.stream;
  record.start = facts.begin;
  record.end = facts.end;
  record.bytes = facts.bytes;
  return record;
}

inline cuda::FillRecord fill_record(std::uint32_t correlation, const WorkFacts& facts) {
  cuda::FillRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.correlationId = correlation;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.deviceId = facts.device;
  record.streamId = facts.stream;
  record.start = facts.begin;
  record.end = facts.end;
  record.bytes = facts.bytes;
  return record;
}

inline cuda::CallRecord call_record(std::uint32_t correlation, CUpti_ActivityKind kind, CUpti_CallbackId id,
                                    std::uint32_t thread, std::uint64_t begin, std::uint64_t end) {
  cuda::CallRecord record{};
  record.kind = kind;
  record.cbid = id;
  record.correlationId = correlation;
  record.threadId = thread;
  record.start = begin;
  record.end = end;
  return record;
}

inline cuda::OwnerRecord owner_record(std::uint32_t correlation, std::uint64_t id) {
  cuda::OwnerRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  record.externalId = id;
  record.correlationId = correlation;
  return record;
}

}  // namespace fake
