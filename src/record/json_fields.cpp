#include "record/json_fields.h"

#include <algorithm>
#include <cmath>

namespace fsdpbench::app {
namespace {

/// Value in one cell; empty: it is none, or has cells of its own.
std::string cell_of(const nlohmann::json& value, const Shown& as) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() && !as.unit().empty()) return as.text(value.get<double>());
  if (value.is_primitive()) return value.is_null() ? "" : json_line(value);
  std::string cell;
  for (const auto& [name, one] : value.items()) {
    if (one.is_structured()) return "";
    cell += (cell.empty() ? "" : ", ") + (value.is_object() ? name + " " : "") + cell_of(one, as);
  }
  return cell;
}

}  // namespace

Table fields_table(const ObjectFacts& facts, const std::vector<std::pair<std::string, nlohmann::json>>& objects) {
  Table table;
  table.header = {""};
  for (const auto& [name, object] : objects) table.header.push_back(name);
  if (objects.size() == 1) table.header.clear();
  for (const FieldFacts& field : facts.fields) {
    double most = 0;
    for (const auto& [name, object] : objects) {
      const auto value = object.find(field.name);
      if (value != object.end() && value->is_number()) most = std::max(most, std::abs(value->get<double>()));
    }
    std::vector<std::string> row{field.name};
    std::ranges::replace(row.front(), '_', ' ');
    for (const auto& [name, object] : objects) {
      row.push_back(cell_of(object.value(field.name, nlohmann::json()), Shown(field.unit, most)));
    }
    const bool empty = std::ranges::all_of(row.begin() + 1, row.end(), &std::string::empty);
    if (!empty) table.rows.push_back(std::move(row));
  }
  return table;
}

void check_positive(const JsonPart& number) {
  if (!(number.number() > 0)) number.refuse("a number above 0");
}

void check_not_negative(const JsonPart& number) {
  if (!(number.number() >= 0)) number.refuse("a number from 0 on");
}

void check_share(const JsonPart& number) {
  if (!(number.number() >= 0 && number.number() <= 1)) number.refuse("a share from 0 to 1");
}

}  // namespace fsdpbench::app
