#include "app/parameters_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.h"
#include "plan/alike_units.h"
#include "plan/communication.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

using plan::Parallelism;

/// What one device keeps from forward to backward for one microbatch of its own.
double activations(const engine::Setup& setup) {
  double kept = 0, largest = 0;
  for (const plan::ModuleSizes& module : setup.sizes) {
    kept += static_cast<double>(module.output_bytes);
    const auto saved = static_cast<double>(module.saved_bytes);
    const bool recomputed = setup.config.fsdp.activation_checkpointing && module.recompute_flops > 0;
    if (recomputed) largest = std::max(largest, saved);
    kept += recomputed ? 0 : saved;
  }
  return kept + largest;
}

std::vector<Parallelism> rows_of(const engine::Setup& setup) {
  return plan::compare_parallelism(setup.plan, setup.config, activations(setup));
}

}  // namespace

std::string parallelism_text(const engine::Setup& setup) {
  const std::vector<Parallelism> rows = rows_of(setup);
  Table table;
  table.title = fmt::format("{} ranks, one global batch; a device, sent a device and step; 1 GB is 1e9 bytes",
                            setup.plan.mesh.ranks());
  table.header = {"", "parameters", "gradients", "optimizer", "in flight", "activations", "memory", "sent", "bubble %"};
  std::string notes;
  const auto mb = [](double bytes) { return shown(bytes / 1e3, "KB"); };
  for (const Parallelism& p : rows) {
    table.rows.push_back({p.name, mb(p.parameters), mb(p.gradients), mb(p.optimizer), mb(p.in_flight),
                          mb(p.activations), mb(p.memory()), mb(p.wire), fmt::format("{:.1f}", 100 * p.bubble)});
    if (!p.needs.empty())
      notes += fmt::format("{}: this model needs {}; the row is arithmetic only\n", p.name, p.needs);
  }
  std::string text = format_table(table) + notes;
  text +=
      "Closed forms; docs/explain.md has each with its source. Bytes are not time: tensor parallelism sends its bytes\n"
      "between the layers, where nothing hides them; gathers and reductions hide behind computation.\n";
  return text;
}

nlohmann::json parallelism_json(const engine::Setup& setup) {
  nlohmann::json j{{"schema_version", 1},
                   {"ranks", setup.plan.mesh.ranks()},
                   {"activation_bytes_per_microbatch", activations(setup)},
                   {"parallelism", nlohmann::json::array()}};
  for (const Parallelism& p : rows_of(setup)) {
    nlohmann::json row{{"name", p.name},
                       {"memory",
                        {{"parameters", p.parameters},
                         {"gradients", p.gradients},
                         {"optimizer", p.optimizer},
                         {"in_flight", p.in_flight},
                         {"activations", p.activations},
                         {"total", p.memory()}}},
                       {"wire_bytes", p.wire},
                       {"bubble", p.bubble},
                       {"source", p.source}};
    if (!p.needs.empty()) row["needs"] = p.needs;
    j["parallelism"].push_back(std::move(row));
  }
  return j;
}
namespace {

using nlohmann::json;
using plan::ParameterPlacement;
using plan::ParameterShape;
using plan::Plan;
using plan::ShardLayout;
using plan::ShardPiece;

constexpr std::int64_t kMasterBytes = 4;
constexpr int kMostShardsInPictures = 8;

/// Shards [first, last] that hold equally much of a parameter, one after the other.
struct Holders {
  int first = 0;
  int last = 0;
  std::int64_t begin = 0;  ///< elements of the parameter, all holders together
  std::int64_t end = 0;

