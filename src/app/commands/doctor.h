#pragma once

namespace fsdpbench::app {

/// The command line of `fsdpbench doctor`.
struct DoctorArguments {
  bool json = false;  ///< machine-readable
};

/// Prints what this machine can do. Returns the process exit code.
int doctor_command(const DoctorArguments& arguments);

}  // namespace fsdpbench::app
