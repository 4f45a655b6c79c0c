#include "accept/collectives/collectives_json.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/enum_table.h"
#include "record/table.h"
#include "runs/build_info.h"
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

/// The program of nccl-tests that measures it.
std::string program_name(backend::Collective op) {
  if (op == backend::Collective::all_to_all) return "alltoall_perf";
  if (op == backend::Collective::send_recv) return "sendrecv_perf";
  return fmt::format("{}_perf", to_string(op));
}

std::string time_text(double us) {
  return us >= 10'000 ? fmt::format("{:.0f}", us) : fmt::format("{:.{}f}", us, us >= 100 ? 1 : 2);
}

/// One of the two halves of a line.
std::string half_text(const CollectivesArguments& a, const Message& message, const std::optional<Timing>& timing) {
  const auto line = [&](auto&& time, auto&& algbw, auto&& busbw, auto&& wrong) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, algbw, busbw, wrong);
  };
  const auto more = [](auto&& least, auto&& most, auto&& p99, auto&& cv) {
    return fmt::format("  {:>8}  {:>8}  {:>8}  {:>6}", least, most, p99, cv);
  };
  constexpr std::string_view kNone = "N/A";
  if (!timing) {
    return line(kNone, kNone, kNone, kNone) + (a.per_iteration ? more(kNone, kNone, kNone, kNone) : "");
  }
  const auto rate = [](double gb_per_s) { return fmt::format("{:.2f}", gb_per_s); };
  std::string text =
      line(time_text(timing->time_us), rate(timing->algorithm_gb_per_s(message)), rate(timing->bus_gb_per_s(message)),
           timing->wrong ? fmt::format("{}", *timing->wrong) : std::string(kNone));
  if (a.per_iteration) {
    const Scatter& s = timing->scatter;
    text += more(time_text(s.min_us), time_text(s.max_us), time_text(s.p99_us), fmt::format("{:.1f}", s.cv_pct()));
  }
  return text;
}

std::string_view average_words(OverRanks how) {
  constexpr EnumNames<OverRanks> kWords{"rank 0's (-a 0)", "the mean over ranks (-a 1), which hides a slow one",
                                        "the fastest rank's (-a 2), which hides a slow one",
                                        "the slowest rank's (-a 3); that of nccl-tests is the mean over ranks (-a 1)"};
  return kWords[how];
}

/// Three lines, right above the columns. As nccl-tests 2.19.6 has them: the names of all columns are in the second
/// line, which is where programs look for them.
std::string column_heads(const CollectivesArguments& a) {
  const auto half = [&](std::string_view time, std::string_view algorithm, std::string_view bus, std::string_view wrong,
                        bool names) {
    std::string text = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, algorithm, bus, wrong);
    if (a.per_iteration) {
      text += names ? fmt::format("  {:>8}  {:>8}  {:>8}  {:>6}", "i_min", "i_max", "i_p99", "i_cv%")
                    : fmt::format("  {:>8}  {:>8}  {:>8}  {:>6}", "(us)", "(us)", "(us)", "");
    }
    return text;
  };
  const auto left = [](std::string_view size, std::string_view count, std::string_view type, std::string_view op,
                       std::string_view root) {
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
  };
  const std::string names = half("time", "algbw", "busbw", "#wrong", true);
  const std::string units = half("(us)", "(GB/s)", "(GB/s)", "", false);
  const std::size_t width = names.size();
  const std::string halves = a.per_iteration ? fmt::format("{:^{}}{:^{}}", "out-of-place", width, "in-place", width)
                                             : "           out-of-place                       in-place          ";
  return left("", "", "", "", "") + halves + '\n' + left("size", "count", "type", "redop", "root") + names + names +
         '\n' + left("(B)", "(elements)", "", "", "") + units + units + '\n';
}

std::string fact_of(const World::RankPlace& place, std::string_view name, const std::string& otherwise) {
  for (const auto& [key, value] : place.device) {
    if (key == name) return value;
  }
  return otherwise;
}

std::string product_text(const ProductShape& p) {
  if (p.m == p.n && p.n == p.k) return fmt::format("{} x {}", p.m, p.m);
  return fmt::format("{} x {} and {} x {}", p.m, p.k, p.k, p.n);
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
  return {"AverageBandwidth", "The last line of nccl-tests.", "accept/collectives/collectives_json.h", {
    {"gb_per_s", &TableEnd::average_gb_per_s, "GB/s", "mean bus bandwidth of all rows"},
    {"okay", &TableEnd::fast_enough, "", "whether it is at least `NCCL_TESTS_MIN_BW`"},
  }};
}

