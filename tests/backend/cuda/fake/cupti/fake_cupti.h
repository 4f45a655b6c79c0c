#pragma once

// A CUPTI without a GPU: the functions of cupti_generation.h over state that tests look at and drive. Records are the
// real structs. While it calls a callback it holds its lock, as the real one may: a callback that called CUPTI would
// hang.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/cupti/cupti_generation.h"
#include "backend/cuda/fake/cupti/packed_records.h"

namespace fake::cupti {

/// The functions, all there.
fsdpbench::backend::cuda::CuptiApi api();
/// As new: nothing registered, enabled, recorded or going to fail. Nothing may run.
void reset();

// Questions about the past.
/// Names of CUPTI's functions in the order of their calls; with the kind for enable and disable ("enable 10").
std::vector<std::string> calls();
int count_of(const std::string& call);

// Orders for the future.
/// Every call of `function` ("cuptiSubscribe") fails with `status` until reset().
void fail(const std::string& function, CUptiResult status);
void set_version(std::uint32_t version);
/// The next question for dropped records says so many.
void drop(std::size_t records);
/// Called at each flush before what is recorded is delivered, outside the lock.
void at_flush(std::function<void(std::uint32_t flag)> action);
/// No records of marks, as from a CUPTI that does not know them.
void ignore_marks();
/// No records of calls, as from a CUPTI that somebody else holds, or that lost its hold of the driver.
void ignore_calls();

/// The GPU's clock is so far behind the host's: what a stream without other work does begins so long before its launch.
void set_clock_behind(std::int64_t ns);

/// Whether a call would leave a record now.
bool records(CUpti_ActivityKind kind, CUpti_CallbackId id);

// Recording. Everything is kept until a flush brings it in, in buffers of the program's.
std::uint32_t new_correlation();
/// Number that the calling thread pushed last; 0: none.
std::uint64_t pushed_id();
template <typename Record>
void record(const Record& r);
void record_bytes(std::vector<std::uint8_t> bytes);
/// A kernel launched by this thread now, with records of owner (if an id is pushed), call and kernel. Returns its
/// correlation.
std::uint32_t launch_kernel(const WorkFacts& facts);
/// A launch by cudaLaunchKernelExC, which calls the driver's cuLaunchKernelEx: both calls are recorded, under one
/// number as CUPTI documents it or under one each, and the kernel is the inner one's.
void launch_kernel_by_driver(const WorkFacts& facts, bool one_number);
/// Records that are not yet delivered come in another order.
void shuffle(unsigned seed);
/// It never comes.
void discard();
/// It comes with the next flush but one.
void hold();

// Buffers by hand, as CUPTI's threads would do it.
struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
};
Buffer request();
void complete(Buffer buffer, std::size_t valid);
/// Requests buffers, fills them with these records and completes them.
void deliver(const std::vector<std::vector<std::uint8_t>>& records);

template <typename Record>
void record(const Record& r) {
  record_bytes(bytes_of(r));
}

}  // namespace fake::cupti
