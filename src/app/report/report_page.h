#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// The Python that draws pages: what FSDPBENCH_PYTHON names, else the virtual environment that `make analysis` makes,
/// else the one on PATH. Throws Error with what to do if it does not have the package fsdpbench.
std::string find_page_python();

/// The command line that draws the page of result folders. `options`: of `python -I -m fsdpbench.analysis report`.
std::vector<std::string> page_command(const std::string& python, const std::vector<std::string>& options,
                                      const std::vector<std::string>& folders);

/// Draws the page of one result folder in a process of its own, which says on standard error what is wrong with it.
/// Returns the page's path. Throws Error if there is no such Python, or no page came of it.
std::filesystem::path draw_page(const std::filesystem::path& folder);

}  // namespace fsdpbench::app
