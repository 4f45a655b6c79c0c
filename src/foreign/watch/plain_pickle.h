#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fsdpbench::watch {

/// A pickle of plain data (dictionaries with text as keys, lists, tuples, text, numbers, true, false, None), as
/// PyTorch's C++ pickler writes its flight recorder: protocol 2. Whatever would make or call an object (GLOBAL, REDUCE,
/// BUILD …) is refused, so that a file from anywhere can be read: nothing of it runs. None with `why` if it is no such
/// pickle.
std::optional<nlohmann::json> read_plain_pickle(std::string_view bytes, std::string& why);

}  // namespace fsdpbench::watch
