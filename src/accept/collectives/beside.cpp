#include "accept/collectives/beside.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <vector>

#include "accept/collectives/collective_buffers.h"
#include "accept/collectives/collective_row.h"
#include "accept/collectives/collective_timer.h"
#include "account/statistics.h"
#include "backend/kernels.h"
#include "base/bytes.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "base/read_input.h"
#include "record/console.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using backend::Gemm;
using backend::Kernels;
using backend::RankContext;
using backend::Stamp;

constexpr double kMostOpsRatio = 64;  // of a quick kind to -n of the slow one

/// Bytes of the largest matrix of any product.
std::int64_t largest_operand(const std::vector<ProductShape>& shapes) {
  std::int64_t most = 0;
  for (const ProductShape& p : shapes) {
    most = std::max({most, checked_product(p.m, p.k), checked_product(p.k, p.n), checked_product(p.m, p.n)});
  }
  return checked_product(most, size_of(DType::f32));
}

/// A set of kinds that run at once.
using Running = std::array<bool, kNeighbours>;

class BesideRank {
 public:
  BesideRank(const CollectivesArguments& arguments, RankContext& context, RankMeeting& meeting)
      : a_(arguments),
        context_(context),
        meeting_(meeting),
        second_(context.world.split(0, context.rank)),
        gathered_(context, *arguments.most_bytes, Lane::all_gather),
        reduced_(context, *arguments.most_bytes, Lane::reduce_scatter),
        matrices_(context, largest_operand(arguments.matrices)) {
    context.device.synchronize();
  }

  BesideRow row(std::int64_t size, const ProductShape& shape) {
    shape_ = shape;
    const int ranks = context_.world.size();
    messages_ = {Message::of_size(Collective::all_gather, a_.dtypes.front(), size, ranks),
                 Message::of_size(Collective::reduce_scatter, a_.dtypes.front(), size, ranks)};
    const Pattern pattern(a_.dtypes.front(), true, ranks, static_cast<std::uint64_t>(size));
    gathered_.fill(messages_[0], true, pattern);
    reduced_.fill(messages_[1], false, pattern);

    BesideRow row;
    row.size = size;
    row.matrix = shape;
    row.dtype = product_dtype(a_);
    std::array<std::size_t, kNeighbours> counts;
    counts.fill(a_.iterations);
    run({true, true, true}, {1, 1, 1});  // warms everything up
    std::array<Durations, kNeighbours> alone;
    for (std::size_t who = 0; who < kNeighbours; ++who) alone[who] = run(only(who), counts);
    const std::array<std::size_t, kNeighbours> together = balanced(alone);
    std::array<Durations, kNeighbours> without;  // without[k]: the pair that lacks k
    Durations all;
    for (std::size_t k = 0; k < kNeighbours; ++k) append(without[k], run(but(k), together));
    for (int twice = 0; twice < 2; ++twice) append(all, run({true, true, true}, together));
    for (std::size_t k = kNeighbours; k-- > 0;) append(without[k], run(but(k), together));
    for (std::size_t who = kNeighbours; who-- > 0;) append(alone[who], run(only(who), counts));

    for (std::size_t who = 0; who < kNeighbours; ++who) {
      row.alone_us[who] = of_slowest(alone[who][who]);
      for (std::size_t beside = 0; beside < kNeighbours; ++beside) {
        if (beside != who) row.beside_us[who][beside] = of_slowest(without[kNeighbours - who - beside][who]);
      }
      row.together_us[who] = of_slowest(all[who]);
    }
    return row;
  }

 private:
  static Running only(std::size_t who) {
    Running running{};
    running[who] = true;
    return running;
  }
  static Running but(std::size_t who) {
    Running running{true, true, true};
    running[who] = false;
    return running;
  }
  static void append(Durations& to, const Durations& more) {
    for (std::size_t k = 0; k < kNeighbours; ++k) to[k].insert(to[k].end(), more[k].begin(), more[k].end());
  }

  /// balanced_counts() of what ran alone, on the slowest rank; the same on all ranks.
  std::array<std::size_t, kNeighbours> balanced(const std::array<Durations, kNeighbours>& alone) {
    std::vector<double> us;
    for (std::size_t who = 0; who < kNeighbours; ++who) us.push_back(of_slowest(alone[who][who]).value_or(0));
    return balanced_counts(meeting_.broadcast(context_, us), a_.iterations);
  }

  void issue(std::size_t who, Stamp* stamp) {
    switch (static_cast<Neighbour>(who)) {
      case Neighbour::all_gather: return gathered_.issue(context_.world, messages_[0], true, 1, stamp);
      case Neighbour::reduce_scatter: return reduced_.issue(*second_, messages_[1], false, 1, stamp);
      case Neighbour::matrix_product:
        return context_.device.enqueue(
            Lane::compute, "gemm",
            [this](Kernels& kernels) {
              kernels.gemm(Gemm{.a = matrices_[0],
                                .b = matrices_[1],
                                .c = matrices_[2],
                                .m = shape_.m,
                                .n = shape_.n,
                                .k = shape_.k,
                                .input_dtype = product_dtype(a_),
                                .output_dtype = product_dtype(a_)});
            },
            stamp);
    }
  }

