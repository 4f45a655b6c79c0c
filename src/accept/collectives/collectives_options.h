#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/communicator.h"
#include "base/dtype.h"

namespace fsdpbench::app {

/// Rule that makes one time of the ranks' times of a sample: -a of nccl-tests.
enum class OverRanks : std::uint8_t { rank_0, mean, least, most };

/// Operation of a reduction; other collectives ignore it.
enum class Reduction : std::uint8_t { sum, average };

/// A product of an m x k matrix and a k x n one.
struct ProductShape {
  std::int64_t m = 512, n = 512, k = 512;
  bool operator==(const ProductShape&) const = default;
};

/// The command line of `fsdpbench collectives`: nccl-tests' options where they have a meaning here, and a few of its
/// own. collectives_options.h reads and describes each.
struct CollectivesArguments {
  std::vector<backend::Collective> ops{backend::Collective::all_gather, backend::Collective::reduce_scatter};
  std::vector<DType> dtypes{DType::f32};
  std::vector<Reduction> reductions{Reduction::sum};
  int root = 0;

  std::optional<int> ranks;  ///< absent: threads * gpus, or the launcher's
  int threads = 1;           ///< nccl-tests' -t
  int gpus = 1;              ///< nccl-tests' -g
  std::string backend = "cpu";

  std::int64_t least_bytes = std::int64_t{32} << 20;
  std::optional<std::int64_t> most_bytes;  ///< absent: least_bytes
  std::int64_t step_bytes = std::int64_t{1} << 20;
  std::int64_t step_factor = 1;  ///< above 1: sizes are multiplied, and step_bytes means nothing

  int iterations = 20;
  int warmup = 1;
  int checks = 1;          ///< iterations after timing whose every element is checked, and one before; 0: none
  bool check_all = false;  ///< every element of every timed iteration is checked, too, and each begins alone
  double timeout_s = 0;    ///< 0: none of its own
  OverRanks over_ranks = OverRanks::most;
  bool per_iteration = false;  ///< further columns
  std::string output_file;     ///< JSON; empty: none
  bool overwrite = false;
  int registration = 0;          ///< of NCCL: 0 none, 1 local, 2 windows
  int cta_policy = 0;            ///< of NCCL: 0 its own, 1 efficiency, 2 zero
  std::vector<int> max_ctas{0};  ///< of an NCCL kernel, at most, one after the other; 0: NCCL's choice

  bool beside = false;                     ///< all-gather, reduce-scatter and matrix products at once instead
  std::vector<ProductShape> matrices{{}};  ///< of those products, one after the other

  /// Whether anything says what is wrong.
  bool checks_data() const { return checks > 0 || check_all; }

  std::vector<std::pair<std::string, std::string>> given;  ///< options with their values, in order, for other processes
  std::vector<std::string> command_line;                   ///< as typed, for the result file
};

/// Completes the arguments after all options: fills in most_bytes. Throws ConfigError if options contradict each
/// other.
void settle(CollectivesArguments& arguments);

/// The sizes of the sweep, in bytes, in order.
std::vector<std::int64_t> sweep_sizes(const CollectivesArguments& arguments);

/// One option of `fsdpbench collectives`: the only place that knows its names, its meaning and what it may be.
struct CollectivesOption {
  std::string_view names;    ///< "-b,--minbytes"
  std::string_view type;     ///< of its value, for the help
  std::string_view meaning;  ///< for the help
  bool may_stand_alone;      ///< without a value it means 1
  /// Throws ConfigError without the option's name if the value is none of it, or asks for what cannot be done here.
  void (*read)(CollectivesArguments&, const std::string& value);
};

/// In the order of the help.
std::span<const CollectivesOption> collectives_options();

/// Reads one option, and notes it in arguments.given. Throws ConfigError that names option and value.
void read_option(CollectivesArguments& arguments, const CollectivesOption& option, const std::string& value);
/// Sets the option of this name, as arguments.given has it. Throws ConfigError if there is no such option.
void read_option(CollectivesArguments& arguments, std::string_view name, const std::string& value);

/// "all_gather", or as nccl-tests calls the program: "all_gather_perf". Throws ConfigError for one that is not
/// measured.
backend::Collective collective_named(std::string_view name);

}  // namespace fsdpbench::app
