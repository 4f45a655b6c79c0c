#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fsdpbench {

/// FNV-1a, 64 bits: the same number for the same bytes on every machine and in every build, so files may hold it.
std::uint64_t stable_hash(std::string_view text);

/// 16 hexadecimal digits that differ if any key or value of `document` does, but for its own key "digest" at the top,
/// where a document keeps what this returns. It is of values, not of text: a file that was only indented otherwise
/// keeps its digest. It shows damage and changes by hand; it is no signature.
std::string json_digest(const nlohmann::json& document);

}  // namespace fsdpbench
