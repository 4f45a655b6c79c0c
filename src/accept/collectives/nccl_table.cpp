#include "accept/collectives/nccl_table.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/enum_table.h"
#include "record/table.h"
#include "runs/build_info.h"

namespace fsdpbench::app {
namespace {

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

}  // namespace

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
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: {} validation: "
      "{} "
      "graph: 0\n#\n",
      a.threads, a.gpus, a.least_bytes, *a.most_bytes, a.step_factor > 1 ? a.step_factor : a.step_bytes,
      a.step_factor > 1 ? "factor" : "bytes", a.warmup, a.iterations, a.aggregate, a.checks);
  text += "# Using devices\n";
  std::string host;
  int device = 0;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    device = places[rank].host == host ? device + 1 : 0;
    host = places[rank].host;
    text += fmt::format("#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} device {:>2} [{}] {}\n", rank, 0,
                        fact_of(places[rank], "pid", "-"), host, device, a.backend,
                        fact_of(places[rank], "GPU", processor));
  }
  text += fmt::format("#\n# {} ranks; the time of an iteration is {}{}\n", ranks, average_words(a.over_ranks),
                      a.host_time ? ", and what issuing it takes the host (-C)" : "");
  if (a.check_all) {
    text += "# The data of every timed iteration is checked (--check-all): each is timed alone, not in a burst\n";
  }
  if (a.link_gb_per_s) {
    text += fmt::format("# EMULATED link of {:g} GB/s and {:g} us a hop: these are no figures of this machine\n",
                        *a.link_gb_per_s, a.link_latency_us);
  }
  if (ranks == 1) text += "# One rank has nobody to communicate with: nothing below is a measurement of a link\n";
  return text + "#\n" + column_heads(a);
}

std::string nccl_row(const CollectivesArguments& a, const CollectiveRow& row) {
  std::string text = fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.message.bytes(), row.message.count,
                                 type_name(row.message.dtype), row.reduction ? to_string(*row.reduction) : "none",
                                 row.root.value_or(-1));
  text += half_text(a, row.message, row.out_of_place) + half_text(a, row.message, row.in_place);
  if (a.timestamps) text += "  " + row.date;
  return text + '\n';
}

std::string nccl_footer(const TableEnd& end, backend::Collective op) {
  std::string text = fmt::format("# Out of bounds values : {} {}\n", end.wrong, end.wrong == 0 ? "OK" : "FAILED");
  text += fmt::format("# Avg bus bandwidth    : {:g}", end.average_gb_per_s());
  text += end.least_gb_per_s ? fmt::format(" {}\n", end.fast_enough() ? "OK" : "FAILED") : " \n";
  return text + fmt::format("#\n# Collective test concluded: {}\n#\n", program_name(op));
}

namespace {

std::string product_text(const ProductShape& p) {
  if (p.m == p.n && p.n == p.k) return fmt::format("{} x {}", p.m, p.m);
  return fmt::format("{} x {} and {} x {}", p.m, p.k, p.k, p.n);
}

}  // namespace

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
