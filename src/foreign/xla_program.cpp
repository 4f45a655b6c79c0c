#include "foreign/xla_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/read_input.h"
#include "clock/collective_cost.h"
#include "clock/compute_cost.h"
#include "foreign/wire_format.h"
#include "record/table.h"
#include "trace/whole_file.h"

namespace fsdpbench::foreign {
namespace {

constexpr std::int64_t kScalarElements = 64;  // a loss, a norm
constexpr std::size_t kMostVisits = std::size_t{8} << 20;
constexpr double kMilli = 1e3;

bool is_free(const HloInstruction& one) {
  static const std::set<std::string_view> kFree{"parameter", "constant",  "bitcast",      "get-tuple-element",
                                                "tuple",     "after-all", "partition-id", "replica-id"};
  return kFree.contains(one.opcode) || one.opcode.ends_with("-done");
}

bool mentions(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

class Placer {
 public:
  Placer(const HloModule& module, const config::Cluster* cluster) : module_(module), cluster_(cluster) {
    program_.name = module.name;
    program_.scheduled = module.scheduled;
    program_.devices = module.partitions * module.replicas;
    if (cluster != nullptr) {
      config::check_fits(*cluster, program_.devices);
      rates_ = clock::gpu_rates(*cluster, DType::bf16);
    }
    for (std::size_t c = 0; c < module.computations.size(); ++c) {
      const auto& rows = module.computations[c].instructions;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].opcode != "while") continue;
        for (const std::int32_t body : rows[i].called) {
          loop_of_.try_emplace(body, static_cast<std::int32_t>(c), static_cast<std::int32_t>(i));
        }
      }
    }
  }

  HloProgram place() {
    visit(module_.entry, 1, 0, "");
    if (cluster_ != nullptr) {
      visits_ = 0;
      run(module_.entry, 1);
      program_.seconds = now_;
      program_.compute_seconds = computed_;
    }
    advise();
    return std::move(program_);
  }

 private:
  const HloComputation& computation(std::int32_t c) const { return module_.computations[static_cast<std::size_t>(c)]; }
  const HloInstruction& row(std::int32_t c, std::int32_t i) const {
    return computation(c).instructions[static_cast<std::size_t>(i)];
  }

  /// FLOP of the matrix products in an instruction: a dot, or a fusion around some. -1: it has none.
  std::int64_t flops(std::int32_t c, const HloInstruction& one, int depth = 0) const {
    if (one.opcode == "dot" && !one.operands.empty() && !one.arrays.empty()) {
      const HloInstruction& left = row(c, one.operands.front());
      double flop = 2.0 * static_cast<double>(one.arrays.front().elements);
      for (const std::int64_t dim : one.contracts) {
        if (left.arrays.empty() || dim < 0 || dim >= static_cast<std::int64_t>(left.arrays.front().dims.size()))
          return 0;
        flop *= static_cast<double>(left.arrays.front().dims[static_cast<std::size_t>(dim)]);
      }
      return flop < 9e18 ? static_cast<std::int64_t>(flop) : 0;
    }
    constexpr int kDeepest = 3;
    const bool product = one.opcode == "dot" || one.opcode == "convolution" || mentions(one.name, "gemm") ||
                         mentions(one.name, "cublas") || mentions(one.name, "_dot");
    std::int64_t sum = product ? 0 : -1;
    if (one.opcode != "fusion" || depth > kDeepest) return sum;
    for (const std::int32_t inner : one.called) {
      for (const HloInstruction& each : computation(inner).instructions) {
        if (each.opcode != "dot" && each.opcode != "fusion") continue;
        const std::int64_t found = flops(inner, each, depth + 1);
        if (found >= 0) sum = std::max<std::int64_t>(sum, 0) + std::min(found, std::int64_t{1} << 60);
      }
    }
    return sum;
  }

