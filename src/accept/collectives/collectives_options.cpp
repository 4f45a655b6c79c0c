#include "accept/collectives/collectives_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <type_traits>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;

constexpr std::array kMeasuredOps{Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce,
                                  Collective::broadcast,  Collective::all_to_all,     Collective::send_recv};

constexpr std::size_t kMostSizes = 100'000;

template <class T>
T number_in(const std::string& value, T least, T most) {
  T number{};
  const char* const last = value.data() + value.size();
  const auto [end, status] = std::from_chars(value.data(), last, number);
  if (status != std::errc() || end != last || !(number >= least && number <= most)) {
    throw ConfigError(fmt::format("expected a number from {} to {}", least, most));
  }
  return number;
}

int count_of(const std::string& value, int least) { return number_in<int>(value, least, 1'000'000'000); }

bool switched_on(const std::string& value) {
  const bool on = value.empty() || value == "1";
  if (!on && value != "0") throw ConfigError("expected 0 or 1; name operations before it, or with --op-list");
  return on;
}

/// nccl-tests' sizes: K, M, G and T are powers of 1024, in either case.
std::int64_t size_named(const std::string& value) {
  std::string text = value;
  constexpr std::string_view kLetters = "KMGT";
  const char last = static_cast<char>(std::toupper(static_cast<unsigned char>(text.back())));
  if (kLetters.find(last) != std::string_view::npos) {
    text.back() = last;
    text += "iB";
  }
  const std::optional<std::int64_t> bytes = parse_bytes(text);
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  if (!bytes || *bytes > kMost) throw ConfigError("expected a size: 8, 64K, 32M, 2G (powers of 1024), 1.5GiB, 2GB");
  return *bytes;
}

/// The parts between separators by `read`, at least one.
template <class Read>
auto list_of(const std::string& value, char separator, const Read& read) {
  std::vector<decltype(read(value))> all;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(separator, begin), value.size());
    all.push_back(read(value.substr(begin, end - begin)));
    begin = end + 1;
  }
  return all;
}

/// "512" is square, "4096x1024x2048" m x n x k.
ProductShape shape_named(const std::string& value) {
  const auto sides =
      list_of(value, 'x', [](const std::string& side) { return number_in<std::int64_t>(side, 1, 1 << 16); });
  if (sides.size() == 1) return {sides[0], sides[0], sides[0]};
  if (sides.size() != 3) throw ConfigError("expected N, or MxNxK: the product of an M x K matrix and a K x N one");
  return {sides[0], sides[1], sides[2]};
}

std::vector<DType> dtypes_named(const std::string& value) {
  if (value == "all") return {DType::f32, DType::bf16};
  const bool half = value == "bfloat16" || value == "bf16";
  if (!half && value != "float" && value != "fp32") {
    throw ConfigError("expected float, bfloat16 or all; FSDP moves no others here");
  }
  return {half ? DType::bf16 : DType::f32};
}

std::vector<Reduction> reductions_named(const std::string& value) {
  if (value == "all") return {Reduction::sum, Reduction::average};
  if (value != "sum" && value != "avg") {
    throw ConfigError("expected sum, avg or all; FSDP's gradients are reduced by no others");
  }
  return {value == "sum" ? Reduction::sum : Reduction::average};
}

using Arguments = CollectivesArguments;
using Text = std::string;

template <auto kWhere>
void size(Arguments& a, const Text& v) {
  a.*kWhere = size_named(v);
}
template <auto kWhere>
void flag(Arguments& a, const Text& v) {
  a.*kWhere = switched_on(v);
}
template <auto kWhere>
void text(Arguments& a, const Text& v) {
  a.*kWhere = v;
}
template <auto kWhere, int kLeast>
void count(Arguments& a, const Text& v) {
  a.*kWhere = count_of(v, kLeast);
}
template <auto kWhere, auto kLeast, auto kMost>
void number(Arguments& a, const Text& v) {
  a.*kWhere = number_in<std::common_type_t<decltype(kLeast), decltype(kMost)>>(v, kLeast, kMost);
}