namespace {

const Fields<std::int64_t>& wrong_fields() {
  static const Fields<std::int64_t> kAll{"OutOfBounds", "Number of wrong elements.", "accept/collectives/collectives_json.h", {
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
    {"alone_us", as<EnumMap<Neighbour>>(&R::alone_us), "us", "time of each alone"},
    {"beside_us", as<EnumMap<Neighbour, EnumMap<Neighbour>>>(&R::beside_us), "us", "time of each beside each other one; absent where no op ran beside it from begin to end"},
    {"together_us", as<EnumMap<Neighbour>>(&R::together_us), "us", "time of each while all three run"},
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

void TableEnd::add(const CollectiveRow& row) {
  for (const std::optional<Timing>* timing : {&row.out_of_place, &row.in_place}) {
    if (!*timing) continue;
    wrong += (*timing)->wrong.value_or(0);
    bus_gb_per_s_sum += (*timing)->bus_gb_per_s(row.message);
    ++timings;
  }
}

std::string nccl_header(const CollectivesArguments& a, backend::Collective op, int ranks,
                        const std::vector<World::RankPlace>& places, const std::string& processor) {
  std::string text = fmt::format("# {}, in the form of nccl-tests\n", version_line());
  text += fmt::format("# Collective test starting: {}\n", program_name(op));
  text += fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: 1 validation: "
      "{} graph: 0\n#\n",
      a.threads, a.gpus, a.least_bytes, *a.most_bytes, a.step_factor > 1 ? a.step_factor : a.step_bytes,
      a.step_factor > 1 ? "factor" : "bytes", a.warmup, a.iterations, a.checks);
  text += "# Using devices\n";
  std::map<std::string, int> devices;  // of each host so far
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const World::RankPlace& place = places[rank];
    text += fmt::format("#  Rank {:>2} Group  0 Pid {:>6} on {:>10} device {:>2} [{}] {}\n", rank,
                        fact_of(place, "pid", "-"), place.host, devices[place.host]++, a.backend,
                        fact_of(place, "GPU", processor));
  }
  text += fmt::format("#\n# {} ranks; the time of an iteration is {}\n", ranks, average_words(a.over_ranks));
  if (a.check_all) {
    text += "# The data of every timed iteration is checked (--check-all): each is timed alone, not in a burst\n";
  }
  if (ranks == 1) text += "# One rank has nobody to communicate with: nothing below is a measurement of a link\n";
  return text + "#\n" + column_heads(a);
}

std::string nccl_row(const CollectivesArguments& a, const CollectiveRow& row) {
  const std::string text = fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.message.bytes(), row.message.count,
                                       type_name(row.message.dtype), row.reduction ? to_string(*row.reduction) : "none",
                                       row.root.value_or(-1));
  return text + half_text(a, row.message, row.out_of_place) + half_text(a, row.message, row.in_place) + '\n';
}

std::string nccl_footer(const TableEnd& end, backend::Collective op) {
  std::string text = fmt::format("# Out of bounds values : {} {}\n", end.wrong, end.wrong == 0 ? "OK" : "FAILED");
  text += fmt::format("# Avg bus bandwidth    : {:g}", end.average_gb_per_s());
  text += end.least_gb_per_s ? fmt::format(" {}\n", end.fast_enough() ? "OK" : "FAILED") : " \n";
  return text + fmt::format("#\n# Collective test concluded: {}\n#\n", program_name(op));
}

std::string beside_table(const BesideRow& row) {
  Table table;
  table.title = fmt::format(
      "size {} ({} B), matrices {}{}: time of an op on the slowest rank, alone, and times that beside others",
      format_bytes(row.size), row.size, product_text(row.matrix),
      row.max_ctas > 0 ? fmt::format(", at most {} CTAs", row.max_ctas) : "");
  table.header = {"", "alone", "beside all_gather", "beside reduce_scatter", "beside matrix_product", "beside both"};
  const auto times = [](std::optional<double> ratio) {
    return ratio ? fmt::format("{:.2f}", *ratio) : std::string("–");
  };
  for (std::size_t k = 0; k < kNeighbours; ++k) {
    const auto who = static_cast<Neighbour>(k);
    const std::optional<double> alone = row.alone_us[k];
    table.rows.push_back({std::string(to_string(who)), alone ? shown(*alone, "us") : "–"});
    for (std::size_t b = 0; b < kNeighbours; ++b) {
      table.rows.back().push_back(times(row.slowdown(who, static_cast<Neighbour>(b))));
    }
    table.rows.back().push_back(times(row.slowdown_together(who)));
  }
  return format_table(table) + '\n';
}

}  // namespace fsdpbench::app