  /// The program's parameter that an instruction's value comes from, through what converts, slices and carries it.
  std::string parameter(std::int32_t c, std::int32_t i, int& looks) const {
    if (looks-- <= 0) return {};
    const HloInstruction& one = row(c, i);
    if (one.opcode == "parameter") {
      return c == module_.entry && !one.arrays.empty() && one.arrays.front().elements > 1 ? one.op_name : std::string();
    }
    if (one.opcode == "get-tuple-element" && !one.operands.empty()) {
      const HloInstruction* carried = &row(c, one.operands.front());
      const auto loop = loop_of_.find(c);
      std::int32_t around = c;
      if (carried->opcode == "parameter" && loop != loop_of_.end()) {
        around = loop->second.first;
        carried = &row(around, loop->second.second);
        if (!carried->operands.empty()) carried = &row(around, carried->operands.front());
      }
      if (carried->opcode != "tuple" || one.index < 0 ||
          one.index >= static_cast<std::int64_t>(carried->operands.size())) {
        return {};
      }
      return parameter(around, carried->operands[static_cast<std::size_t>(one.index)], looks);
    }
    // What computes with a weight is not one: values only become smaller on the way, and no product is passed through.
    static const std::set<std::string_view> kCarries{"fusion",        "bitcast", "copy",      "convert",
                                                     "dynamic-slice", "reshape", "transpose", "slice"};
    if (!kCarries.contains(one.opcode) || one.arrays.empty() || flops(c, one) >= 0) return {};
    for (const std::int32_t operand : one.operands) {
      const std::vector<HloArray>& from = row(c, operand).arrays;
      if (from.empty() || from.front().elements < one.arrays.front().elements) continue;
      if (std::string found = parameter(c, operand, looks); !found.empty()) return found;
    }
    return {};
  }

  void add_collective(const HloCollective& facts, std::int64_t times, int depth, bool first) {
    const HloInstruction& one = row(facts.computation, facts.row);
    PlacedCollective placed;
    placed.facts = facts;
    placed.name = one.name;
    placed.path = one.op_name;
    placed.phase = phase_of_path(one.op_name);
    placed.times = times;
    if (facts.groups >= 0) placed.ranks = module_.groups[static_cast<std::size_t>(facts.groups)].size;
    placed.depth = depth;
    placed.first = first;
    const char* word = facts.kind == Communication::all_gather       ? "AG"
                       : facts.kind == Communication::reduce_scatter ? "RS"
                       : facts.kind == Communication::all_reduce     ? "AR"
                       : facts.kind == Communication::all_to_all     ? "A2A"
                       : facts.kind == Communication::send           ? "CP"
                                                                     : "C";
    placed.label =
        fmt::format("{}{}{}{}", word, numbers_[word]++, facts.operands > 1 ? fmt::format("<{}>", facts.operands) : "",
                    facts.pipelined ? "p" : "");
    int looks = 64;
    for (const std::int32_t operand : one.operands) {
      if (facts.kind != Communication::all_gather) break;
      const std::string found = parameter(facts.computation, operand, looks);
      if (found.empty() || mentions(placed.parameter, found)) continue;
      placed.parameter += (placed.parameter.empty() ? "" : ", ") + clean_text(found, kMostOfACell);
    }
    const auto& rows = computation(facts.computation).instructions;
    const auto end = facts.done < 0 ? rows.size() : static_cast<std::size_t>(facts.done);
    for (auto i = static_cast<std::size_t>(facts.row) + 1; facts.done >= 0 && i < end; ++i) {
      if (collective_of(module_, facts.computation, static_cast<std::int32_t>(i)))
        ++placed.collectives;
      else if (flops(facts.computation, rows[i]) >= 0)
        ++placed.products;
      else if (!is_free(rows[i]))
        ++placed.kernels;
    }
    if (facts.kind == Communication::all_reduce) {
      const std::int32_t result = facts.done >= 0 ? facts.done : facts.row;
      std::size_t users = 0, slices = 0;
      std::set<std::int32_t> values{result};
      for (std::size_t i = static_cast<std::size_t>(result) + 1; i < rows.size(); ++i) {
        if (std::ranges::none_of(rows[i].operands, [&](std::int32_t o) { return values.contains(o); })) continue;
        if (rows[i].opcode == "get-tuple-element" || rows[i].opcode == "bitcast") {
          values.insert(static_cast<std::int32_t>(i));
          continue;
        }
        ++users;
        slices += mentions(rows[i].name, "dynamic-slice") || mentions(rows[i].name, "dynamic_slice");
      }
      placed.sliced = users > 0 && slices == users && facts.elements_in > kScalarElements;
    }
    index_[{facts.computation, facts.row}] = program_.collectives.size();
    program_.collectives.push_back(std::move(placed));
  }

