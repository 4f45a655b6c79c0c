#pragma once

#include <filesystem>
#include <string>

namespace fsdpbench::app {

/// Whole or not at all: written beside its place, then renamed. Throws OutputError.
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace fsdpbench::app
