#include "accept/collectives/collective_row.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "base/enum_table.h"

namespace fsdpbench::app {

using backend::Collective;

Message Message::of_size(Collective op, DType dtype, std::int64_t size, int ranks) {
  Message message{op, dtype, size / size_of(dtype), ranks};
  if (message.parted()) {
    constexpr std::int64_t kAlignment = 16;
    const std::int64_t step = kAlignment / size_of(dtype);
    message.count = message.count / ranks / step * step;
  }
  return message;
}

double Message::bus_factor() const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (op) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all: return others;
    case Collective::all_reduce: return 2 * others;
    case Collective::broadcast:
    case Collective::send_recv: return 1;
  }
  throw std::logic_error("bus_factor: no such collective");
}

Scatter scatter_of(std::vector<double> times_us) {
  std::ranges::sort(times_us);
  const auto n = static_cast<double>(times_us.size());
  const auto nearest = [&](double p) { return times_us[static_cast<std::size_t>(std::ceil(p * n)) - 1]; };
  Scatter s;
  s.min_us = times_us.front();
  s.max_us = times_us.back();
  s.mean_us = std::accumulate(times_us.begin(), times_us.end(), 0.0) / n;
  s.p50_us = times_us[times_us.size() / 2];
  s.p95_us = nearest(0.95);
  s.p99_us = nearest(0.99);
  double squares = 0;
  for (const double t : times_us) {
    const double off = t - s.mean_us;
    squares += off * off;
  }
  s.deviation_us = std::sqrt(squares / n);
  return s;
}

std::string_view to_string(Reduction reduction) { return reduction == Reduction::sum ? "sum" : "avg"; }

std::string_view type_name(DType dtype) {
  constexpr EnumNames<DType> kNames{"float", "bfloat16", "int32", "double", "uint8"};
  return kNames[dtype];
}

double over_ranks(OverRanks how, const std::vector<double>& values) {
  switch (how) {
    case OverRanks::rank_0: return values.front();
    case OverRanks::mean:
      return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    case OverRanks::least: return *std::ranges::min_element(values);
    case OverRanks::most: return *std::ranges::max_element(values);
  }
  throw std::logic_error("over_ranks: no such way");
}

}  // namespace fsdpbench::app