// clang-format off
constexpr CollectivesOption kOptions[]{
    {"-b,--minbytes", "SIZE", "Smallest size; 32M", false, size<&Arguments::least_bytes>},
    {"-e,--maxbytes", "SIZE", "Largest size; default: the smallest", false, size<&Arguments::most_bytes>},
    {"-i,--stepbytes", "SIZE", "From one size to the next, without -f; 1M", false, size<&Arguments::step_bytes>},
    {"-f,--stepfactor", "N", "Each size is N times the one before", false, number<&Arguments::step_factor, 1L, 1L << 20>},
    {"-n,--iters", "N", "Timed iterations; 20", false, count<&Arguments::iterations, 1>},
    {"-w,--warmup_iters", "N", "Iterations before those; 1", false, count<&Arguments::warmup, 0>},
    {"-c,--check", "N", "Check data before timing and in N iterations after; 1; 0: never", false, count<&Arguments::checks, 0>},
    {"--check-all", "0|1", "Check timed iterations, too; each is then timed alone", true, flag<&Arguments::check_all>},
    {"-o,--op", "OP", "sum, avg or all; sum", false, [](Arguments& a, const Text& v) { a.reductions = reductions_named(v); }},
    {"-d,--datatype", "TYPE", "float, bfloat16 or all; float", false, [](Arguments& a, const Text& v) { a.dtypes = dtypes_named(v); }},
    {"-r,--root", "RANK", "Root of broadcast; 0", false, count<&Arguments::root, 0>},
    {"-t,--nthreads", "N", "Without a launcher: -t times -g ranks; 1", false, number<&Arguments::threads, 1, 1 << 20>},
    {"-g,--ngpus", "N", "Without a launcher: -t times -g ranks; 1", false, number<&Arguments::gpus, 1, 1 << 20>},
    {"-a,--average", "0|1|2|3", "Time of rank 0, mean, least or most of all ranks; 3 (nccl-tests: 1)", false, [](Arguments& a, const Text& v) { a.over_ranks = static_cast<OverRanks>(number_in(v, 0, 3)); }},
    {"-I,--per_iter_timing", "0|1", "Columns of single iterations: i_min i_max i_p99 i_cv%", true, flag<&Arguments::per_iteration>},
    {"-T,--timeout", "SECONDS", "End with exit code 5 if a rank waits this long; 0: never", false, number<&Arguments::timeout_s, 0.0, 1e7>},
    {"-J,--output_file", "FILE", "Write everything as JSON, with the machine and build", false, text<&Arguments::output_file>},
    {"-R,--local_register", "0|1|2", "NCCL: register buffers not, locally, or as windows; 0", false, number<&Arguments::registration, 0, 2>},
    {"-x,--cta_policy", "0|1|2", "NCCL: its default CTA policy, efficiency, or zero; 0", false, number<&Arguments::cta_policy, 0, 2>},
    {"--ranks", "N", "Ranks, as threads; the same as -t N", false, number<&Arguments::ranks, 1, 1 << 20>},
    {"--backend", "NAME", "cpu or cuda; cpu", false, text<&Arguments::backend>},
    {"--overwrite", "0|1", "Replace FILE; otherwise that is refused", true, flag<&Arguments::overwrite>},
    {"--beside", "0|1", "Both collectives and matrix products at once: who slows whom", true, flag<&Arguments::beside>},
    {"--matrix", "SHAPE,…", "Sizes of these products: N, or MxNxK; 512", false, [](Arguments& a, const Text& v) { a.matrices = list_of(v, ',', shape_named); }},
    {"--max-ctas", "N,…", "NCCL: CTAs per kernel; several with --beside; 0: its choice", false, [](Arguments& a, const Text& v) { a.max_ctas = list_of(v, ',', [](const Text& n) { return number_in(n, 0, 64); }); }},
};
// clang-format on

/// Whether "-b,--minbytes" has "-b".
bool is_called(const CollectivesOption& option, std::string_view name) {
  return fmt::format(",{},", option.names).find(fmt::format(",{},", name)) != std::string::npos;
}

}  // namespace

std::span<const CollectivesOption> collectives_options() { return kOptions; }

