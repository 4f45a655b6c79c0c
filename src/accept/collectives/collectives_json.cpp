#include "accept/collectives/collectives_json.h"

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/enum_table.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using Json = nlohmann::json;

/// A timing knows its rates only with its message.
struct TimedMessage {
  const Message* message;
  const Timing* timing;
};

auto timed(std::optional<Timing> CollectiveRow::*timing) {
  return [timing](const CollectiveRow& row) {
    return row.*timing ? std::optional(TimedMessage{&row.message, &*(row.*timing)}) : std::nullopt;
  };
}

/// A time of each neighbour that was measured.
struct TimesByNeighbour {
  static Json write(const BesideRow::Times& times) {
    Json j = Json::object();
    for (const Neighbour who : kEnumerators<Neighbour>) {
      if (const auto& time = times[static_cast<std::size_t>(who)]) j[to_string(who)] = *time;
    }
    return j;
  }
  static TypeFacts facts() { return {"map of number"}; }
};
/// Times beside each of the others.
struct TimesBeside {
  static Json write(const std::array<BesideRow::Times, kNeighbours>& beside) {
    Json j = Json::object();
    for (const Neighbour who : kEnumerators<Neighbour>) {
      j[to_string(who)] = TimesByNeighbour::write(beside[static_cast<std::size_t>(who)]);
    }
    return j;
  }
  static TypeFacts facts() { return {"map of map of number"}; }
};

/// A table, and whether its elements were checked.
using OperationTable = std::pair<const CollectivesTable*, bool>;

struct CollectivesFile {
  const CollectivesArguments* arguments;
  const World* world;
  const std::vector<CollectivesTable>* tables;
  const std::vector<BesideRow>* beside;
};

std::vector<std::pair<std::string, std::string>> given_options(const CollectivesArguments& arguments) {
  std::vector<std::pair<std::string, std::string>> given;
  for (const auto& [name, value] : arguments.given) given.emplace_back(name.substr(2), value);
  return given;
}
std::string times_count_of(const CollectivesArguments& arguments) {
  constexpr EnumNames<OverRanks> kNames{"rank 0", "mean", "min", "max"};
  return std::string(kNames[arguments.over_ranks]);
}
std::vector<OperationTable> operations_of(const CollectivesFile& file) {
  std::vector<OperationTable> all;
  for (const CollectivesTable& table : *file.tables) all.emplace_back(&table, file.arguments->checks_data());
  return all;
}

}  // namespace

// clang-format off
template <>
Fields<Scatter> declared() {
  return {"", "", "accept/collectives/collective_row.h", {
    {"min_us", &Scatter::min_us, "us", "shortest iteration"},
    {"max_us", &Scatter::max_us, "us", "longest iteration"},
    {"mean_us", &Scatter::mean_us, "us", "mean of the iterations"},
    {"p50_us", &Scatter::p50_us, "us", "half of the iterations are shorter"},
    {"p95_us", &Scatter::p95_us, "us", "95 of 100 iterations are shorter"},
    {"p99_us", &Scatter::p99_us, "us", "99 of 100 iterations are shorter"},
    {"stdev_us", &Scatter::deviation_us, "us", "standard deviation of the population"},
    {"cv_pct", &Scatter::cv_pct, "%", "standard deviation divided by mean"},
  }};
}

namespace {

const Fields<Timing>& iteration_fields() {
  static const Fields<Timing> kAll{"Iterations", "Single iterations, over ranks as -a says.", "accept/collectives/collective_row.h", {
    spread(&Timing::scatter),
    {"times_us", &Timing::iterations_us, "us", "each iteration, the first ones included"},
    {"wrong", &Timing::iteration_wrong, "", "wrong elements that each of them left on all ranks; only with --check-all", if_any},
  }};
  return kAll;
}

}  // namespace

template <>
Fields<TimedMessage> declared() {
  using T = TimedMessage;
  return {"Timing", "A message in one arrangement of its buffers.", "accept/collectives/collective_row.h", {
    {"time_us", via(&T::timing, &Timing::time_us), "us", "an iteration within a burst of them; with --check-all the mean of iterations that were timed alone"},
    {"algbw_gb_per_s", [](const T& t) { return t.timing->algorithm_gb_per_s(*t.message); }, "GB/s", "algorithm bandwidth, as nccl-tests defines it"},
    {"busbw_gb_per_s", [](const T& t) { return t.timing->bus_gb_per_s(*t.message); }, "GB/s", "bus bandwidth, as nccl-tests defines it"},
    {"rank_us", via(&T::timing, &Timing::rank_us), "us", "`time_us` of each rank"},
    {"per_iteration", as<ObjectOf<iteration_fields>>(&T::timing), "", "single iterations"},
    {"wrong", via(&T::timing, &Timing::wrong), "", "number of wrong elements on all ranks; null: nothing was checked", or_null},
  }};
}

