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
  const Message& message;
  const Timing& timing;
};

std::optional<TimedMessage> timed(const CollectiveRow& row, const std::optional<Timing>& timing) {
  return timing ? std::optional(TimedMessage{row.message, *timing}) : std::nullopt;
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
/// The same beside each of the others.
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

struct CollectivesFile {
  const CollectivesArguments& arguments;
  const World& world;
  const std::vector<CollectivesTable>& tables;
  const std::vector<BesideRow>& beside;
};

/// Elements of a table that are wrong.
struct Wrong {
  std::int64_t count = 0;
};

/// A table, and whether its elements were checked.
struct OperationTable {
  const CollectivesTable& table;
  bool checked = false;
};

}  // namespace

template <>
const Fields<Scatter>& fields<Scatter>() {
  static const auto kAll = declare<Scatter>("", "", "accept/collectives/collective_row.h", [](Fields<Scatter>& f) {
    f("min_us", &Scatter::min_us, "us", "shortest iteration");
    f("max_us", &Scatter::max_us, "us", "longest iteration");
    f("mean_us", &Scatter::mean_us, "us", "mean of the iterations");
    f("p50_us", &Scatter::p50_us, "us", "half of the iterations are shorter");
    f("p95_us", &Scatter::p95_us, "us", "95 of 100 iterations are shorter");
    f("p99_us", &Scatter::p99_us, "us", "99 of 100 iterations are shorter");
    f("stdev_us", &Scatter::deviation_us, "us", "standard deviation of the population");
    f("cv_pct", &Scatter::cv_pct, "%", "standard deviation divided by mean");
  });
  return kAll;
}

namespace {

const Fields<Timing>& iteration_fields() {
  static const auto kAll = declare<Timing>(
      "Iterations", "Single iterations, over ranks as -a says.", "accept/collectives/collective_row.h",
      [](Fields<Timing>& f) {
        f.spread(&Timing::scatter, fields<Scatter>());
        f("times_us", &Timing::iterations_us, "us", "each iteration, the first ones included");
        f("wrong", &Timing::iteration_wrong, "",
          "wrong elements that each of them left on all ranks; only with --check-all", {.when = When::if_any});
      });
  return kAll;
}

}  // namespace

template <>
const Fields<TimedMessage>& fields<TimedMessage>() {
  using T = TimedMessage;
  static const auto kAll = declare<T>(
      "Timing", "A message in one arrangement of its buffers.", "accept/collectives/collective_row.h",
      [](Fields<T>& f) {
        f(
            "time_us", [](const T& t) { return t.timing.time_us; }, "us",
            "an iteration within a burst of them; with --check-all the mean of iterations that were timed alone");
        f(
            "algbw_gb_per_s", [](const T& t) { return t.timing.algorithm_gb_per_s(t.message); }, "GB/s",
            "algorithm bandwidth, as nccl-tests defines it");
        f(
            "busbw_gb_per_s", [](const T& t) { return t.timing.bus_gb_per_s(t.message); }, "GB/s",
            "bus bandwidth, as nccl-tests defines it");
        f(
            "rank_us", [](const T& t) { return t.timing.rank_us; }, "us", "`time_us` of each rank");
        f.object(
            "per_iteration", [](const T& t) -> const auto& { return t.timing; }, iteration_fields(),
            "single iterations");
        f("wrong", [](const T& t) { return t.timing.wrong; }, "",
          "number of wrong elements on all ranks; null: nothing was checked", {.when = When::or_null});
      });
  return kAll;
}

template <>
const Fields<CollectiveRow>& fields<CollectiveRow>() {
  using R = CollectiveRow;
  static const auto kAll =
      declare<R>("CollectiveRow", "One message.", "accept/collectives/collective_row.h", [](Fields<R>& f) {
        f(
            "size", [](const R& r) { return r.message.bytes(); }, "B", "message size as nccl-tests counts it");
        f(
            "count", [](const R& r) { return r.message.count; }, "", "number of elements");
        f(
            "type", [](const R& r) { return type_name(r.message.dtype); }, "",
            "type of an element, as nccl-tests names it");
        f("redop", &R::reduction, "", "`sum` or `avg`; null where nothing is reduced", {.when = When::or_null});
        f("root", &R::root, "", "the rank that broadcasts; null where there is none", {.when = When::or_null});
        f("out_of_place", [](const R& r) { return timed(r, r.out_of_place); }, "",
          "separate buffers; null: this communicator has no such call", {.when = When::or_null});
        f("in_place", [](const R& r) { return timed(r, r.in_place); }, "",
          "one buffer; null: this communicator has no such call", {.when = When::or_null});
        f("date", &R::date, "", "when it was measured");
      });
  return kAll;
}

