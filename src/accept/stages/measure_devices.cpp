#include "accept/stages/measure_devices.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "account/statistics.h"
#include "backend/kernels.h"
#include "base/clock.h"

namespace fsdpbench::app {
namespace {

using backend::Kernels;
using backend::RankContext;
using backend::Stamp;

constexpr int kOpsOfARound = 3;

/// Memory of one rank's device for as long as something is measured.
template <std::size_t kCount>
class Blocks {
 public:
  Blocks(RankContext& context, std::int64_t bytes) : context_(context) {
    for (std::byte*& block : blocks_) {
      block = context.device.allocate(bytes, MemoryCategory::activations, Lane::compute);
      context.device.enqueue(
          Lane::compute, "clear", [block, bytes](Kernels& kernels) { kernels.fill_zero(block, bytes); }, nullptr);
    }
  }
  ~Blocks() {
    try {
      for (std::byte* block : blocks_) context_.device.free(block, Lane::compute);
    } catch (...) {  // the run has failed: the device goes, and its memory with it
    }
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  std::byte* operator[](std::size_t i) const { return blocks_[i]; }

 private:
  RankContext& context_;
  std::array<std::byte*, kCount> blocks_{};
};

/// What `one` gives in each of the rounds, which all ranks begin together; before the first of them `one` warms up.
accept::DeviceRounds measure_rounds(const std::function<double()>& one, int rounds, RankContext& context,
                                    RankMeeting& meeting, const BeginRounds& begin, const GoesOn& goes_on) {
  const std::int64_t first_ns = now_ns();
  one();
  if (!begin(static_cast<double>(now_ns() - first_ns) * 1e-9, rounds)) return {};
  std::vector<double> mine;
  for (int round = 0; round < rounds && (round == 0 || goes_on()); ++round) {
    context.world.barrier();
    mine.push_back(one());
  }
  const std::vector<std::vector<double>> all = meeting.gather(context, mine);
  accept::DeviceRounds rates;
  for (std::size_t round = 0; !all.empty() && round < mine.size(); ++round) {
    std::vector<double>& of_round = rates.emplace_back();
    for (const std::vector<double>& of_rank : all) of_round.push_back(of_rank.at(round));
  }
  return rates;
}

/// `amount` of one op over the median time of a round's.
accept::DeviceRounds measure_op(const char* name, const std::function<void(Kernels&)>& op, double amount, int rounds,
                                RankContext& context, RankMeeting& meeting, const BeginRounds& begin,
                                const GoesOn& goes_on) {
  context.device.synchronize();
  const auto one = [&] {
    std::vector<Stamp> stamps(kOpsOfARound);
    for (Stamp& stamp : stamps) context.device.enqueue(Lane::compute, name, op, &stamp);
    context.device.synchronize();
    context.device.settle_stamps();
    std::vector<double> seconds;
    for (const Stamp& stamp : stamps) seconds.push_back(static_cast<double>(stamp.end_ns - stamp.begin_ns) * 1e-9);
    const double median = account::median(std::move(seconds));
    return median > 0 ? amount / median : 0;
  };
  return measure_rounds(one, rounds, context, meeting, begin, goes_on);
}

}  // namespace

accept::DeviceRounds measure_products(int rows, int rounds, RankContext& context, RankMeeting& meeting,
                                      const BeginRounds& begin, const GoesOn& goes_on) {
  const std::int64_t n = rows;
  const Blocks<3> matrices(context, n * n * size_of(DType::f32));
  const auto product = [&](Kernels& kernels) {
    kernels.gemm({.a = matrices[0], .b = matrices[1], .c = matrices[2], .m = n, .n = n, .k = n});
  };
  const double flops = 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  return measure_op("gemm", product, flops, rounds, context, meeting, begin, goes_on);
}

accept::DeviceRounds measure_memory(std::int64_t bytes, int rounds, RankContext& context, RankMeeting& meeting,
                                    const BeginRounds& begin, const GoesOn& goes_on) {
  if (!context.device.computes()) return {};
  const Blocks<2> blocks(context, bytes);
  const auto copy = [&](Kernels& kernels) {
    kernels.cast({blocks[0], DType::f32}, {blocks[1], DType::f32}, bytes / size_of(DType::f32), 1);
  };
  return measure_op("copy", copy, 2 * static_cast<double>(bytes), rounds, context, meeting, begin, goes_on);
}

accept::DeviceRounds measure_host_copies(std::int64_t bytes, int rounds, RankContext& context, RankMeeting& meeting,
                                         const BeginRounds& begin, const GoesOn& goes_on) {
  const auto size = static_cast<std::size_t>(bytes);
  const std::vector<std::byte> source(size, std::byte{1});
  std::vector<std::byte> target(size);
  const auto one = [&] {
    const std::int64_t began_ns = now_ns();
    std::memcpy(target.data(), source.data(), size);
    const auto took_ns = static_cast<double>(std::max<std::int64_t>(1, now_ns() - began_ns));
    // Read, so that no compiler leaves the copy out.
    return target.back() == std::byte{1} ? 2 * static_cast<double>(bytes) / took_ns * 1e9 : 0;
  };
  return measure_rounds(one, rounds, context, meeting, begin, goes_on);
}

accept::DeviceRounds measure_device_copies(HostCopy way, std::int64_t bytes, int rounds, RankContext& context,
                                           RankMeeting& meeting, const BeginRounds& begin, const GoesOn& goes_on) {
  std::byte* const host = context.device.host_buffer(bytes);
  std::memset(host, 1, static_cast<std::size_t>(bytes));
  const Blocks<1> blocks(context, bytes);
  const auto upload = [&](Kernels& kernels) { kernels.upload(host, blocks[0], bytes); };
  const auto download = [&](Kernels& kernels) { kernels.download(blocks[0], host, bytes); };
  const auto amount = static_cast<double>(bytes);
  return way == HostCopy::to_device ? measure_op("upload", upload, amount, rounds, context, meeting, begin, goes_on)
                                    : measure_op("download", download, amount, rounds, context, meeting, begin, goes_on);
}

accept::DeviceRounds measure_launches(int rounds, RankContext& context, RankMeeting& meeting, const BeginRounds& begin,
                                      const GoesOn& goes_on) {
  constexpr int kLaunchesOfARound = 20;
  constexpr std::int64_t kLittle = 4;  // bytes
  constexpr backend::Device::Event kDone = 0;
  const Blocks<1> blocks(context, kLittle);
  context.device.synchronize();
  const auto one = [&] {
    std::vector<double> us;
    for (int i = 0; i < kLaunchesOfARound; ++i) {
      const std::int64_t began_ns = now_ns();
      context.device.enqueue(
          Lane::compute, "launch", [&](Kernels& kernels) { kernels.fill_zero(blocks[0], kLittle); }, nullptr);
      context.device.record(kDone, Lane::compute);
      context.device.host_wait(kDone);
      us.push_back(static_cast<double>(now_ns() - began_ns) * 1e-3);
    }
    return account::median(std::move(us));
  };
  return measure_rounds(one, rounds, context, meeting, begin, goes_on);
}

}  // namespace fsdpbench::app
