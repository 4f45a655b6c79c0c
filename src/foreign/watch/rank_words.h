#pragma once

#include <string>
#include <vector>

namespace fsdpbench::watch {

/// "rank 3", "ranks 0 to 2, 5"; `ranks` ascend.
std::string ranks_text(const std::vector<int>& ranks);
/// With a capital letter at its beginning.
std::string capital(std::string text);

}  // namespace fsdpbench::watch
