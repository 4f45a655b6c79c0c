#include "foreign/xla_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/read_input.h"
#include "clock/collective_cost.h"
#include "clock/compute_cost.h"
#include "foreign/collective_use.h"
#include "foreign/kineto_reader.h"
#include "foreign/traced_profile.h"
#include "record/table.h"
#include "trace/whole_file.h"

namespace fsdpbench::foreign {
namespace {

constexpr std::int64_t kScalarBytes = 256;  // a loss, a norm

bool is_free(const HloInstruction& one) {
  static const std::set<std::string_view> kFree{"parameter", "constant",  "bitcast",      "get-tuple-element",
                                                "tuple",     "after-all", "partition-id", "replica-id"};
  return kFree.contains(one.opcode) || one.opcode.ends_with("-done");
}

class Placer {
 public:
  Placer(const HloModule& module, const config::Cluster* cluster)
      : module_(module), cluster_(cluster), program_{module.name, module.scheduled, module.devices} {
    if (cluster != nullptr) {
      config::check_fits(*cluster, program_.devices);
      rates_ = clock::gpu_rates(*cluster, DType::bf16);
    }
  }

  HloProgram place() {
    walk(module_.entry, 1, 0, "program", true);
    std::erase(program_.order, "");
    advise();
    return std::move(program_);
  }

 private:
  const HloInstruction& row(std::int32_t c, std::int32_t i) const { return module_.row(c, i); }

