#pragma once

// Runs kernels that the host's compiler has compiled. The threads of a block run one after another on the calling
// thread until one waits for others; then it becomes a fiber of its own, and the next thread starts. So kernels whose
// threads never wait cost a loop. Odd blocks run their threads backwards: a missing barrier shows.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace fake {

// Variables that CUDA calls by these names, of the thread that runs.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local uint3 blockDim;
extern constinit thread_local uint3 gridDim;

/// Ends the program with a sentence if no GPU would take this launch of kernel `name`.
void check_launch(const char* name, dim3 grid, dim3 block, std::size_t parameter_bytes);

/// Ends the program: kernel `name` was given memory that its GPU does not reach.
[[noreturn]] void refuse_pointer(const char* name);

/// Calls `thread` for each thread of each block, blocks in order. Ends the program with a sentence if threads wait for
/// others that never come. `name` is the kernel's.
void run_grid(const char* name, dim3 grid, dim3 block, const std::function<void()>& thread);

/// Place of the running thread in its warp.
int lane();
/// Returns when all threads of the block, or of the warp, that have not ended are there. All must come to the same
/// kind.
void sync_block();
void sync_warp();
/// Where the lanes of the running thread's warp leave values for each other: 16 bytes a lane, valid until the second
/// sync_warp from here. To be asked for once before each sync_warp.
std::byte* warp_slots();

}  // namespace fake