  void count_visit() {
    if (++visits_ > kMostVisits) {
      throw ConfigError(fmt::format("runs more than {} instructions, which is what is followed.", kMostVisits));
    }
  }

  /// The collectives of a computation and of those that it calls; what it does in order becomes a line.
  void visit(std::int32_t c, std::int64_t times, int depth, const std::string& title) {
    constexpr int kDeepest = 32;
    if (nested_ > kDeepest) throw ConfigError("has a computation in too many others.");
    ++nested_;
    const std::size_t line = program_.order.size();
    program_.order.emplace_back();
    std::string text;
    std::map<std::int32_t, std::string> open;
    int products = 0, before = 0;
    const auto put = [&](const std::string& word) {
      if (products > 0) text += fmt::format(" G{}", products > 1 ? std::to_string(products) : "");
      products = 0;
      text += ' ' + word;
    };
    const auto& rows = computation(c).instructions;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      count_visit();
      const HloInstruction& one = rows[i];
      const auto here = static_cast<std::int32_t>(i);
      if (one.opcode == "while") {
        const std::int64_t trips = one.trips >= 0 ? one.trips : 1;
        if (trips > 0 && times > (std::int64_t{1} << 40) / trips) throw ConfigError("repeats a loop too often.");
        put(fmt::format("loop {}", program_.loops.size()));
        const std::string inner =
            fmt::format("loop {} x{}", program_.loops.size(), one.trips >= 0 ? std::to_string(trips) : "?");
        program_.loops.push_back(
            {one.name, depth, one.trips, mentions(one.name, "double_buffer") || mentions(one.name, "unrolled")});
        for (const std::int32_t body : one.called) visit(body, times * trips, depth + 1, inner);
      } else if (one.opcode == "call" || one.opcode == "conditional") {
        for (const std::int32_t inner : one.called) visit(inner, times, depth, title);
      } else if (const auto found = collective_of(module_, c, here); found && one.opcode != "async-update") {
        if (!index_.contains({c, here})) add_collective(*found, times, depth, before == 0);
        const PlacedCollective& placed = program_.collectives[index_.at({c, here})];
        if (found->done >= 0) open[found->done] = placed.label;
        put((found->done >= 0 ? "+" : "") + placed.label + (found->asynchronous ? "" : "!"));
      } else if (const auto ends = open.find(here); ends != open.end()) {
        put("-" + ends->second);
      } else if (flops(c, one) >= 0) {
        ++products, ++before;
      }
    }
    if (products > 0) text += fmt::format(" G{}", products > 1 ? std::to_string(products) : "");
    --nested_;
    program_.order[line] = text.empty() ? "" : (title.empty() ? "program" : title) + ":" + text;
  }

  double collective_seconds(const PlacedCollective& one) const {
    clock::Collective kind = clock::Collective::all_reduce;
    switch (one.facts.kind) {
      case Communication::all_gather: kind = clock::Collective::all_gather; break;
      case Communication::reduce_scatter: kind = clock::Collective::reduce_scatter; break;
      case Communication::all_to_all: kind = clock::Collective::all_to_all; break;
      case Communication::send: kind = clock::Collective::send_recv; break;
      case Communication::broadcast: kind = clock::Collective::broadcast; break;
      default: break;
    }
    clock::GroupShape shape{static_cast<int>(std::min<std::int64_t>(program_.devices, 1 << 20)), 1, 1};
    std::vector<int> members;
    if (one.facts.groups >= 0) {
      const ReplicaGroups& groups = module_.groups[static_cast<std::size_t>(one.facts.groups)];
      if (groups.size > 0) shape.ranks = static_cast<int>(groups.size);
      if (!groups.lists.empty()) members = groups.lists.front();
    }
    std::map<int, int> nodes;
    for (const int member : members) ++nodes[member / std::max(1, cluster_->gpus_per_node)];
    if (nodes.empty()) {
      for (int i = 0; i < shape.ranks; ++i) ++nodes[i / std::max(1, cluster_->gpus_per_node)];
    }
    shape.nodes = static_cast<int>(std::max<std::size_t>(1, nodes.size()));
    for (const auto& [node, ranks] : nodes) shape.per_node = std::max(shape.per_node, ranks);
    return clock::collective_cost(*cluster_, kind, static_cast<double>(one.bytes()), shape).seconds();
  }

  double kernel_seconds(std::int32_t c, const HloInstruction& one) const {
    double bytes = 0;
    for (const HloArray& array : one.arrays) bytes += static_cast<double>(array.bytes);
    for (const std::int32_t operand : one.operands) {
      for (const HloArray& array : row(c, operand).arrays) bytes += static_cast<double>(array.bytes);
    }
    // What is sliced or updated in place is not read as a whole.
    if (mentions(one.name, "dynamic") || one.opcode == "dynamic-slice") {
      bytes = 0;
      for (const HloArray& array : one.arrays) bytes = std::max(bytes, static_cast<double>(array.bytes));
      for (const std::int32_t operand : one.operands) {
        for (const HloArray& array : row(c, operand).arrays) {
          if (array.elements > 1) bytes = std::min(bytes, 2.0 * static_cast<double>(array.bytes));
        }
      }
    }
    const std::int64_t flop = flops(c, one);
    return std::max(bytes / rates_.memory_bytes_per_s,
                    flop > 0 ? static_cast<double>(flop) / (rates_.product_flops * clock::kTypicalEfficiency) : 0);
  }

  void run(std::int32_t c, std::int64_t times) {
    const auto& rows = computation(c).instructions;
    std::map<std::int32_t, std::pair<double, std::size_t>> ends;  // by -done
    for (std::size_t i = 0; i < rows.size(); ++i) {
      count_visit();
      const HloInstruction& one = rows[i];
      const auto here = static_cast<std::int32_t>(i);
      if (one.opcode == "while") {
        for (std::int64_t trip = 0; trip < std::max<std::int64_t>(one.trips, 1); ++trip) {
          for (const std::int32_t body : one.called) run(body, times);
        }
      } else if (one.opcode == "call" || one.opcode == "conditional") {
        for (const std::int32_t inner : one.called) run(inner, times);
      } else if (const auto known = index_.find({c, here}); known != index_.end()) {
        PlacedCollective& placed = program_.collectives[known->second];
        const double took = collective_seconds(placed), begin = std::max(now_, sent_);
        placed.seconds += took;
        sent_ = begin + took;
        if (placed.facts.asynchronous && placed.facts.done >= 0) {
          ends[placed.facts.done] = {sent_, known->second};
        } else {
          placed.exposed_seconds += sent_ - now_;
          now_ = sent_;
        }
      } else if (const auto end = ends.find(here); end != ends.end()) {
        if (end->second.first > now_) {
          program_.collectives[end->second.second].exposed_seconds += end->second.first - now_;
          now_ = end->second.first;
        }
      } else if (!is_free(one)) {
        const double took = kernel_seconds(c, one);
        now_ += took;
        computed_ += took;
      }
    }
  }

  void advise();

  const HloModule& module_;
  const config::Cluster* cluster_;
  clock::GpuRates rates_;
  HloProgram program_;
  std::map<std::string_view, int> numbers_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> index_;     // of collectives
  std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>> loop_of_;  // by body: where its while is
  std::size_t visits_ = 0;
  int nested_ = 0;  // computations that are being visited
  double now_ = 0, sent_ = 0, computed_ = 0;
};

