#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace fsdpbench::backend::cuda {

// NVIDIA's record structs have a generation number that changes with the toolkit. They are named here and nowhere
// else; the asserts say which header these belong to and catch a layout that moved.
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
using FillRecord = CUpti_ActivityMemset4;
using CallRecord = CUpti_ActivityAPI;
using OwnerRecord = CUpti_ActivityExternalCorrelation;

/// 1300 for every 13.0: from CUDA 13 on, CUPTI's version is major, minor and patch, two digits each.
inline constexpr std::uint32_t kCuptiGeneration = CUPTI_API_VERSION / 100;

static_assert(kCuptiGeneration == 1300,
              "The structs above are those of CUPTI 13.0: look their successors up in this toolkit's cupti_activity.h");
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, correlationId) == 92 &&
              offsetof(KernelRecord, name) == 104 && sizeof(KernelRecord) % 8 == 0);
static_assert(offsetof(CopyRecord, bytes) == 8 && offsetof(CopyRecord, correlationId) == 44 &&
              sizeof(CopyRecord) % 8 == 0);
static_assert(offsetof(FillRecord, bytes) == 8 && offsetof(FillRecord, correlationId) == 44 &&
              sizeof(FillRecord) % 8 == 0);
static_assert(sizeof(CallRecord) == 40 && sizeof(OwnerRecord) == 24);

}  // namespace fsdpbench::backend::cuda
