// FORMAT.md and the code say the same.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <regex>
#include <set>

#include "trace/fields.h"
#include "trace/findings.h"
#include "trace/support.h"

namespace fsdpbench::trace {
namespace {

/// Cells of a table's row without blanks and backquotes; empty for other lines.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  if (!line.starts_with("| `")) return cells;
  std::istringstream row(line.substr(1));
  for (std::string cell; std::getline(row, cell, '|');) {
    const auto first = cell.find_first_not_of(" `");
    const auto last = cell.find_last_not_of(" `");
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

/// Rows of the tables in the chapter `heading`.
std::vector<std::vector<std::string>> rows_of(const std::string& heading) {
  std::ifstream file(std::string(FSDPBENCH_SOURCE) + "/src/trace/FORMAT.md");
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## " + heading;
    if (auto cells = cells_of(line); inside && !cells.empty()) rows.push_back(cells);
  }
  return rows;
}

TEST(Format, ListsEveryField) {
  std::multiset<std::string> documented, declared;
  for (const auto& cells : rows_of("Fields")) {
    ASSERT_EQ(cells.size(), 6U) << cells.front();
    documented.insert(cells[0] + "|" + cells[1] + "|" + cells[2] + "|" + cells[3] + "|" + cells[4]);
    EXPECT_NE(cells[5], "");
  }
  const std::map<std::string, std::string> places{{"distributed", "distributedInfo"}, {"group", "pg_config"}};
  const std::regex declaration(
      R"re(Field k\w+\{"([^"]+)", Place::(\w+), FieldType::(\w+), "([^"]*)", Files::(\w+)\};)re");
  std::ifstream file(std::string(FSDPBENCH_SOURCE) + "/src/trace/fields.h");
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (!line.starts_with("inline constexpr Field ")) continue;
    ASSERT_TRUE(std::regex_search(line, found, declaration)) << line;
    const auto place = places.find(found[2]);
    declared.insert(fmt::format("{}|{}|{}|{}|{}", found[1].str(),
                                place == places.end() ? found[2].str() : place->second, found[3].str(), found[4].str(),
                                found[5].str()));
  }
  EXPECT_GT(declared.size(), 80U);
  EXPECT_EQ(documented, declared);
}

TEST(Format, ListsEveryRule) {
  std::vector<std::string> documented, declared;
  for (const auto& cells : rows_of("Rules")) documented.push_back(cells[0]);
  for (const Rule rule : kEnumerators<Rule>) declared.emplace_back(to_string(rule));
  EXPECT_EQ(documented, declared);
}

TEST(Format, NamesTheVersion) {
  std::ifstream file(std::string(FSDPBENCH_SOURCE) + "/src/trace/FORMAT.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), testing::HasSubstr("Schema version " + std::to_string(kSchemaVersion) + " "));
}

}  // namespace
}  // namespace fsdpbench::trace