bool is_small(const PlacedCollective& one) {
  return std::max(one.facts.elements_in, one.facts.elements_out) <= kScalarElements;
}

/// Why nothing hides a collective; "": products do.
std::string why_exposed(const PlacedCollective& one) {
  if (is_small(one)) return "a few elements";
  if (!one.facts.asynchronous) {
    return one.facts.done >= 0 ? "not asynchronous: nothing that does not need it stands between its start and its end"
                               : "not asynchronous: the compute stream does it";
  }
  if (one.products > 0) return "";
  if (one.depth > 0 && one.first && !one.facts.pipelined)
    return "the loop's boundary: no product is before it in an iteration";
  if (one.facts.operands > 1)
    return fmt::format("{} are combined, and what would hide it needs one of them", one.facts.operands);
  return "no product is between its start and its end";
}

std::string list_of(const std::vector<std::string>& labels) {
  constexpr std::size_t kMost = 6;
  const std::size_t shown = std::min(labels.size(), kMost);
  return fmt::format("{}{}", fmt::join(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     labels.size() > shown ? " …" : "");
}

void Placer::advise() {
  std::vector<std::string> boundary, sync, combined, sliced, forward, wide, early;
  bool any_start = false, any_async = false, names_parameter = false;
  for (const PlacedCollective& one : program_.collectives) {
    any_start = any_start || one.facts.done >= 0;
    any_async = any_async || one.facts.asynchronous;
    if (is_small(one)) continue;
    names_parameter = names_parameter || !one.parameter.empty();
    const std::string why = why_exposed(one);
    if (why.starts_with("the loop")) boundary.push_back(one.label);
    if (!one.facts.asynchronous && one.facts.done >= 0) sync.push_back(one.label);
    if (one.facts.operands > 1 && one.facts.asynchronous && one.products == 0) combined.push_back(one.label);
    if (one.sliced) sliced.push_back(one.label);
    const bool sums = one.facts.kind == Communication::reduce_scatter || one.facts.kind == Communication::all_reduce;
    if (sums && one.phase == schedule::Phase::forward) forward.push_back(one.label);
    if (one.facts.kind == Communication::all_gather && one.facts.dtype == "f32" && !one.parameter.empty())
      wide.push_back(one.label);
  }
  const auto say = [&](const std::vector<std::string>& labels, std::string_view sentence) {
    if (!labels.empty()) program_.advice.push_back(fmt::format(fmt::runtime(sentence), list_of(labels)));
  };
  if (any_start && !any_async && !sync.empty()) {
    say(sync,
        "No collective is asynchronous ({}): XLA's latency hiding scheduler did not run. On GPUs before Hopper, or "
        "before JAX 0.7.2, XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true starts it.");
  } else {
    say(sync,
        "On the compute stream: {}. XLA found nothing to run meanwhile in the same computation; "
        "XLA_FLAGS=--xla_gpu_disable_async_collectives= (empty) is the default and must not name their kind.");
  }
  say(boundary,
      "{}: the first of an iteration has nothing before it. "
      "XLA_FLAGS=--xla_gpu_enable_pipelined_all_gather=true (from JAX 0.11.1 on --xla_gpu_pipeline_all_gather=on) "
      "gathers one iteration ahead, for another iteration's weights in memory; not through the barrier of "
      "jax.checkpoint.");
  say(combined,
      "{}: combined into one that nothing hides. A lower "
      "XLA_FLAGS=--xla_gpu_all_gather_combine_threshold_bytes (reduce_scatter, all_reduce likewise) parts them; "
      "XLA compares it with a gather's whole result, but with a reduce-scatter's shard.");
  say(sliced,
      "{}: all-reduced, and only a slice is used: twice a reduce-scatter's bytes. Give the gradient its parameter's "
      "sharding: jax.lax.with_sharding_constraint(grad, NamedSharding(mesh, PartitionSpec('fsdp', None))).");
  if (names_parameter || std::ranges::none_of(program_.collectives, [](const PlacedCollective& one) {
        return one.facts.kind == Communication::all_gather && !is_small(one);
      })) {
    say(forward,
        "{}: activations are summed in forward. Tensor parallelism does that; without it the batch is not split "
        "over the axis of the weights: PartitionSpec(('data', 'fsdp')) for the batch.");
  } else {
    say(forward,
        "{}: XLA gathers and sums activations, no weights. The batch is not split over the axis of the weights: "
        "PartitionSpec(('data', 'fsdp')) for the batch, and with_sharding_constraint at each block's end.");
  }
  say(wide, "{}: gathered in f32, twice the bytes of bf16. Cast the shard before its use: w.astype(jnp.bfloat16).");
}

/// The largest module of an xplane.pb.
std::optional<HloModule> module_in_xspace(std::string_view bytes) {
  std::string_view largest;
  const auto search = [&](auto&& self, std::string_view message, int depth) -> void {
    // XSpace 1, XPlane 4 event_metadata, map 2, XEventMetadata 5 stats, XStat 6 bytes
    static constexpr std::uint32_t kPath[] = {1, 4, 2, 5, 6};
    WireMessage in(message);
    while (in.next()) {
      if (in.field() != kPath[depth]) continue;
      if (depth < 4)
        self(self, in.bytes(), depth + 1);
      else if (in.bytes().size() > largest.size())
        largest = in.bytes();
    }
  };
  search(search, bytes, 0);
  WireMessage proto(largest);
  while (proto.next()) {
    if (proto.field() == 1) return parse_hlo_proto(proto.bytes());
  }
  return std::nullopt;
}

}  // namespace