  std::int64_t each() const { return (end - begin) / (last - first + 1); }
  bool operator==(const Holders&) const = default;
};

/// By parameter, what each shard holds of it, in the order of shards; shards without a piece are left out.
std::map<int, std::vector<std::pair<int, ShardPiece>>> pieces_by_parameter(const ShardLayout& layout) {
  std::map<int, std::vector<std::pair<int, ShardPiece>>> result;
  for (int shard = 0; shard < layout.shards; ++shard) {
    for (const ShardPiece& piece : layout.pieces(shard)) result[piece.parameter].emplace_back(shard, piece);
  }
  return result;
}

std::vector<Holders> holders(const std::vector<std::pair<int, ShardPiece>>& pieces, bool fold) {
  std::vector<Holders> result;
  for (const auto& [shard, piece] : pieces) {
    const std::int64_t end = piece.parameter_offset + piece.count;
    if (fold && !result.empty() && result.back().each() == piece.count) {
      result.back().last = shard;
      result.back().end = end;
    } else {
      result.push_back({shard, shard, piece.parameter_offset, end});
    }
  }
  return result;
}

/// The group whose ranks hold the shards of a unit, in order; where experts are split, those that have the first ones.
plan::Group holders_of(const plan::Unit& unit) {
  return unit.members.experts_of >= 0 ? plan::Group::expert_shard : plan::Group::shard;
}

/// Of the first part of the layers, the first replica's ranks hold the shards in order; equal ones lie along the axis
/// of replicas.
std::vector<int> ranks_of(const Plan& plan, plan::Group holders, int shard) {
  return plan.groups.members(plan::Group::replicate, plan.groups.members(holders, 0)[shard]).ranks();
}

const ParameterShape& shape_of(const Plan& plan, const ParameterPlacement& p) {
  return plan.shapes.parameters[p.parameter];
}

/// Which dimension of a parameter its shards split: of experts over more ranks than there are experts the second one
/// (plan.cpp).
int split_dimension(const Plan& plan, const ParameterShape& shape) {
  const bool apart = shape.of_experts && plan.mesh.expert > 1;
  return apart && plan.mesh.shard > shape.shape.front() * shape.parts ? 1 : 0;
}

/// A piece as runs of consecutive elements: one, or one an expert where the second dimension is split. What
/// ShardLayout::pieces() says of such a piece counts its rows as if they were consecutive.
std::vector<ShardPiece> runs_of(const ParameterPlacement& p, const ParameterShape& shape, const ShardPiece& piece,
                                int dimension) {
  if (dimension == 0) return {piece};
  const std::int64_t experts = shape.shape.front(), row = p.row_numel / experts;
  const std::int64_t first = piece.parameter_offset / p.row_numel, rows = piece.count / p.row_numel;
  std::vector<ShardPiece> runs;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    runs.push_back({.parameter = piece.parameter,
                    .parameter_offset = (expert * p.rows + first) * row,
                    .shard_offset = piece.shard_offset + expert * p.chunk_rows * row,
                    .count = rows * row});
  }
  return runs;
}

std::string shape_text(const ParameterShape& shape) { return fmt::format("[{}]", fmt::join(shape.shape, ", ")); }

std::int64_t padding_numel(const ShardLayout& layout, const ParameterPlacement& p) {
  return layout.layout == config::Layout::flat ? 0 : p.chunk_numel() * layout.shards - p.numel;
}