  /// FLOP of the matrix products in an instruction: a dot, or a fusion around some. -1: it has none.
  std::int64_t flops(std::int32_t c, const HloInstruction& one, int depth = 0) const {
    if (one.opcode == "dot" && !one.operands.empty() && !one.arrays.empty()) {
      const HloInstruction& left = row(c, one.operands.front());
      double flop = 2.0 * static_cast<double>(one.arrays.front().elements);
      for (const std::int64_t dim : one.contracts) {
        if (left.arrays.empty() || dim < 0 || dim >= std::ssize(left.arrays.front().dims)) return 0;
        flop *= static_cast<double>(left.arrays.front().dims[dim]);
      }
      return flop < 9e18 ? static_cast<std::int64_t>(flop) : 0;
    }
    constexpr int kDeepest = 3;
    const bool product = one.opcode == "dot" || one.opcode == "convolution" || mentions(one.name, "gemm") ||
                         mentions(one.name, "cublas") || mentions(one.name, "_dot");
    std::int64_t sum = product ? 0 : -1;
    if (one.opcode != "fusion" || depth > kDeepest) return sum;
    for (const std::int32_t inner : one.called) {
      for (const HloInstruction& each : module_.computations[inner].instructions) {
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
      if (carried->opcode != "tuple" || one.index < 0 || one.index >= std::ssize(carried->operands)) return {};
      return parameter(around, carried->operands[one.index], looks);
    }
    // A product with a weight is no weight: values only become smaller on the way, and no product is passed through.
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
    PlacedCollective placed{
        .facts = facts, .name = one.name, .path = one.op_name, .times = times, .depth = depth, .first = first};
    if (facts.groups >= 0) placed.ranks = module_.groups[facts.groups].size;
    placed.label =
        fmt::format("{}{}{}{}", facts.label, numbers_[facts.label]++,
                    facts.operands > 1 ? fmt::format("<{}>", facts.operands) : "", facts.pipelined ? "p" : "");
    int looks = 64;
    for (const std::int32_t operand : one.operands) {
      if (facts.kind != Communication::all_gather) break;
      const std::string found = parameter(facts.computation, operand, looks);
      if (found.empty() || mentions(placed.parameter, found)) continue;
      placed.parameter += (placed.parameter.empty() ? "" : ", ") + clean_text(found, kMostOfACell);
    }
    const auto& rows = module_.computations[facts.computation].instructions;
    for (std::int32_t i = facts.row + 1; i < facts.done; ++i) {
      const HloInstruction& between = row(facts.computation, i);
      int& count = collective_of(module_, facts.computation, i) ? placed.collectives
                   : flops(facts.computation, between) >= 0     ? placed.products
                                                                : placed.kernels;
      if (!is_free(between)) ++count;
    }
    if (facts.kind == Communication::all_reduce) {
      std::set<std::int32_t> values{std::max(facts.done, facts.row)};
      bool slices = false, others = facts.bytes_in <= kScalarBytes;
      for (std::int32_t i = *values.begin() + 1; i < std::ssize(rows); ++i) {
        const HloInstruction& user = row(facts.computation, i);
        if (std::ranges::none_of(user.operands, [&](std::int32_t o) { return values.contains(o); })) continue;
        const bool slice = mentions(user.name, "dynamic-slice") || mentions(user.name, "dynamic_slice");
        const bool carries = user.opcode == "get-tuple-element" || user.opcode == "bitcast";
        if (carries) values.insert(i);
        if (!carries) (slice ? slices : others) = true;
      }
      placed.sliced = slices && !others;
    }
    program_.collectives.push_back(std::move(placed));
  }

  double collective_seconds(const PlacedCollective& one) const {
    const std::int64_t ranks = one.ranks > 0 ? one.ranks : std::min<std::int64_t>(program_.devices, 1 << 20);
    const bool listed = one.facts.groups >= 0 && !module_.groups[one.facts.groups].lists.empty();
    std::vector<int> members = listed ? module_.groups[one.facts.groups].lists.front() : std::vector<int>(ranks);
    if (!listed) std::iota(members.begin(), members.end(), 0);
    const clock::GroupShape shape = app::shape_on_nodes(members, cluster_->gpus_per_node);
    return clock::collective_cost(*cluster_, one.facts.cost, static_cast<double>(one.bytes()), shape).seconds();
  }

  double kernel_seconds(std::int32_t c, const HloInstruction& one) const {
    double bytes = 0, least = std::numeric_limits<double>::infinity();
    const auto add = [&](const HloInstruction& of) {
      for (const HloArray& array : of.arrays) {
        bytes += static_cast<double>(array.bytes);
        if (array.elements > 1) least = std::min(least, static_cast<double>(array.bytes));
      }
    };
    add(one);
    for (const std::int32_t operand : one.operands) add(row(c, operand));
    // Slices, and updates in place, do not read all of an array.
    if (mentions(one.name, "dynamic") || one.opcode == "dynamic-slice") bytes = std::min(bytes, 2 * least);
    const std::int64_t flop = flops(c, one);
    return std::max(bytes / rates_.memory_bytes_per_s,
                    flop > 0 ? static_cast<double>(flop) / (rates_.product_flops * clock::kTypicalEfficiency) : 0);
  }

  /// Runs a computation and those that it calls. `told`: what it does becomes a line of the order, and its collectives
  /// are placed; later iterations only take their time.
  void walk(std::int32_t c, std::int64_t times, int depth, const std::string& title, bool told) {
    constexpr int kMostCalls = 64;
    if (++nested_ > kMostCalls) throw ConfigError("has a computation in too many others.");
    constexpr std::size_t kMost = std::size_t{8} << 20;
    const auto& rows = module_.computations[c].instructions;
    visits_ += 1 + rows.size();
    if (visits_ > kMost)
      throw ConfigError(fmt::format("runs more than {} instructions, which is what is followed.", kMost));
    const std::size_t line = program_.order.size();
    if (told) program_.order.emplace_back();
    std::string text;
    std::map<std::int32_t, std::pair<std::size_t, double>> open;  // by -done: the collective, and when it ends
    int products = 0, before = 0;
    const auto put = [&](const std::string& word) {
      if (products > 0) text += fmt::format(" G{}", products > 1 ? std::to_string(products) : "");
      products = 0;
      text += word;
    };
    for (std::int32_t i = 0; i < std::ssize(rows); ++i) {
      const HloInstruction& one = rows[i];
      if (one.opcode == "while") {
        const std::int64_t trips = std::max<std::int64_t>(one.trips, 1);
        if (times > (std::int64_t{1} << 40) / trips) throw ConfigError("repeats a loop too often.");
        const std::size_t loop = program_.loops.size();
        const bool doubled = mentions(one.name, "double_buffer") || mentions(one.name, "unrolled");
        const std::string inner = fmt::format("loop {} x{}{}", loop, one.trips >= 0 ? std::to_string(trips) : "?",
                                              doubled ? " (two iterations in one)" : "");
        put(fmt::format(" loop {}", loop));
        if (told) program_.loops.push_back({one.name, depth, one.trips, doubled});
        for (std::size_t part = one.called.size(); part-- > 0;) {  // the condition, which also ends it, and the body
          loop_of_.try_emplace(one.called[part], c, i);
          const std::int64_t runs = trips + (part > 0 && one.trips >= 0 ? 1 : 0);
          for (std::int64_t run = 0; run < (cluster_ != nullptr ? runs : 1); ++run)
            walk(one.called[part], times * runs, depth + 1, inner, told && run == 0);
        }
      } else if (one.opcode == "call" || one.opcode == "conditional") {
        for (const std::int32_t inner : one.called) walk(inner, times, depth, title, told);
      } else if (const auto ends = open.find(i); ends != open.end()) {
        PlacedCollective& placed = program_.collectives[ends->second.first];
        put(" -" + placed.label);
        placed.exposed_seconds += std::max(0.0, ends->second.second - program_.seconds);
        program_.seconds = std::max(program_.seconds, ends->second.second);
      } else if (const auto found = collective_of(module_, c, i)) {
        const auto [known, fresh] = index_.try_emplace({c, i}, program_.collectives.size());
        if (fresh) add_collective(*found, times, depth, before == 0);
        PlacedCollective& placed = program_.collectives[known->second];
        put(fmt::format(" {}{}{}", found->done >= 0 ? "+" : "", placed.label, found->asynchronous ? "" : "!"));
        const double took = cluster_ != nullptr ? collective_seconds(placed) : 0;
        placed.seconds += took;
        sent_ = std::max(program_.seconds, sent_) + took;
        if (found->done >= 0) open[found->done] = {known->second, found->asynchronous ? sent_ : program_.seconds};
        if (!found->asynchronous) {
          placed.exposed_seconds += sent_ - program_.seconds;
          program_.seconds = sent_;
        }
      } else if (!is_free(one)) {
        if (flops(c, one) >= 0) ++products, ++before;
        const double took = cluster_ != nullptr ? kernel_seconds(c, one) : 0;
        program_.seconds += took;
        program_.compute_seconds += took;
      }
    }
    put("");
    --nested_;
    if (told && !text.empty()) program_.order[line] = title + ":" + text;
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
  int nested_ = 0;  // computations that are being run
  double sent_ = 0;
};

bool is_small(const PlacedCollective& one) { return one.bytes() <= kScalarBytes; }

/// Why nothing hides a collective; "": products do.
std::string why_exposed(const PlacedCollective& one) {
  if (is_small(one)) return "a few elements";
  if (!one.facts.asynchronous) return "synchronous";
  if (one.products > 0) return "";
  if (one.depth > 0 && one.first && !one.facts.pipelined) return "boundary";
  return one.facts.operands > 1 ? fmt::format("{} combined", one.facts.operands) : "nothing between";
}

void Placer::advise() {
  const auto say = [&](const auto& about, std::string_view sentence) {
    std::vector<std::string> labels;
    for (const PlacedCollective& one : program_.collectives) {
      if (!is_small(one) && about(one)) labels.push_back(one.label);
    }
    constexpr std::size_t kMost = 6;
    if (labels.size() > kMost) labels.resize(kMost), labels.back() += " …";
    if (!labels.empty() && !sentence.empty())
      program_.advice.push_back(fmt::format("{}: {}", fmt::join(labels, ", "), sentence));
    return !labels.empty();
  };
  using enum Communication;
  const bool asynchronous = say([](const auto& one) { return one.facts.asynchronous; }, "");
  say([](const auto& one) { return !one.facts.asynchronous && one.facts.done >= 0; },
      (asynchronous ? "on the compute stream. " : "") + why_synchronous(asynchronous));
  const bool pipelined = say([](const auto& one) { return one.facts.kind == all_gather && one.facts.pipelined; }, "");
  say([](const auto& one) { return one.facts.kind == all_gather && why_exposed(one) == "boundary"; },
      pipelined
          ? "the first of an iteration has nothing before it, and XLA did not pipeline it: nothing passes the "
            "barrier of jax.checkpoint."
          : fmt::format("the first of an iteration has nothing before it. {} gathers one iteration ahead, for another "
                        "iteration's weights in memory; not through the barrier of jax.checkpoint.",
                        gathers_ahead(module_.since_0_11_1)));
  say([](const auto& one) { return one.facts.operands > 1 && one.facts.asynchronous && one.products == 0; },
      "combined into one that nothing hides. A lower XLA_FLAGS=--xla_gpu_all_gather_combine_threshold_bytes "
      "(reduce_scatter, all_reduce likewise) parts them; XLA compares it with a gather's whole result, but with a "
      "reduce-scatter's shard.");
  say([](const auto& one) { return one.sliced; },
      "all-reduced, and only a slice is used: twice a reduce-scatter's bytes. Give the gradient its parameter's "
      "sharding: jax.lax.with_sharding_constraint(grad, NamedSharding(mesh, PartitionSpec('fsdp', None))).");
  const auto gathers_weight = [](const auto& one) { return !one.parameter.empty(); };
  const bool weights = say(gathers_weight, "");
  say(
      [](const auto& one) {
        return (one.facts.kind == reduce_scatter || one.facts.kind == all_reduce) &&
               one.phase() == schedule::Phase::forward;
      },
      weights || !say([](const auto& one) { return one.facts.kind == all_gather; }, "")
          ? "activations are summed in forward. Tensor parallelism does that; without it the batch is not split over "
            "the axis of the weights: PartitionSpec(('data', 'fsdp')) for the batch."
          : "XLA gathers and sums activations, no weights. The batch is not split over the axis of the weights: "
            "PartitionSpec(('data', 'fsdp')) for the batch, and with_sharding_constraint at each block's end.");
  say([&](const auto& one) { return gathers_weight(one) && mentions(one.path, "rematted_computation"); },
      "gathered again, because jax.checkpoint computes the block again. Without jax.checkpoint, and outside of scan, "
      "XLA gathers each weight once and keeps it.");
  say([](const auto& one) { return one.facts.kind == all_to_all && !one.path.ends_with("all_to_all"); },
      "nobody wrote an all_to_all: XLA moves activations from one sharding to another. "
      "jax.lax.with_sharding_constraint on what is before and behind it says which one both have.");
  say([](const auto& one) { return mentions(one.name, ".remat"); },
      "XLA's own rematerialisation does it again: the program is over its limit of memory, of which "
      "XLA_FLAGS=--xla_gpu_memory_limit_slop_factor is the percentage.");
  say([&](const auto& one) { return gathers_weight(one) && one.facts.dtype == "f32"; },
      "gathered in f32, twice the bytes of bf16. Cast the shard before its use: w.astype(jnp.bfloat16).");
}

}  // namespace

HloProgram place_collectives(const HloModule& module, const config::Cluster* cluster) {
  return Placer(module, cluster).place();
}

std::string gathers_ahead(std::optional<bool> since_0_11_1) {
  if (since_0_11_1.value_or(false)) return "XLA_FLAGS=--xla_gpu_pipeline_all_gather=on";
  return std::string("XLA_FLAGS=--xla_gpu_enable_pipelined_all_gather=true") +
         (since_0_11_1 ? "" : " (from JAX 0.11.1 on --xla_gpu_pipeline_all_gather=on)");
}

std::string why_synchronous(bool others, bool since_0_7_2) {
  if (others) {
    return "XLA found nothing to run meanwhile in the same computation. --xla_gpu_disable_async_collectives must not "
           "name their kind.";
  }
  return fmt::format(
      "no collective is asynchronous: XLA's latency hiding scheduler did not run. On GPUs before Hopper{} "
      "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true starts it.",
      since_0_7_2 ? "" : ", or before JAX 0.7.2,");
}

std::vector<std::string> on_compute_stream(const RankRows& rank) {
  if (!rank.xla || rank.computes_on_host()) return {};
  int compute = -1;
  const std::vector<StreamRole> roles = stream_roles(rank, compute);
  const auto steps = static_cast<double>(std::max<std::size_t>(1, rank.steps.size()));
  std::map<std::string, std::pair<double, int>> sums;  // by what they are: milliseconds, and how many
  double all_ms = 0;
  bool elsewhere = false, gathers = false;
  for (const DeviceRow& row : rank.device) {
    if (row.kind != Activity::collective) continue;
    elsewhere = elsewhere || row.stream != compute;
    if (row.stream != compute) continue;
    const CollectiveFacts facts = row.collective < 0 ? CollectiveFacts() : rank.collectives[row.collective];
    const std::int64_t bytes = std::max(facts.elements_in, facts.elements_out) * bytes_of_dtype(facts.dtype);
    std::string what(to_string(facts.kind));
    if (bytes > 0) what += " of " + format_bytes(bytes);
    if (row.phase >= 0) what += fmt::format(" in {}", schedule::to_string(static_cast<schedule::Phase>(row.phase)));
    const double ms = static_cast<double>(row.end_ns - row.begin_ns) / 1e6 / steps;
    sums[what].first += ms;
    ++sums[what].second;
    all_ms += ms;
    gathers = gathers || facts.kind == Communication::all_gather;
  }
  if (sums.empty()) return {};
  const double busy_ms = static_cast<double>(roles[compute].busy_ns) / 1e6 / steps;
  std::vector<std::string> told{fmt::format("{:.3f} of the {:.3f} ms a step that it is busy, {:.1f} %: {}", all_ms,
                                            busy_ms, 100 * all_ms / busy_ms,
                                            why_synchronous(elsewhere, rank.xla->since_0_11_1.has_value()))};
  std::vector<std::pair<std::string, std::pair<double, int>>> most(sums.begin(), sums.end());
  std::ranges::stable_sort(most, std::greater<>(), [](const auto& one) { return one.second.first; });
  most.resize(std::min<std::size_t>(most.size(), 4));
  for (const auto& [what, sum] : most)
    told.push_back(fmt::format("{}: {:.3f} ms, {:.3g} a step", what, sum.first, sum.second / steps));
  if (gathers)
    told.push_back(
        fmt::format("Gathers in a loop: {} begins them an iteration ahead, beside its products; not through the "
                    "barrier of jax.checkpoint.",
                    gathers_ahead(rank.xla->since_0_11_1)));
  return told;
}

HloModule read_hlo(const std::string& path) {
  constexpr std::uint64_t kMost = std::uint64_t{2} << 30;  // what protobuf itself can hold
  trace::InputFile file(path, kMost);
  const std::string bytes(std::istreambuf_iterator<char>(&file), {});
  if (!file.error().empty()) throw ConfigError(fmt::format("cannot be read: {}.", file.error()));
  if (std::string_view(bytes).substr(0, 4096).find("HloModule ") != std::string_view::npos)
    return parse_hlo_text(bytes);
  if (path.find(".xplane.pb") == path.npos) return parse_hlo_proto(bytes);
  const auto modules = modules_in_xspace(bytes);
  if (modules.empty()) throw ConfigError("has no module of XLA.");
  return parse_hlo_proto(*std::ranges::max_element(modules, {}, &std::string_view::size));
}

std::string hlo_report(const HloProgram& program) {
  std::string text =
      fmt::format("{}: {} devices, {}\n\n", clean_text(program.name, kMostOfACell), program.devices,
                  program.scheduled ? "in the order of launches" : "not scheduled: the order is not that of launches");
  for (const std::string& line : program.order) text += app::text_line(line);
  text +=
      "+ begins, - is waited for, ! not asynchronous, Gn matrix products, <n> combined, p pipelined, +1 another like "
      "it\n\n";
  const bool timed = program.seconds > 0;
  constexpr double kLeast = 200;                              // half a percent of the step; below that it is hidden
  const auto first_key = [](const std::string& parameters) {  // "['up']" of "params['up'], params['down']"
    const std::size_t begin = std::min(parameters.find('['), parameters.size());
    return parameters.substr(begin, parameters.find(", ") - begin);
  };
  struct Alike {
    std::vector<std::string> cells;
    PlacedCollective sum;
    int others = 0;
  };
  std::vector<Alike> alike;
  double exposed = 0;
  for (const PlacedCollective& one : program.collectives) {
    exposed += one.exposed_seconds;
    if (timed && one.exposed_seconds * kLeast < program.seconds) continue;
    const std::vector<std::string> cells{
        one.label.substr(0, 2),
        fmt::format("{:.3f}", static_cast<double>(one.bytes()) / 1e6),
        one.facts.dtype,
        one.ranks > 0 ? std::to_string(one.ranks) : "?",
        one.facts.done < 0 ? "" : fmt::format("G{} and {}", one.products, one.kernels + one.collectives),
        one.parameter.empty() ? clean_text(one.path.substr(one.path.rfind('/') + 1), 40) : first_key(one.parameter),
        why_exposed(one)};
    const auto known = std::ranges::find(alike, cells, &Alike::cells);
    if (known == alike.end()) {
      alike.push_back({cells, one});
      continue;
    }
    ++known->others;
    known->sum.times += one.times;
    known->sum.seconds += one.seconds;
    known->sum.exposed_seconds += one.exposed_seconds;
  }
  app::Table table;
  table.header = {"collective", "a step", "MB each", "type", "ranks", "between", "of", "why exposed"};
  if (timed) table.header.insert(table.header.end() - 2, {"ms", "exposed"});
  for (const auto& [cells, sum, others] : alike) {
    std::vector<std::string>& row = table.rows.emplace_back(cells);
    row[0] = others > 0 ? fmt::format("{} +{}", sum.label, others) : sum.label;
    row.insert(row.begin() + 1, std::to_string(sum.times));
    if (timed) {
      row.insert(row.end() - 2,
                 {fmt::format("{:.3f}", sum.seconds * 1e3), fmt::format("{:.3f}", sum.exposed_seconds * 1e3)});
    }
  }
  text += app::format_table(table) + "\n";
  if (timed) {
    text += fmt::format(
        "{:.2f} ms a step: {:.2f} ms of kernels, {:.2f} ms of exposed communication. Hidden collectives are not "
        "listed.\n",
        program.seconds * 1e3, program.compute_seconds * 1e3, exposed * 1e3);
  }
  for (const std::string& sentence : program.advice) text += sentence + "\n";
  return text;
}

std::string hlo_json(const HloProgram& program) {
  using Json = nlohmann::ordered_json;
  Json json{{"module", clean_text(program.name, kMostOfACell)},
            {"scheduled", program.scheduled},
            {"devices", program.devices},
            {"order", program.order},
            {"collectives", Json::array()},
            {"loops", Json::array()}};
  for (const PlacedCollective& one : program.collectives) {
    Json row{{"name", clean_text(one.name, kMostOfACell)},
             {"label", one.label},
             {"kind", to_string(one.facts.kind)},
             {"asynchronous", one.facts.asynchronous},
             {"pipelined", one.facts.pipelined},
             {"times", one.times},
             {"depth", one.depth},
             {"bytes_in", one.facts.bytes_in},
             {"bytes_out", one.facts.bytes_out},
             {"dtype", one.facts.dtype},
             {"operands", one.facts.operands},
             {"products_between", one.products},
             {"kernels_between", one.kernels},
             {"collectives_between", one.collectives},
             {"sliced", one.sliced}};
    if (one.ranks > 0) row["ranks"] = one.ranks;
    if (const auto phase = one.phase()) row["phase"] = schedule::to_string(*phase);
    if (!one.parameter.empty()) row["parameter"] = one.parameter;
    if (program.seconds > 0) row["seconds"] = one.seconds, row["exposed_seconds"] = one.exposed_seconds;
    if (const std::string why = why_exposed(one); !why.empty()) row["why_exposed"] = why;
    json["collectives"].push_back(std::move(row));
  }
  for (const PlacedLoop& one : program.loops) {
    json["loops"].push_back({{"name", clean_text(one.name, kMostOfACell)},
                             {"depth", one.depth},
                             {"trips", one.trips},
                             {"double_buffered", one.doubled}});
  }
  if (program.seconds > 0) json["seconds"] = program.seconds, json["compute_seconds"] = program.compute_seconds;
  json["advice"] = program.advice;
  return json.dump(2) + "\n";
}

/// How long collectives on the stream of products took, if an xplane.pb tells it.
std::string measured(const std::string& path) {
  std::string text;
  try {
    for (const std::string& line : on_compute_stream(read_job({path}).ranks.front()))
      text += (text.empty() ? "\nCollectives on the stream that computes\n" : "") + app::text_line("- " + line);
  } catch (const ConfigError&) {  // a module, and no rows of a device
  }
  return text;
}

std::string hlo_answer(const std::string& path, const std::string& cluster, bool json) {
  std::optional<config::Cluster> machine;
  if (!cluster.empty()) machine = config::load_cluster(cluster);
  try {
    const HloProgram program = place_collectives(read_hlo(path), machine ? &*machine : nullptr);
    if (json) return hlo_json(program);
    return hlo_report(program) + (path.find(".xplane.pb") == path.npos ? "" : measured(path));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace fsdpbench::foreign