void read_option(CollectivesArguments& arguments, const CollectivesOption& option, const std::string& value) {
  const std::string name(option.names.substr(option.names.rfind(',') + 1));
  try {
    if (value.empty() && !option.may_stand_alone) throw ConfigError("it needs a value");
    option.read(arguments, value);
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("collectives {} '{}': {}; see fsdpbench collectives --help.", name, value, error.what()));
  }
  arguments.given.emplace_back(name, value);
}

void read_option(CollectivesArguments& arguments, std::string_view name, const std::string& value) {
  if (name == "--op-list") {
    arguments.ops = list_of(value, ',', collective_named);
    arguments.given.emplace_back(name, value);
    return;
  }
  const auto* const option = std::ranges::find_if(kOptions, [&](const auto& o) { return is_called(o, name); });
  if (option == std::end(kOptions)) throw ConfigError(fmt::format("collectives has no option {}.", name));
  read_option(arguments, *option, value);
}

backend::Collective collective_named(std::string_view name) {
  constexpr std::string_view kSuffix = "_perf";
  std::string_view plain = name;
  if (plain.ends_with(kSuffix)) plain.remove_suffix(kSuffix.size());
  if (plain == "alltoall") plain = to_string(Collective::all_to_all);  // as nccl-tests call them
  if (plain == "sendrecv") plain = to_string(Collective::send_recv);
  const auto* const op = std::ranges::find(kMeasuredOps, plain, [](Collective c) { return to_string(c); });
  if (op == kMeasuredOps.end()) {
    throw ConfigError(fmt::format(
        "There is no operation '{}' for collectives to measure; there are all_gather, reduce_scatter, all_reduce, "
        "broadcast, alltoall and sendrecv.",
        name));
  }
  return *op;
}

void settle(CollectivesArguments& a) {
  if (!a.most_bytes) a.most_bytes = a.least_bytes;
  if (*a.most_bytes < a.least_bytes) {
    throw ConfigError(
        fmt::format("collectives -b {} -e {}: the largest size is below the smallest.", a.least_bytes, *a.most_bytes));
  }
  if (*a.most_bytes > a.least_bytes && (a.step_factor > 1 ? a.least_bytes == 0 : a.step_bytes == 0)) {
    throw ConfigError("collectives: these sizes never grow; -f needs a smallest size above 0, -i a step above 0.");
  }
  if (sweep_sizes(a).size() > kMostSizes) {
    throw ConfigError("collectives: over 100,000 sizes; use -f 2, or a larger -i.");
  }
  if (a.check_all && a.beside) {
    throw ConfigError("collectives --check-all: --beside checks no data; leave out one of them.");
  }
  if (a.ranks && a.threads * a.gpus != 1 && *a.ranks != a.threads * a.gpus) {
    throw ConfigError(fmt::format("collectives: --ranks {} and -t {} -g {} differ.", *a.ranks, a.threads, a.gpus));
  }
  if (a.ranks) a.threads = *a.ranks / a.gpus;  // as the header says it
  if (a.backend != "cuda" && (a.registration != 0 || a.cta_policy != 0 || a.max_ctas != std::vector<int>{0})) {
    throw ConfigError("collectives: -R, -x and --max-ctas are NCCL's; they need --backend cuda.");
  }
  if (!a.beside && a.max_ctas.size() > 1) {
    throw ConfigError("collectives --max-ctas: several are measured beside products only; give one, or --beside.");
  }
}

std::vector<std::int64_t> sweep_sizes(const CollectivesArguments& a) {
  std::vector<std::int64_t> sizes;
  const std::int64_t most = a.most_bytes.value_or(a.least_bytes);
  for (std::int64_t size = a.least_bytes; size <= most && sizes.size() <= kMostSizes;) {
    sizes.push_back(size);
    const bool multiplies = a.step_factor > 1;
    if (multiplies ? size > most / a.step_factor : a.step_bytes == 0) break;
    size = multiplies ? size * a.step_factor : size + a.step_bytes;
  }
  return sizes;
}

}  // namespace fsdpbench::app
