#include "accept/collectives/beside_file.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "accept/collectives/beside.h"
#include "accept/collectives/collective_row.h"
#include "base/error.h"
#include "base/read_input.h"
#include "record/console.h"
#include "record/json_part.h"
#include "record/json_text.h"
#include "runs/result_fields.h"
#include "runs/result_schema.h"

namespace fsdpbench::app {
namespace {

constexpr const char* kExpectedBeside = "expected the file of `fsdpbench collectives --beside -J FILE`";

BesideRow::Times times_of(const JsonPart& part) {
  BesideRow::Times times;
  for (std::size_t k = 0; k < kNeighbours; ++k) {
    const std::string_view name = to_string(static_cast<Neighbour>(k));
    if (part.has(name)) times[k] = part.at(name).number();
  }
  return times;
}

BesideRow beside_row_from(const JsonPart& part) {
  BesideRow row;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  row.size = part.at("size").whole(1, kMost);
  const std::vector<JsonPart> shape = part.at("shape").list();
  if (shape.size() != 3) part.at("shape").refuse("m, n and k");
  row.matrix = {shape[0].whole(1, kMost), shape[1].whole(1, kMost), shape[2].whole(1, kMost)};
  const std::string type = part.text("type", type_name(DType::f32));
  row.dtype = type == type_name(DType::bf16) ? DType::bf16 : DType::f32;
  if (type != type_name(row.dtype)) part.at("type").refuse("\"float\" or \"bfloat16\"");
  if (part.has("max_ctas")) row.max_ctas = static_cast<int>(part.at("max_ctas").whole(0, 1'000'000));
  row.alone_us = times_of(part.at("alone_us"));
  row.together_us = times_of(part.at("together_us"));
  for (std::size_t who = 0; who < kNeighbours; ++who) {
    const std::string_view name = to_string(static_cast<Neighbour>(who));
    if (part.at("beside_us").has(name)) row.beside_us[who] = times_of(part.at("beside_us").at(name));
  }
  return row;
}

std::vector<config::CalibrationSlowdown> slowdowns_of(const std::vector<BesideRow>& rows) {
  constexpr auto kProduct = Neighbour::matrix_product;
  std::map<std::tuple<DType, std::string, std::string>, std::vector<config::CalibrationSlowdown::Cell>> cells;
  for (const BesideRow& row : rows) {
    const auto add = [&](Neighbour of, std::string_view beside, std::optional<double> times) {
      if (!times) return;
      cells[{row.dtype, std::string(to_string(of)), std::string(beside)}].push_back(
          {row.matrix.m, row.matrix.n, row.matrix.k, row.size, row.max_ctas, *times});
    };
    for (const Neighbour collective : {Neighbour::all_gather, Neighbour::reduce_scatter}) {
      add(kProduct, to_string(collective), row.slowdown(kProduct, collective));
      add(collective, to_string(kProduct), row.slowdown(collective, kProduct));
    }
    add(kProduct, "both", row.slowdown_together(kProduct));
  }
  std::vector<config::CalibrationSlowdown> slowdowns;
  for (auto& [key, measured] : cells) {
    const auto& [dtype, of, beside] = key;
    slowdowns.push_back({of, beside, dtype, std::move(measured)});
  }
  return slowdowns;
}

}  // namespace

BesideFile read_beside(const std::string& path) {
  const nlohmann::json content = parse_json(read_input(path, kMostOfAResult, kExpectedBeside));
  if (content.is_discarded())
    throw ConfigError(fmt::format("{}: is not JSON, or was cut off; {}.", path, kExpectedBeside));
  try {
    const JsonPart json(content);
    if (json.text("kind", "") != "collectives" || !json.has("beside"))
      json.refuse("collectives measured with --beside");
    check_result(ResultKind::collectives, content, nullptr);
    BesideFile read;
    read.world = fields<World>().read(json.at("world"));
    std::vector<BesideRow> rows;
    for (const JsonPart& row : json.at("beside").list()) rows.push_back(beside_row_from(row));
    read.slowdowns = slowdowns_of(rows);
    if (read.slowdowns.empty()) json.at("beside").refuse("products that ran beside collectives; raise -n");
    return read;
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}; {}.", path, error.what(), kExpectedBeside));
  }
}

}  // namespace fsdpbench::app
