#pragma once

#include <filesystem>
#include <string>

namespace fsdpbench::app {

/// Makes the folder that a run writes into, parents included: `out`, or runs/<profile stem>-<date-time> if `out` is
/// empty. Proves before the run that files can be written there. Throws OutputError.
std::filesystem::path make_result_folder(const std::string& profile, const std::string& out);

}  // namespace fsdpbench::app
