#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// The Python that draws pages: what FSDPBENCH_PYTHON names, else the virtual environment that `make analysis` makes,
/// else the one on PATH. Throws Error with what to do if it does not have the package fsdpbench.
std::string find_page_python();

/// Turns this process into `python -I -m fsdpbench.analysis COMMAND OPTIONS -- PATHS`, which has the handlers of
/// signals that end with our exit codes; until it has them, signals wait. Throws Error if there is no such Python, or
/// it cannot start.
[[noreturn]] void become_page_program(const std::string& command, const std::vector<std::string>& options,
                                      const std::vector<std::string>& paths);

/// Output of `python -I -m fsdpbench.analysis COMMAND OPTIONS`, whatever it ends with; what is there after
/// `patience_s`, when it is ended. Throws Error if there is no such Python.
std::string page_program_output(const std::string& command, const std::vector<std::string>& options, double patience_s);

/// Draws the page of one result folder in a process of its own, which says on standard error what is wrong with it.
/// Returns the page's path. Throws Error if there is no such Python, or no page came of it.
std::filesystem::path draw_page(const std::filesystem::path& folder);

}  // namespace fsdpbench::app
