#pragma once

namespace fsdpbench::config {

/// Root of the source tree this program was built from; it may be gone by now.
extern const char* const kSourceFolder;

}  // namespace fsdpbench::config