template <>
const Fields<TableEnd>& fields<TableEnd>() {
  static const auto kAll = declare<TableEnd>(
      "AverageBandwidth", "The last line of nccl-tests.", "accept/collectives/nccl_table.h", [](Fields<TableEnd>& f) {
        f("gb_per_s", &TableEnd::average_gb_per_s, "GB/s", "mean bus bandwidth of all rows");
        f("okay", &TableEnd::fast_enough, "", "whether it is at least `NCCL_TESTS_MIN_BW`");
      });
  return kAll;
}

template <>
const Fields<Wrong>& fields<Wrong>() {
  static const auto kAll = declare<Wrong>(
      "OutOfBounds", "How many elements are wrong.", "accept/collectives/nccl_table.h", [](Fields<Wrong>& f) {
        f("count", &Wrong::count, "", "number of wrong elements, of all rows and ranks");
        f(
            "okay", [](const Wrong& w) { return w.count == 0; }, "", "whether there is none");
      });
  return kAll;
}

template <>
const Fields<OperationTable>& fields<OperationTable>() {
  using O = OperationTable;
  static const auto kAll =
      declare<O>("Operation", "One collective.", "accept/collectives/measure_collectives.h", [](Fields<O>& f) {
        f(
            "name", [](const O& o) { return to_string(o.table.op); }, "", "`all_gather`, …");
        f(
            "results", [](const O& o) { return o.table.rows; }, "", "one row per message");
        f("out_of_bounds",
          [](const O& o) { return o.checked ? std::optional(Wrong{o.table.end.wrong}) : std::nullopt; }, "",
          "number of wrong elements; null: nothing was checked (-c 0 without --check-all)", {.when = When::or_null});
        f(
            "average_bus_bandwidth", [](const O& o) { return o.table.end; }, "GB/s", "average over all rows");
      });
  return kAll;
}

template <>
const Fields<BesideRow>& fields<BesideRow>() {
  using R = BesideRow;
  static const auto kAll = declare<R>(
      "Beside", "What two collectives and a matrix product cost each other, medians of an op on the slowest rank.",
      "accept/collectives/beside.h", [](Fields<R>& f) {
        f("size", &R::size, "B", "size of the messages");
        f(
            "matrix", [](const R& r) { return r.matrix.m; }, "", "rows of the first matrix");
        f(
            "shape",
            [](const R& r) {
              return std::vector{r.matrix.m, r.matrix.n, r.matrix.k};
            },
            "", "m, n and k of the product");
        f(
            "type", [](const R& r) { return type_name(r.dtype); }, "", "type of the product's numbers");
        f("max_ctas", &R::max_ctas, "", "largest number of CTAs of NCCL's kernels; absent: NCCL chooses",
          {.when = When::if_any});
        f.operator()<TimesByNeighbour>("alone_us", &R::alone_us, "us", "time of each alone");
        f.operator()<TimesBeside>(
            "beside_us", &R::beside_us, "us",
            "time of each beside each other one; absent where no op ran beside it from begin to end");
        f.operator()<TimesByNeighbour>("together_us", &R::together_us, "us", "time of each while all three run");
      });
  return kAll;
}

template <>
const Fields<CollectivesFile>& fields<CollectivesFile>() {
  using C = CollectivesFile;
  static const auto kAll =
      declare<C>("Collectives", "The file of `collectives -J` ([collectives.md](collectives.md)).",
                 "accept/collectives/measure_collectives.h", [](Fields<C>& f) {
                   f(
                       "kind", [](const C&) { return std::string("collectives"); }, "", "`collectives`");
                   f(
                       "world", [](const C& c) { return c.world; }, "", "what it was measured with");
                   f(
                       "options",
                       [](const C& c) {
                         std::vector<std::pair<std::string, std::string>> given;
                         for (const auto& [name, value] : c.arguments.given) given.emplace_back(name.substr(2), value);
                         return given;
                       },
                       "", "options as they were given, by their long names");
                   f(
                       "time_over_ranks",
                       [](const C& c) {
                         constexpr EnumNames<OverRanks> kNames{"rank 0", "mean", "min", "max"};
                         return kNames[c.arguments.over_ranks];
                       },
                       "", "which rank's times count (-a)");
                   f(
                       "operations",
                       [](const C& c) {
                         std::vector<OperationTable> all;
                         for (const CollectivesTable& table : c.tables)
                           all.push_back({table, c.arguments.checks_data()});
                         return all;
                       },
                       "", "each collective");
                   f(
                       "beside", [](const C& c) { return c.arguments.beside ? std::optional(c.beside) : std::nullopt; },
                       "", "only with --beside");
                 });
  return kAll;
}

Json collectives_json(const CollectivesArguments& arguments, const World& world,
                      const std::vector<CollectivesTable>& tables, const std::vector<BesideRow>& beside) {
  return fields<CollectivesFile>().write({arguments, world, tables, beside});
}

const ObjectFacts& collectives_file_facts() { return fields<CollectivesFile>().facts(); }

}  // namespace fsdpbench::app
