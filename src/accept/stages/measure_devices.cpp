#include "accept/stages/measure_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "account/statistics.h"
#include "backend/kernels.h"
#include "base/bytes.h"
#include "base/clock.h"

namespace fsdpbench::app {
namespace {

using backend::Kernels;
using backend::RankContext;
using backend::Stamp;

constexpr int kOpsOfARound = 3;

/// Results of `one` in each of the rounds; before the first of them `one` warms up.
accept::DeviceRounds measure_rounds(const std::function<double()>& one, const Rounds& rounds) {
  const std::int64_t first_ns = now_ns();
  one();
  if (!rounds.begin(seconds_since(first_ns), rounds.count)) return {};
  std::vector<double> mine;
  for (int round = 0; round < rounds.count && (round == 0 || rounds.goes_on()); ++round) {
    rounds.context.world.barrier();
    mine.push_back(one());
  }
  const std::vector<std::vector<double>> all = rounds.meeting.gather(rounds.context, mine);
  accept::DeviceRounds rates;
  for (std::size_t round = 0; !all.empty() && round < mine.size(); ++round) {
    std::vector<double>& of_round = rates.emplace_back();
    for (const std::vector<double>& of_rank : all) of_round.push_back(of_rank.at(round));
  }
  return rates;
}

/// `amount` of one op over the median time of a round's.
accept::DeviceRounds measure_op(const char* name, const std::function<void(Kernels&)>& op, double amount,
                                const Rounds& rounds) {
  backend::Device& device = rounds.context.device;
  device.synchronize();
  const auto one = [&] {
    std::vector<Stamp> stamps(kOpsOfARound);
    for (Stamp& stamp : stamps) device.enqueue(Lane::compute, name, op, &stamp);
    device.synchronize();
    device.settle_stamps();
    const double us = account::median(microseconds(stamps));
    return us > 0 ? amount / us * 1e6 : 0;
  };
  return measure_rounds(one, rounds);
}

using backend::Collective;
using backend::Communicator;

std::int64_t largest_bytes(const ScaleEffort& effort, int ranks) {
  return checked_product(effort.count, ranks, std::max(size_of(effort.gathered), size_of(effort.reduced)));
}

/// Seconds in which every link carries so many times what a rank holds, in each iteration.
std::optional<double> about_s(const ScaleEffort& effort, int times) {
  if (!(effort.link_bytes_per_s > 0)) return std::nullopt;
  const auto bytes = static_cast<double>(effort.count * std::max(size_of(effort.gathered), size_of(effort.reduced)));
  return bytes * times * (effort.iterations + 1) / effort.link_bytes_per_s;
}

class ScaleRank {
 public:
  ScaleRank(const ScaleEffort& effort, RankContext& context, RankMeeting& meeting)
      : effort_(effort),
        context_(context),
        meeting_(meeting),
        buffers_(context, largest_bytes(effort, context.world.size()), Lane::all_gather) {
    context.device.synchronize();
  }

  Message message(Collective op, int ranks) const {
    return {op, op == Collective::all_gather ? effort_.gathered : effort_.reduced, effort_.count, ranks};
  }

  CollectiveRow row(Collective op, Communicator& group) {
    CollectiveRow row;
    row.message = message(op, group.size());
    if (row.message.reduces()) row.reduction = Reduction::sum;
    Timing timing;
    timing.iterations_us = times(op, group);
    if (!timing.iterations_us.empty()) {
      timing.scatter = scatter_of(timing.iterations_us);
      timing.time_us = timing.scatter.mean_us;
    }
    (op == Collective::reduce_scatter ? row.out_of_place : row.in_place) = std::move(timing);
    return row;
  }