std::string range(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

/// "0-31" of rows or elements, whichever the layout splits.
std::string extent(const ShardLayout& layout, const ParameterPlacement& p, std::int64_t begin, std::int64_t end) {
  const std::int64_t unit = layout.layout == config::Layout::flat ? 1 : p.row_numel;
  return range(begin / unit, end / unit - 1);
}

/// A box a holder, as wide as what it holds; empty if the labels do not fit.
std::string picture(const Plan& plan, const plan::Unit& unit, const ParameterPlacement& p,
                    const std::vector<Holders>& all) {
  const ShardLayout& layout = unit.layout;
  constexpr std::int64_t kWidth = 64;
  constexpr std::size_t kMost = 96;
  std::string top = "  ┌", ranks = "  │", extents = "  │", bottom = "  └";
  std::size_t width = 0;
  for (const Holders& h : all) {
    const std::string label = fmt::format("{}", fmt::join(ranks_of(plan, holders_of(unit), h.first), ","));
    const std::string text = extent(layout, p, h.begin, h.end);
    const auto scaled = static_cast<std::size_t>(kWidth * (h.end - h.begin) / p.numel);
    const std::size_t box = std::max({scaled, label.size() + 2, text.size() + 2});
    width += box + 1;
    const bool last = &h == &all.back();
    for (std::size_t i = 0; i < box; ++i) {
      top += "─";
      bottom += "─";
    }
    top += last ? "┐" : "┬";
    bottom += last ? "┘" : "┴";
    ranks += fmt::format("{:^{}}│", label, box);
    extents += fmt::format("{:^{}}│", text, box);
  }
  if (width > kMost) return "";
  const char* what = layout.layout == config::Layout::flat           ? "elements"
                     : split_dimension(plan, shape_of(plan, p)) == 1 ? "rows (dim 1)"
                                                                     : "rows";
  return fmt::format("{}\n{} ranks\n{} {}\n{}\n", top, ranks, extents, what, bottom);
}

/// One picture for all parameters of the unit that have the same.
std::string pictures(const Plan& plan, const plan::AlikeUnits& units, const plan::Unit& unit) {
  const ShardLayout& layout = unit.layout;
  struct Same {
    std::string drawn;
    std::vector<std::string> captions;
  };
  std::vector<Same> all;
  const auto pieces = pieces_by_parameter(layout);
  for (const ParameterPlacement& p : layout.sharded) {
    const std::string drawn = picture(plan, unit, p, holders(pieces.at(p.parameter), false));
    if (drawn.empty()) continue;
    const std::string caption = plan::parameter_name(plan, units, p.parameter) + " " + shape_text(shape_of(plan, p));
    const auto same = std::ranges::find(all, drawn, &Same::drawn);
    if (same == all.end()) {
      all.push_back({drawn, {caption}});
    } else {
      same->captions.push_back(caption);
    }
  }
  std::string text;
  for (const Same& same : all) text += fmt::format("  {}\n{}", fmt::join(same.captions, "\n  "), same.drawn);
  return text;
}

std::string units_headline(const Plan& plan, const plan::AlikeUnits& units, const plan::Unit& unit) {
  const ShardLayout& layout = unit.layout;
  std::string text = fmt::format("unit {}  {}", plan::unit_names(plan, units), plan::module_names(plan, units));
  if (layout.sharded.empty() && layout.replicated.empty()) return text + ": no parameters\n";
  text += units.count > 1 ? ", each: " : ": ";
  if (!layout.sharded.empty()) {
    text += fmt::format("{} parameters in shards of {}, padding {} in all", format_count(layout.parameter_numel()),
                        format_bytes(layout.shard_numel * kMasterBytes),
                        format_bytes(layout.padding_numel() * kMasterBytes));
  }
  if (!layout.replicated.empty()) {
    text += fmt::format("{}{} whole on every rank", layout.sharded.empty() ? "" : "; ",
                        format_bytes(layout.replicated_numel * kMasterBytes));
  }
  if (unit.members.experts_of >= 0) {
    const plan::Members group = plan.groups.members(plan::Group::expert_shard, 0);
    text += fmt::format("\n{} ranks split the experts: below are the first ones, in shards on ranks {}",
                        plan.mesh.expert, fmt::join(group.ranks(), ", "));
  }
  return text + "\n";
}

std::string holders_table(const Plan& plan, const plan::AlikeUnits& units, const plan::Unit& unit) {
  const ShardLayout& layout = unit.layout;
  const bool by_shard = plan.mesh.replicate > 1 || plan.mesh.tensor > 1 || unit.members.experts_of >= 0;
  const bool second = std::ranges::any_of(
      layout.sharded, [&](const ParameterPlacement& p) { return split_dimension(plan, shape_of(plan, p)) == 1; });
  const bool flat = layout.layout == config::Layout::flat;
  Table table;
  table.header = {"parameter", "shape", by_shard ? "shards" : "ranks",
                  flat     ? "elements"
                  : second ? "rows (dim 1)"
                           : "rows",
                  "bytes each"};
  if (!flat) table.header.emplace_back("padding");  // a flat unit's belongs to no parameter
  const auto pieces = pieces_by_parameter(layout);
  for (const ParameterPlacement& p : layout.sharded) {
    bool first = true;
    for (const Holders& h : holders(pieces.at(p.parameter), true)) {
      std::string held = extent(layout, p, h.begin, h.end);
      if (h.first != h.last) held += fmt::format(", {} each", h.each() / (flat ? 1 : p.row_numel));
      table.rows.push_back({first ? plan::parameter_name(plan, units, p.parameter) : "",
                            first ? shape_text(shape_of(plan, p)) : "", range(h.first, h.last), std::move(held),
                            format_bytes(h.each() * kMasterBytes),
                            first && !flat ? format_bytes(padding_numel(layout, p) * kMasterBytes) : ""});
      first = false;
    }
  }
  for (const ParameterPlacement& p : layout.replicated) {
    table.rows.push_back({plan::parameter_name(plan, units, p.parameter), shape_text(shape_of(plan, p)), "all", "whole",
                          format_bytes(p.numel * kMasterBytes), ""});
  }
  return format_table(table);
}

std::string parameters_headline(const Plan& plan) {
  const int shards = plan.mesh.shard;
  std::string text = "Parameters: who holds what of the fp32 masters; moments and gradients of a rank lie likewise\n";
  if (plan.mesh.tensor > 1) {
    text += fmt::format(
        "{} ranks split each layer: below is what ranks {} have, shard by shard; the rank after each "
        "has the like of the next part\n",
        plan.mesh.tensor, fmt::join(plan.groups.members(plan::Group::shard, 0).ranks(), ", "));
  }
  if (shards == 1) return text + "one shard: every rank holds everything\n";
  text +=
      plan.units.front().layout.layout == config::Layout::flat
          ? "flat: a unit's parameters one after another, cut into equal shards wherever the cut falls\n"
          : fmt::format("per_param: rows (dim 0) of each parameter in {} equal chunks, the last ones padded\n", shards);
  if (plan.mesh.replicate > 1) {
    text += fmt::format("{} replicas: shard 0 is on ranks {}, and so on\n", plan.mesh.replicate,
                        fmt::join(ranks_of(plan, plan::Group::shard, 0), ", "));
  }
  return text;
}

json piece_json(const Plan& plan, const plan::Unit& unit, const ParameterPlacement& p, int shard,
                const ShardPiece& piece) {
  const ShardLayout& layout = unit.layout;
  json j{{"shard", shard},
         {"ranks", ranks_of(plan, holders_of(unit), shard)},
         {"offset", piece.parameter_offset},
         {"count", piece.count},
         {"shard_offset", piece.shard_offset},
         {"bytes", piece.count * kMasterBytes}};
  if (split_dimension(plan, shape_of(plan, p)) == 1) return j;  // parts of rows
  if (layout.shards == 1 || (piece.parameter_offset % p.row_numel == 0 && piece.count % p.row_numel == 0)) {
    j["rows"] = {piece.parameter_offset / p.row_numel, (piece.parameter_offset + piece.count) / p.row_numel};
  }
  return j;
}

}  // namespace

