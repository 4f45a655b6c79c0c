#pragma once

namespace fake {

/// The calling thread's GPU; new threads begin with 0.
int current_device();
/// FSDPBENCH_FAKE_GPUS; 8 if it is not set. 0: no GPU; -1: no driver.
int device_count();
/// The caller has done what needs the context.
void make_context();
void forget_context();

}  // namespace fake
