#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::app {

/// Columns that a text takes on a terminal: its characters, not its bytes.
std::size_t width_of(std::string_view text);

/// Text in columns. A column whose cells all begin like numbers is flushed right, so that digits line up; put the
/// unit into a column of its own.
struct Table {
  std::string title;                           ///< a line above; empty: none
  std::vector<std::string> header;             ///< empty: no header line
  std::vector<std::vector<std::string>> rows;  ///< a row with a single empty cell is a blank line
};

/// Ends in a newline. UTF-8 characters count as one column each.
std::string format_table(const Table& table);

/// A sentence beside a table, on one line whatever is in it: text from outside makes no lines of its own.
std::string text_line(std::string_view text);

}  // namespace fsdpbench::app