template <>
Fields<CollectiveRow> declared() {
  using R = CollectiveRow;
  return {"CollectiveRow", "One message.", "accept/collectives/collective_row.h", {
    {"size", via(&R::message, &Message::bytes), "B", "message size as nccl-tests counts it"},
    {"count", via(&R::message, &Message::count), "", "number of elements"},
    {"type", via(&R::message, &Message::dtype, type_name), "", "type of an element, as nccl-tests names it"},
    {"redop", &R::reduction, "", "`sum` or `avg`; null where nothing is reduced", or_null},
    {"root", &R::root, "", "the rank that broadcasts; null where there is none", or_null},
    {"out_of_place", timed(&R::out_of_place), "", "separate buffers; null: this communicator has no such call", or_null},
    {"in_place", timed(&R::in_place), "", "one buffer; null: this communicator has no such call", or_null},
    {"date", &R::date, "", "when it was measured"},
  }};
}

template <>
Fields<TableEnd> declared() {
  return {"AverageBandwidth", "The last line of nccl-tests.", "accept/collectives/nccl_table.h", {
    {"gb_per_s", &TableEnd::average_gb_per_s, "GB/s", "mean bus bandwidth of all rows"},
    {"okay", &TableEnd::fast_enough, "", "whether it is at least `NCCL_TESTS_MIN_BW`"},
  }};
}

namespace {

const Fields<std::int64_t>& wrong_fields() {
  static const Fields<std::int64_t> kAll{"OutOfBounds", "Number of wrong elements.", "accept/collectives/nccl_table.h", {
    {"count", kItself, "", "number of wrong elements, of all rows and ranks"},
    {"okay", [](std::int64_t wrong) { return wrong == 0; }, "", "whether there is none"},
  }};
  return kAll;
}

}  // namespace

template <>
Fields<OperationTable> declared() {
  using O = OperationTable;
  return {"Operation", "One collective.", "accept/collectives/measure_collectives.h", {
    {"name", via(&O::first, &CollectivesTable::op), "", "`all_gather`, …"},
    {"results", via(&O::first, &CollectivesTable::rows), "", "one row per message"},
    {"out_of_bounds", as<ObjectOf<wrong_fields>>([](const O& o) { return o.second ? std::optional(o.first->end.wrong) : std::nullopt; }), "", "number of wrong elements; null: nothing was checked (-c 0 without --check-all)", or_null},
    {"average_bus_bandwidth", via(&O::first, &CollectivesTable::end), "GB/s", "average over all rows"},
  }};
}

template <>
Fields<BesideRow> declared() {
  using R = BesideRow;
  return {"ConcurrentOps", "Slowdown of two collectives and a matrix product by each other, medians of an op on the slowest rank.", "accept/collectives/beside.h", {
    {"size", &R::size, "B", "size of the messages"},
    {"matrix", [](const R& r) { return r.matrix.m; }, "", "rows of the first matrix"},
    {"shape", [](const R& r) { return std::vector{r.matrix.m, r.matrix.n, r.matrix.k}; }, "", "m, n and k of the product"},
    {"type", via(&R::dtype, type_name), "", "type of the product's numbers"},
    {"max_ctas", &R::max_ctas, "", "largest number of CTAs of NCCL's kernels; absent: NCCL chooses", if_any},
    {"alone_us", as<TimesByNeighbour>(&R::alone_us), "us", "time of each alone"},
    {"beside_us", as<TimesBeside>(&R::beside_us), "us", "time of each beside each other one; absent where no op ran beside it from begin to end"},
    {"together_us", as<TimesByNeighbour>(&R::together_us), "us", "time of each while all three run"},
  }};
}

template <>
Fields<CollectivesFile> declared() {
  using C = CollectivesFile;
  return {"Collectives", "The file of `collectives -J` ([collectives.md](collectives.md)).", "accept/collectives/measure_collectives.h", {
    {"kind", [](const C&) { return "collectives"; }, "", "`collectives`"},
    {"world", &C::world, "", "what it was measured with"},
    {"options", via(&C::arguments, given_options), "", "options as they were given, by their long names"},
    {"time_over_ranks", via(&C::arguments, times_count_of), "", "which rank's times count (-a)"},
    {"operations", operations_of, "", "each collective"},
    {"beside", &C::beside, "", "only with --beside", when(via(&C::arguments, &CollectivesArguments::beside))},
  }};
}
// clang-format on

Json collectives_json(const CollectivesArguments& arguments, const World& world,
                      const std::vector<CollectivesTable>& tables, const std::vector<BesideRow>& beside) {
  return fields<CollectivesFile>().write({&arguments, &world, &tables, &beside});
}

const ObjectFacts& collectives_file_facts() { return fields<CollectivesFile>().facts(); }

}  // namespace fsdpbench::app