 private:
  /// On rank 0 microseconds of single iterations on the slowest rank; elsewhere empty.
  std::vector<double> times(Collective op, Communicator& group) {
    std::vector<Stamp> stamps(effort_.iterations);
    issue(op, group, nullptr);
    context_.device.synchronize();
    context_.world.barrier();
    for (Stamp& stamp : stamps) issue(op, group, &stamp);
    context_.device.synchronize();
    context_.device.settle_stamps();
    std::vector<double> slowest;
    for (const std::vector<double>& of_rank : meeting_.gather(context_, microseconds(stamps))) {
      slowest.resize(stamps.size());
      for (std::size_t i = 0; i < stamps.size(); ++i) slowest[i] = std::max(slowest[i], of_rank.at(i));
    }
    return slowest;
  }

  void issue(Collective op, Communicator& group, Stamp* stamp) {
    const Message m = message(op, group.size());
    if (op == Collective::all_gather) {
      group.all_gather(Lane::all_gather, buffers_[0] + group.rank() * m.part_bytes(), buffers_[0], m.count, m.dtype,
                       stamp);
    } else {
      group.reduce_scatter(Lane::reduce_scatter, buffers_[1], buffers_[2], m.count, m.dtype, 1, stamp);
    }
  }

  const ScaleEffort& effort_;
  RankContext& context_;
  RankMeeting& meeting_;
  Blocks<3> buffers_;  // what gathers fill, the whole that is reduced, and a part of it
};

}  // namespace

accept::DeviceRounds measure_products(int rows, const Rounds& rounds) {
  const std::int64_t n = rows;
  const Blocks<3> matrices(rounds.context, n * n * size_of(DType::f32));
  const auto product = [&](Kernels& kernels) {
    kernels.gemm({.a = matrices[0], .b = matrices[1], .c = matrices[2], .m = n, .n = n, .k = n});
  };
  const double flops = 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  return measure_op("gemm", product, flops, rounds);
}

accept::DeviceRounds measure_memory(std::int64_t bytes, const Rounds& rounds) {
  if (!rounds.context.device.computes()) return {};
  const Blocks<2> blocks(rounds.context, bytes);
  const auto copy = [&](Kernels& kernels) {
    kernels.cast({blocks[0], DType::f32}, {blocks[1], DType::f32}, bytes / size_of(DType::f32), 1);
  };
  return measure_op("copy", copy, 2 * static_cast<double>(bytes), rounds);
}

accept::DeviceRounds measure_launches(const Rounds& rounds) {
  constexpr int kLaunchesOfARound = 20;
  constexpr std::int64_t kLittle = 4;  // bytes
  constexpr backend::Device::Event kDone = 0;
  backend::Device& device = rounds.context.device;
  const Blocks<1> blocks(rounds.context, kLittle);
  device.synchronize();
  const auto one = [&] {
    std::vector<double> us;
    for (int i = 0; i < kLaunchesOfARound; ++i) {
      const std::int64_t began_ns = now_ns();
      device.enqueue(
          Lane::compute, "launch", [&](Kernels& kernels) { kernels.fill_zero(blocks[0], kLittle); }, nullptr);
      device.record(kDone, Lane::compute);
      device.host_wait(kDone);
      us.push_back(us_since(began_ns));
    }
    return account::median(std::move(us));
  };
  return measure_rounds(one, rounds);
}

std::int64_t scale_bytes(const ScaleEffort& effort, int ranks) {
  return Blocks<3>::bytes(largest_bytes(effort, ranks));
}

std::vector<CollectiveRow> measure_scales(
    const accept::Cluster& cluster, const ScaleEffort& effort, RankContext& context, RankMeeting& meeting,
    const std::function<bool(const std::string&, std::optional<double>)>& begins) {
  std::vector<CollectiveRow> rows;
  ScaleRank rank(effort, context, meeting);
  for (const accept::Scale& scale : accept::scales_of(cluster)) {
    const std::string name = fmt::format("collectives in groups of {}", scale.ranks);
    if (!begins(name, about_s(effort, 2 * (scale.ranks - 1)))) break;
    const std::unique_ptr<Communicator> group = context.world.split(context.rank / scale.ranks, context.rank);
    for (const Collective op : {Collective::all_gather, Collective::reduce_scatter}) {
      rows.push_back(rank.row(op, *group));
    }
  }
  return rows;
}

}  // namespace fsdpbench::app