  /// Runs them at once, and returns how long each op took that ran while all kinds were busy.
  Durations run(const Running& running, const std::array<std::size_t, kNeighbours>& counts) {
    std::array<std::vector<Stamp>, kNeighbours> stamps;
    std::array<std::size_t, kNeighbours> issued{};
    for (std::size_t k = 0; k < kNeighbours; ++k) stamps[k].resize(running[k] ? counts[k] : 0);
    context_.world.barrier();
    const auto product = static_cast<std::size_t>(Neighbour::matrix_product);
    if (running[product]) {  // the host needs less for a collective than for a product: these begin when those do
      issue(product, nullptr);
      constexpr backend::Device::Event kBegun = 0;
      context_.device.record(kBegun, Lane::compute);
      for (const Lane lane : {Lane::all_gather, Lane::reduce_scatter}) context_.device.wait(lane, kBegun);
    }
    for (;;) {  // whoever is furthest behind, so that no lane runs dry
      std::size_t next = kNeighbours;
      double least{};
      for (std::size_t k = 0; k < kNeighbours; ++k) {
        if (issued[k] == stamps[k].size()) continue;
        const double share = static_cast<double>(issued[k]) / static_cast<double>(stamps[k].size());
        if (next == kNeighbours || share < least) {
          least = share;
          next = k;
        }
      }
      if (next == kNeighbours) break;
      issue(next, &stamps[next][issued[next]++]);
    }
    context_.device.synchronize();
    context_.device.settle_stamps();
    return while_all_ran(stamps);
  }

  /// On rank 0 the median of the rank whose is longest; absent if a rank has none. Collective.
  std::optional<double> of_slowest(const std::vector<double>& mine) {
    double slowest = 0;
    const std::vector<double> median = mine.empty() ? mine : std::vector{account::median(mine)};
    for (const std::vector<double>& of_rank : meeting_.gather(context_, median)) {
      if (of_rank.empty()) return std::nullopt;
      slowest = std::max(slowest, of_rank.front());
    }
    if (context_.rank != 0) return std::nullopt;
    return slowest;
  }

  const CollectivesArguments& a_;
  RankContext& context_;
  RankMeeting& meeting_;
  std::unique_ptr<backend::Communicator> second_;
  CollectiveBuffers gathered_;
  CollectiveBuffers reduced_;
  const Blocks<3> matrices_;
  ProductShape shape_;
  std::array<Message, 2> messages_;
};

std::optional<double> ratio(std::optional<double> time, std::optional<double> alone) {
  if (!time || !alone || !(*alone > 0)) return std::nullopt;
  return *time / *alone;
}

constexpr const char* kExpectedBeside = "expected the file of `fsdpbench collectives --beside -J FILE`";

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
  EnumMap<Neighbour>::read(part.at("alone_us"), row.alone_us);
  EnumMap<Neighbour>::read(part.at("together_us"), row.together_us);
  EnumMap<Neighbour, EnumMap<Neighbour>>::read(part.at("beside_us"), row.beside_us);
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

std::string_view to_string(Neighbour neighbour) {
  constexpr EnumNames<Neighbour> kNames{"all_gather", "reduce_scatter", "matrix_product"};
  return kNames[neighbour];
}

std::optional<double> BesideRow::slowdown(Neighbour who, Neighbour beside) const {
  const auto w = static_cast<std::size_t>(who);
  return ratio(beside_us[w][static_cast<std::size_t>(beside)], alone_us[w]);
}

std::optional<double> BesideRow::slowdown_together(Neighbour who) const {
  const auto w = static_cast<std::size_t>(who);
  return ratio(together_us[w], alone_us[w]);
}

std::array<std::size_t, kNeighbours> balanced_counts(const std::vector<double>& us, int iterations) {
  const double longest = *std::ranges::max_element(us);
  std::array<std::size_t, kNeighbours> counts{};
  for (std::size_t who = 0; who < kNeighbours; ++who) {
    const double ratio = us[who] > 0 ? std::min(longest / us[who], kMostOpsRatio) : 1;
    counts[who] = static_cast<std::size_t>(std::ceil(ratio * iterations));
  }
  return counts;
}

Durations while_all_ran(const std::array<std::vector<Stamp>, kNeighbours>& stamps) {
  std::int64_t from = 0;
  std::int64_t to = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<Stamp>& kind : stamps) {
    if (kind.empty()) continue;
    from = std::max(from, kind.front().begin_ns);
    to = std::min(to, kind.back().end_ns);
  }
  Durations durations;
  for (std::size_t k = 0; k < kNeighbours; ++k) {
    std::vector<Stamp> within = stamps[k];
    std::erase_if(within, [&](const Stamp& stamp) { return stamp.begin_ns < from || stamp.end_ns > to; });
    durations[k] = microseconds(within);
  }
  return durations;
}

DType product_dtype(const CollectivesArguments& arguments) {
  return arguments.dtypes.front() == DType::bf16 ? DType::bf16 : DType::f32;
}

std::int64_t beside_bytes(const CollectivesArguments& arguments) {
  return Blocks<3>::bytes(largest_operand(arguments.matrices));
}

void measure_beside(const CollectivesArguments& arguments, int max_ctas, RankContext& context, RankMeeting& meeting,
                    const std::function<void(const BesideRow&)>& on_row) {
  BesideRank rank(arguments, context, meeting);
  for (const std::int64_t size : sweep_sizes(arguments)) {
    for (const ProductShape& shape : arguments.matrices) {
      BesideRow row = rank.row(size, shape);
      row.max_ctas = max_ctas;
      if (context.rank == 0) on_row(row);
    }
  }
}

BesideFile read_beside(const std::string& path) {
  const nlohmann::json content = parse_json(read_input(path, kMostOfAResult, kExpectedBeside));
  if (content.is_discarded())
    throw ConfigError(fmt::format("{}: is not JSON, or was cut off; {}.", path, kExpectedBeside));
  try {
    const JsonPart json(content);
    if (json.text("kind", "") != "collectives" || !json.has("beside"))
      json.refuse("collectives measured with --beside");
    check_result(content);
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
