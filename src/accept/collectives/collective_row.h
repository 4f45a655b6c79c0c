#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accept/collectives/collectives_options.h"

namespace fsdpbench::app {

/// One message: what is moved, and how its bytes are counted (nccl-tests' conventions).
struct Message {
  backend::Collective op = backend::Collective::all_gather;
  DType dtype = DType::f32;
  std::int64_t count = 0;  ///< elements: of all-gather, reduce-scatter and all-to-all those of one part, else all
  int ranks = 1;

  /// The largest that `size` bytes allow: of those that have parts each is a multiple of 16 bytes.
  static Message of_size(backend::Collective op, DType dtype, std::int64_t size, int ranks);

  bool parted() const {
    using enum backend::Collective;
    return op == all_gather || op == reduce_scatter || op == all_to_all;
  }
  /// Whether there is such a call in one buffer.
  bool can_be_in_place() const { return op != backend::Collective::all_to_all && op != backend::Collective::send_recv; }
  bool reduces() const { return op == backend::Collective::reduce_scatter || op == backend::Collective::all_reduce; }
  std::int64_t part_bytes() const { return count * size_of(dtype); }
  /// Bytes that algbw counts: gathered, or to be reduced, or all.
  std::int64_t bytes() const { return part_bytes() * (parted() ? ranks : 1); }
  /// busbw / algbw: (n-1)/n, 2(n-1)/n of all-reduce, 1 of broadcast and send-recv (nccl-tests, doc/PERFORMANCE).
  double bus_factor() const;
};

/// Scatter of single iterations. Percentiles are nearest rank, the deviation is of the population, as nccl-tests'.
struct Scatter {
  double min_us = 0, max_us = 0, mean_us = 0, p50_us = 0, p95_us = 0, p99_us = 0, deviation_us = 0;
  double cv_pct() const { return mean_us > 0 ? 100 * deviation_us / mean_us : 0; }
};
/// `times_us` must not be empty.
Scatter scatter_of(std::vector<double> times_us);

/// Measurement of one message in one arrangement of its buffers.
struct Timing {
  double time_us = 0;  ///< of an iteration within a burst of them, or alone with --check-all; over ranks as -a says
  std::vector<double> iterations_us;          ///< each alone; over ranks as -a says
  Scatter scatter;                            ///< of those
  std::vector<double> rank_us;                ///< time_us of each rank
  std::optional<std::int64_t> wrong;          ///< elements, of all ranks and all checks; absent: not checked
  std::vector<std::int64_t> rank_wrong;       ///< the same of each rank; empty: not checked
  std::vector<std::int64_t> iteration_wrong;  ///< the part of `wrong` of each timed iteration; empty: not checked
  bool has_wrong_data() const { return wrong.value_or(0) > 0; }
  double algorithm_gb_per_s(const Message& message) const {
    return time_us > 0 ? static_cast<double>(message.bytes()) / time_us * 1e-3 : 0;
  }
  double bus_gb_per_s(const Message& message) const { return algorithm_gb_per_s(message) * message.bus_factor(); }
};

/// One line of the table.
struct CollectiveRow {
  Message message;
  std::optional<Reduction> reduction;  ///< of those that reduce
  std::optional<int> root;             ///< of those that have one
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;  ///< absent: there is no such call
  std::string date;                ///< "2026-05-01 12:00:00"

  const Timing& timing() const { return in_place ? *in_place : *out_of_place; }
  bool has_wrong_data() const {
    return (out_of_place && out_of_place->has_wrong_data()) || (in_place && in_place->has_wrong_data());
  }
};

/// "sum", "avg".
std::string_view to_string(Reduction reduction);
/// nccl-tests' names: "float", "bfloat16", "int32", "double".
std::string_view type_name(DType dtype);

/// The values of one sample over ranks, which must not be empty.
double over_ranks(OverRanks how, const std::vector<double>& values);

}  // namespace fsdpbench::app