HloProgram place_collectives(const HloModule& module, const config::Cluster* cluster) {
  return Placer(module, cluster).place();
}

HloModule read_hlo(const std::string& path) {
  constexpr std::uint64_t kMost = std::uint64_t{2} << 30;  // what protobuf itself can hold
  trace::InputFile file(path, kMost);
  const std::string bytes(std::istreambuf_iterator<char>(&file), {});
  if (!file.error().empty()) throw ConfigError(fmt::format("{}: cannot be read: {}.", path, file.error()));
  try {
    if (std::string_view(bytes).substr(0, 4096).find("HloModule ") != std::string_view::npos)
      return parse_hlo_text(bytes);
    if (path.find(".xplane.pb") != path.npos) {
      if (auto module = module_in_xspace(bytes)) return std::move(*module);
      throw ConfigError("has no module of XLA.");
    }
    return parse_hlo_proto(bytes);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.what()));
  }
}

std::string hlo_report(const HloProgram& program) {
  std::string text =
      fmt::format("{}: {} devices, {}\n\n", clean_text(program.name, kMostOfACell), program.devices,
                  program.scheduled ? "in the order of launches" : "not scheduled: the order is not that of launches");
  for (const std::string& line : program.order) {
    if (!line.empty()) text += app::text_line(line);
  }
  text += "\n+ begins, - is waited for, ! not asynchronous, Gn matrix products, <n> combined, p pipelined\n\n";
  const bool timed = program.seconds > 0;
  app::Table table;
  table.header = {"collective", "a step", "MB each", "type", "ranks", "between", "of"};
  if (timed) table.header.insert(table.header.begin() + 6, {"ms", "exposed"});
  table.header.emplace_back("why exposed");
  double exposed = 0;
  struct Alike {
    const PlacedCollective* first = nullptr;
    std::size_t count = 0;
    std::int64_t times = 0;
    double seconds = 0, exposed_seconds = 0;
  };
  std::vector<std::pair<std::vector<std::string>, Alike>> alike;  // by what the cells say
  for (const PlacedCollective& one : program.collectives) {
    exposed += one.exposed_seconds;
    const bool hidden = timed && one.exposed_seconds * 100 < one.seconds;
    std::vector<std::string> cells{
        one.label.substr(0, 2),
        fmt::format("{:.3f}", static_cast<double>(one.bytes()) / 1e6),
        one.facts.dtype,
        one.ranks > 0 ? std::to_string(one.ranks) : "?",
        one.facts.done < 0 ? "" : fmt::format("{} products, {} others", one.products, one.kernels + one.collectives),
        !one.parameter.empty() ? one.parameter : clean_text(one.path, 60),
        hidden ? "" : why_exposed(one)};
    auto known = std::ranges::find(alike, cells, &std::pair<std::vector<std::string>, Alike>::first);
    if (known == alike.end()) known = alike.insert(alike.end(), {std::move(cells), {&one}});
    Alike& sum = known->second;
    ++sum.count;
    sum.times += one.times;
    sum.seconds += one.seconds;
    sum.exposed_seconds += one.exposed_seconds;
  }
  for (const auto& [cells, sum] : alike) {
    std::vector<std::string> row{
        sum.count > 1 ? fmt::format("{} and {} like it", sum.first->label, sum.count - 1) : sum.first->label,
        std::to_string(sum.times)};
    row.insert(row.end(), cells.begin() + 1, cells.begin() + 5);
    if (timed) {
      row.push_back(fmt::format("{:.3f}", sum.seconds * kMilli));
      row.push_back(fmt::format("{:.3f}", sum.exposed_seconds * kMilli));
    }
    row.insert(row.end(), cells.begin() + 5, cells.end());
    table.rows.push_back(std::move(row));
  }
  text += app::format_table(table);
  if (timed) {
    text += fmt::format("\n{:.2f} ms a step: {:.2f} ms of kernels, {:.2f} ms of exposed communication.\n",
                        program.seconds * kMilli, program.compute_seconds * kMilli, exposed * kMilli);
  }
  for (const std::string& sentence : program.advice) text += "\n" + sentence + "\n";
  return text;
}