std::string parameters_text(const Plan& plan) {
  std::string text = parameters_headline(plan);
  for (const plan::AlikeUnits& units : plan::alike_units(plan)) {
    const plan::Unit& unit = plan.units[units.first];
    const ShardLayout& layout = unit.layout;
    text += "\n" + units_headline(plan, units, unit);
    if (layout.sharded.empty() && layout.replicated.empty()) continue;
    text += holders_table(plan, units, unit);
    if (layout.shards > 1 && layout.shards <= kMostShardsInPictures) text += pictures(plan, units, unit);
  }
  return text;
}

json parameters_json(const Plan& plan) {
  json all = json::array();
  for (const plan::Unit& unit : plan.units) {
    const ShardLayout& layout = unit.layout;
    const auto pieces = pieces_by_parameter(layout);
    const auto entry = [&](const ParameterPlacement& p, bool replicated) {
      const ParameterShape& shape = shape_of(plan, p);
      return json{{"name", shape.name},
                  {"unit", unit.label()},
                  {"shape", shape.shape},
                  {"replicated", replicated},
                  {"bytes", p.numel * kMasterBytes},
                  {"padding_bytes", replicated ? 0 : padding_numel(layout, p) * kMasterBytes},
                  {"pieces", json::array()}};
    };
    for (const ParameterPlacement& p : layout.sharded) {
      all.push_back(entry(p, false));
      const ParameterShape& shape = shape_of(plan, p);
      const int dimension = split_dimension(plan, shape);
      for (const auto& [shard, piece] : pieces.at(p.parameter)) {
        for (const ShardPiece& run : runs_of(p, shape, piece, dimension)) {
          all.back()["pieces"].push_back(piece_json(plan, unit, p, shard, run));
        }
      }
    }
    for (const ParameterPlacement& p : layout.replicated) all.push_back(entry(p, true));
  }
  return all;
}

}  // namespace fsdpbench::app
