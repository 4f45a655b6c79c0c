#pragma once

#include <string>

namespace fsdpbench::backend::cpu {

/// Priority of a lane's thread in the operating system.
enum class Urgency {
  normal,
  prompt,  ///< it mostly sleeps until deadlines: SCHED_FIFO where permitted, else short time slices
};

/// Prepares the calling thread to be a lane: name for debuggers (15 characters shown), 1 ns timer slack, one OpenMP
/// thread, urgency. What the system refuses is left as it is.
void setup_lane_thread(const std::string& name, Urgency urgency);

/// Lets other prompt lanes whose deadline has come run first: with more lanes than cores the last one would otherwise
/// be late by all that the others do next. Does nothing without SCHED_FIFO, where the core might be gone for
/// milliseconds.
void yield_to_prompt_lanes();

/// A sentence on what `prompt` means on this machine, for this user.
std::string describe_prompt_scheduling();

}  // namespace fsdpbench::backend::cpu