std::string hlo_json(const HloProgram& program) {
  nlohmann::ordered_json json;
  json["module"] = clean_text(program.name, kMostOfACell);
  json["scheduled"] = program.scheduled;
  json["devices"] = program.devices;
  json["order"] = nlohmann::ordered_json::array();
  for (const std::string& line : program.order) {
    if (!line.empty()) json["order"].push_back(line);
  }
  json["collectives"] = nlohmann::ordered_json::array();
  for (const PlacedCollective& one : program.collectives) {
    nlohmann::ordered_json row;
    row["name"] = clean_text(one.name, kMostOfACell);
    row["label"] = one.label;
    row["kind"] = to_string(one.facts.kind);
    row["asynchronous"] = one.facts.asynchronous;
    row["pipelined"] = one.facts.pipelined;
    row["times"] = one.times;
    row["depth"] = one.depth;
    row["bytes_in"] = one.facts.bytes_in;
    row["bytes_out"] = one.facts.bytes_out;
    if (one.ranks > 0) row["ranks"] = one.ranks;
    row["dtype"] = one.facts.dtype;
    row["operands"] = one.facts.operands;
    if (one.phase) row["phase"] = schedule::to_string(*one.phase);
    if (!one.parameter.empty()) row["parameter"] = one.parameter;
    row["products_between"] = one.products;
    row["kernels_between"] = one.kernels;
    row["collectives_between"] = one.collectives;
    row["sliced"] = one.sliced;
    if (program.seconds > 0) {
      row["seconds"] = one.seconds;
      row["exposed_seconds"] = one.exposed_seconds;
    }
    if (const std::string why = why_exposed(one); !why.empty()) row["why_exposed"] = why;
    json["collectives"].push_back(std::move(row));
  }
  json["loops"] = nlohmann::ordered_json::array();
  for (const PlacedLoop& loop : program.loops) {
    json["loops"].push_back(
        {{"name", clean_text(loop.name, kMostOfACell)}, {"depth", loop.depth}, {"trips", loop.trips}});
  }
  if (program.seconds > 0) json["seconds"] = program.seconds, json["compute_seconds"] = program.compute_seconds;
  json["advice"] = program.advice;
  return json.dump(2) + "\n";
}

std::string hlo_answer(const std::string& path, const std::string& cluster, bool json) {
  std::optional<config::Cluster> machine;
  if (!cluster.empty()) machine = config::load_cluster(cluster);
  const HloModule module = read_hlo(path);
  try {
    const HloProgram program = place_collectives(module, machine ? &*machine : nullptr);
    return json ? hlo_json(program) : hlo_report(program);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace fsdpbench::foreign
