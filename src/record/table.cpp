#include "record/table.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/read_input.h"

namespace fsdpbench::app {
namespace {

constexpr std::string_view kGap = "  ";

bool like_a_number(std::string_view cell) {
  if (cell == "-" || cell == "–") return true;  // not measured
  if (!cell.empty() && (cell.front() == '-' || cell.front() == '+')) cell.remove_prefix(1);
  return !cell.empty() && std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
}

struct Column {
  std::size_t width = 0;
  bool right = false;
};

std::vector<Column> columns_of(const Table& table) {
  std::vector<Column> columns(table.header.size());
  for (const auto& row : table.rows) columns.resize(std::max(columns.size(), row.size()));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (c < table.header.size()) columns[c].width = width_of(table.header[c]);
    bool any = false;
    bool numbers = true;
    for (const auto& row : table.rows) {
      if (c >= row.size() || row[c].empty()) continue;
      any = true;
      numbers = numbers && like_a_number(row[c]);
      columns[c].width = std::max(columns[c].width, width_of(row[c]));
    }
    columns[c].right = any && numbers;
  }
  return columns;
}

std::string format_row(const std::vector<std::string>& cells, const std::vector<Column>& columns) {
  std::string line;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (c > 0) line += kGap;
    const std::string padding(columns[c].width - width_of(cells[c]), ' ');
    line += columns[c].right ? padding + cells[c] : cells[c] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string format_table(const Table& raw) {
  Table table = raw;  // titles, headers and cells may hold what users wrote
  table.title = clean_text(table.title, kMostOfAMessage);
  for (std::string& cell : table.header) cell = clean_text(cell, kMostOfACell);
  for (auto& row : table.rows) {
    for (std::string& cell : row) cell = clean_text(cell, kMostOfACell);
  }
  const std::vector<Column> columns = columns_of(table);
  std::string out;
  if (!table.title.empty()) out += table.title + '\n';
  if (!table.header.empty()) {
    out += format_row(table.header, columns);
    std::vector<std::string> rule;
    for (const Column& column : columns) rule.emplace_back(column.width, '-');
    out += format_row(rule, columns);
  }
  for (const auto& row : table.rows) out += format_row(row, columns);
  return out;
}

std::string text_line(std::string_view text) { return clean_text(text, kMostOfAMessage) + '\n'; }

}  // namespace fsdpbench::app
