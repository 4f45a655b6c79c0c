#include "app/report/parameters_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/console/table.h"
#include "base/bytes.h"
#include "plan/alike_units.h"

namespace fsdpbench::app {
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

/// Of the first part of the layers, the first replica's ranks hold the shards in order; equal ones lie along the axis
/// of replicas.
std::vector<int> ranks_of(const Plan& plan, int shard) {
  return plan.groups.members(plan::Group::replicate, plan.groups.members(plan::Group::shard, 0)[shard]).ranks();
}

const ParameterShape& shape_of(const Plan& plan, const ParameterPlacement& p) {
  return plan.shapes.parameters[static_cast<std::size_t>(p.parameter)];
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
std::string picture(const Plan& plan, const ShardLayout& layout, const ParameterPlacement& p,
                    const std::vector<Holders>& all) {
  constexpr std::int64_t kWidth = 64;
  constexpr std::size_t kMost = 96;
  std::string top = "  ┌", ranks = "  │", extents = "  │", bottom = "  └";
  std::size_t width = 0;
  for (const Holders& h : all) {
    const std::string label = fmt::format("{}", fmt::join(ranks_of(plan, h.first), ","));
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
  const char* what = layout.layout == config::Layout::flat ? "elements" : "rows";
  return fmt::format("{}\n{} ranks\n{} {}\n{}\n", top, ranks, extents, what, bottom);
}

/// One picture for all parameters of the unit that have the same.
std::string pictures(const Plan& plan, const plan::AlikeUnits& units, const ShardLayout& layout) {
  struct Same {
    std::string drawn;
    std::vector<std::string> captions;
  };
  std::vector<Same> all;
  const auto pieces = pieces_by_parameter(layout);
  for (const ParameterPlacement& p : layout.sharded) {
    const std::string drawn = picture(plan, layout, p, holders(pieces.at(p.parameter), false));
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

std::string units_headline(const Plan& plan, const plan::AlikeUnits& units, const ShardLayout& layout) {
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
  return text + "\n";
}

std::string holders_table(const Plan& plan, const plan::AlikeUnits& units, const ShardLayout& layout) {
  const bool flat = layout.layout == config::Layout::flat;
  Table table;
  table.header = {"parameter", "shape", plan.mesh.replicate > 1 || plan.mesh.tensor > 1 ? "shards" : "ranks",
                  flat ? "elements" : "rows", "bytes each"};
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
                        fmt::join(ranks_of(plan, 0), ", "));
  }
  return text;
}

json piece_json(const Plan& plan, const ShardLayout& layout, const ParameterPlacement& p, int shard,
                const ShardPiece& piece) {
  json j{{"shard", shard},       {"ranks", ranks_of(plan, shard)},     {"offset", piece.parameter_offset},
         {"count", piece.count}, {"shard_offset", piece.shard_offset}, {"bytes", piece.count * kMasterBytes}};
  if (layout.shards == 1 || (piece.parameter_offset % p.row_numel == 0 && piece.count % p.row_numel == 0)) {
    j["rows"] = {piece.parameter_offset / p.row_numel, (piece.parameter_offset + piece.count) / p.row_numel};
  }
  return j;
}

}  // namespace

std::string parameters_text(const Plan& plan) {
  std::string text = parameters_headline(plan);
  for (const plan::AlikeUnits& units : plan::alike_units(plan)) {
    const ShardLayout& layout = plan.units[static_cast<std::size_t>(units.first)].layout;
    text += "\n" + units_headline(plan, units, layout);
    if (layout.sharded.empty() && layout.replicated.empty()) continue;
    text += holders_table(plan, units, layout);
    if (layout.shards > 1 && layout.shards <= kMostShardsInPictures) text += pictures(plan, units, layout);
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
      for (const auto& [shard, piece] : pieces.at(p.parameter)) {
        all.back()["pieces"].push_back(piece_json(plan, layout, p, shard, piece));
      }
    }
    for (const ParameterPlacement& p : layout.replicated) all.push_back(entry(p, true));
  }
  return all;
}

}  // namespace fsdpbench::app
