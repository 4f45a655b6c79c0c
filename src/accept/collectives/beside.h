#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accept/collectives/collectives_options.h"
#include "backend/backend.h"
#include "base/enum_table.h"
#include "config/calibration.h"
#include "runs/world.h"

namespace fsdpbench::app {

class RankMeeting;

/// Kinds of work that run at once in FSDP's backward pass. The two collectives have communicators of their own.
enum class Neighbour : std::uint8_t { all_gather, reduce_scatter, matrix_product };
inline constexpr std::size_t kNeighbours = kEnumCount<Neighbour>;
std::string_view to_string(Neighbour neighbour);

/// Slowdowns of ops by each other, for messages of one size and products of one shape.
struct BesideRow {
  using Times = std::array<std::optional<double>, kNeighbours>;

  std::int64_t size = 0;  ///< of the sweep
  ProductShape matrix;
  DType dtype = DType::f32;  ///< of the product
  int max_ctas = 0;          ///< of NCCL's kernels; 0: its choice
  Times alone_us;            ///< median of an op, of the slowest rank
  std::array<Times, kNeighbours>
      beside_us;      ///< [who][beside whom]; absent on the diagonal, and if no op ran within the other
  Times together_us;  ///< all three at once

  /// time / time alone; absent if one of them is.
  std::optional<double> slowdown(Neighbour who, Neighbour beside) const;
  std::optional<double> slowdown_together(Neighbour who) const;
};

using Durations = std::array<std::vector<double>, kNeighbours>;  ///< us of each op, by kind

/// Numbers of ops of each kind that take about as long as `iterations` of the slowest one, by what an op of each takes
/// alone.
std::array<std::size_t, kNeighbours> balanced_counts(const std::vector<double>& us, int iterations);

/// Durations of the ops that ran while all kinds were busy that have any. Those of a kind are in the order of time.
Durations while_all_ran(const std::array<std::vector<backend::Stamp>, kNeighbours>& stamps);

/// Type of the numbers that products multiply: that of the messages' type, or fp32 where those are no bf16.
DType product_dtype(const CollectivesArguments& arguments);

/// Device memory of a rank beside the two buffers of each collective.
std::int64_t beside_bytes(const CollectivesArguments& arguments);

/// `max_ctas` is what the ranks' communicators were made with. Called on every rank's host thread; rank 0's `on_row`
/// gets each size with each shape. An op counts as beside another kind only if that kind was busy from its begin to its
/// end. What runs alone is measured before and after what runs together, so that drift is not taken for an effect.
/// Numbers of ops are decided on rank 0, for all.
void measure_beside(const CollectivesArguments& arguments, int max_ctas, backend::RankContext& context,
                    RankMeeting& meeting, const std::function<void(const BesideRow&)>& on_row);

/// Slowdowns on a machine, as `collectives --beside -J` wrote them.
struct BesideFile {
  World world;
  std::vector<config::CalibrationSlowdown> slowdowns;  ///< at least one; what could not be measured is left out
};

/// Throws ConfigError that names the file, the key, and what would be valid.
BesideFile read_beside(const std::string& path);

}  // namespace fsdpbench::app
