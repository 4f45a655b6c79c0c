#pragma once

#include <string>
#include <string_view>

namespace fsdpbench {

/// SHA-256 (FIPS 180-4) in 64 hexadecimal digits, as `sha256sum` prints it.
std::string sha256(std::string_view bytes);

}  // namespace fsdpbench
