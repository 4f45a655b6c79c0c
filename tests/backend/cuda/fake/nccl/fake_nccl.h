#pragma once

// A fake NCCL for ranks that are threads of one process, on the streams of the fake CUDA runtime. It has the functions
// that the CUDA backend uses, with nccl.h's own prototypes. Reductions add in rank order in fp32 and round once, so
// that results can be compared bit by bit. This is what tests may ask of it beside NCCL's functions; all thread-safe.

#include <nccl.h>

#include <cstdint>
#include <string>

namespace fake::nccl {

/// Counts of calls since reset().
struct Counts {
  int made = 0;  ///< communicators, by init and split
  int destroyed = 0;
  int aborted = 0;
  int registrations = 0;
  int deregistrations = 0;
  int windows = 0;
  int closed_windows = 0;
  int operators = 0;
  int freed_operators = 0;
};
Counts counts();
/// Everything that real NCCL forbids and was done since reset(), a line each: a call while the one before was in
/// progress, a communicator used after its end, a destroyed one that was not finalized …
std::string misuses();
/// The configuration of the communicator made last.
ncclConfig_t last_config();

/// Answer of ncclGetVersion; the header's version after reset().
void set_version(int version);
/// How often ncclCommGetAsyncError says ncclInProgress after a call that takes time; 3 after reset().
void set_polls(int polls);
/// Every window registration is accepted and gives no window, as where GPUs share no memory.
void refuse_windows();

/// The world's initialization fails on this rank, with these last words.
void fail_init(int rank, ncclResult_t error, const std::string& words);
/// Rank's op `number` (from 1) of the world fails while it runs.
void fail_op(int rank, std::int64_t number, ncclResult_t error, const std::string& words);
/// Rank's op `number` of the world never begins.
void hang_op(int rank, std::int64_t number);
/// ncclCommAbort does not return before release_abort().
void hang_abort();
void release_abort();

/// Forgets all faults and communicators. Nothing may run.
void reset();

}  // namespace fake::nccl
