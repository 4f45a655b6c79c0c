#include "accept/gate/baseline_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <tuple>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/read_input.h"
#include "record/console.h"
#include "record/json_part.h"
#include "record/table.h"
#include "runs/compare_report.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// All that results must share to be in one baseline: not the revision of this program.
std::string key_of(const GatedResult& result) {
  json machine = result.machine.to_json();
  machine.erase(std::string(to_string(MachinePrint::Part::program)));
  return json_line({{"kind", result.kind}, {"machine", machine}, {"measured", result.measured}});
}

/// With their digests.
struct SealedResults {
  static json write(const std::vector<GatedResult>& results) {
    json list = json::array();
    for (const GatedResult& result : results) list.push_back(to_json(result));
    return list;
  }
  static TypeFacts facts() { return {"list of object", &fields<GatedResult>().facts()}; }
};

const Fields<Baseline>& baseline_fields() {
  static const auto kAll = declare<Baseline>(
      "Baseline", "A baseline: accepted results of one machine that measured the same ([gate.md](gate.md)).",
      "accept/gate/baseline_file.h", [](Fields<Baseline>& f) {
        f(
            "schema_version", [](const Baseline&) { return kBaselineSchemaVersion; }, "",
            "version of this file's format");
        f(
            "kind", [](const Baseline&) { return std::string("baseline"); }, "", "`baseline`");
        f.operator()<SealedResults>("results", &Baseline::results, "",
                                    "in the order in which they were added; each has a `digest` of its own");
      });
  return kAll;
}

void write_baseline(const Baseline& baseline) {
  write_file(baseline.path, json_text(baseline_fields().write(baseline)));
}

/// Jobs that end at the same time add to the same file: one after the other. Where a file system has no locks, nobody
/// waits.
class OneAtATime {
 public:
  OneAtATime(const fs::path& folder, std::chrono::seconds patience)
      : file_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (file_ < 0 || lock_for_this_process(file_)) return;
    console().info(fmt::format("{}: another process adds to the baselines there; waiting for it", folder.string()));
    if (lock_for_this_process(file_, patience)) return;
    ::close(file_);
    throw OutputError(
        fmt::format("{} is in use: another process has kept its lock for over {} s; try again when it "
                    "has ended, or choose another folder with --in.",
                    folder.string(), patience.count()));
  }
  ~OneAtATime() {
    if (file_ >= 0) ::close(file_);
  }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  int file_;
};

/// By what is in it, however it is laid out; one that was cut off by how it begins.
bool is_baseline_file(const fs::path& path) {
  if (!path_exists(path) || is_no_plain_file(path) || path.extension() != ".json") return false;
  std::string text = read_input(path, kMostOfAResult, "");
  if (const json content = parse_json(text); !content.is_discarded()) {
    return content.is_object() && content.value("kind", json()) == "baseline";
  }
  text.resize(std::min<std::size_t>(text.size(), 4096));
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text.find("\"kind\":\"baseline\"") != std::string::npos;
}

std::string names_in(const std::vector<Baseline>& baselines) {
  std::vector<std::string> names;
  for (const Baseline& b : baselines) names.push_back(b.name());
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

/// One that measured the same; then the fewest differences of hardware, then of software. Absent if none is of its
/// kind.
std::optional<Baseline> nearest(const std::vector<Baseline>& baselines, const GatedResult& result) {
  const Baseline* best = nullptr;
  std::tuple<bool, std::ptrdiff_t, std::ptrdiff_t> least;
  for (const Baseline& b : baselines) {
    const GatedResult& first = b.results.front();
    if (first.kind != result.kind) continue;
    const auto all = differences(first.machine, result.machine);
    const std::tuple cost{first.measured != result.measured,
                          std::ranges::count(all, MachinePrint::Part::hardware, &MachineDifference::part),
                          std::ranges::count(all, MachinePrint::Part::software, &MachineDifference::part)};
    if (best == nullptr || cost < least) {
      best = &b;
      least = cost;
    }
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

}  // namespace

std::vector<accept::ResultFigures> Baseline::figures() const {
  std::vector<accept::ResultFigures> all;
  for (const GatedResult& result : results) all.push_back(result.figures);
  return all;
}

Baseline read_baseline(const fs::path& path) {
  constexpr const char* kExpected = "expected a file that `fsdpbench baseline add` wrote";
  const json content = parse_json(read_input(path, kMostOfAResult, kExpected));
  if (!content.is_object() || content.value("kind", json()) != "baseline") {
    throw ConfigError(fmt::format("{}: is no baseline, or was cut off; {}.", path.string(), kExpected));
  }
  Baseline baseline{path, {}};
  try {
    const JsonPart j(content);
    const std::int64_t version = j.at("schema_version").whole(0, INT32_MAX);
    if (version != kBaselineSchemaVersion) {
      throw ConfigError(fmt::format("schema_version is {}; this program reads {}", version, kBaselineSchemaVersion));
    }
    for (const JsonPart& result : j.at("results").list()) {
      if (const std::string is = json_digest(result.value()); result.at("digest").text() != is) {
        result.at("digest").refuse(fmt::format("{}: the result was changed after it was added, or is damaged", is));
      }
      baseline.results.push_back(gated_result_from_json(result));
    }
    if (baseline.results.empty()) throw ConfigError("it holds no result");
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}.", path.string(), error.what()));
  }
  return baseline;
}

std::vector<Baseline> read_baselines(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_baseline_file(entry.path())) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<Baseline> all;
  for (const fs::path& file : files) all.push_back(read_baseline(file));
  return all;
}

Baseline add_to_baseline(const fs::path& folder, GatedResult result, std::chrono::seconds patience) {
  if (!result.not_accepted_because.empty() && result.kept_anyway_because.empty()) {
    throw ConfigError(
        fmt::format("{} was not accepted: {}. A baseline holds accepted results; --anyway REASON keeps it all the "
                    "same, with the reason.",
                    result.name, result.not_accepted_because));
  }
  std::error_code error;
  fs::create_directories(folder, error);
  const OneAtATime turn(folder, patience);
  const std::string key = key_of(result);
  Baseline baseline{folder / fmt::format("{}-{:08x}.json", result.kind, stable_hash(key) >> 32U), {}};
  if (path_exists(baseline.path)) baseline = read_baseline(baseline.path);
  const json added = to_json(result)["figures"];
  for (const GatedResult& other : baseline.results) {
    if (to_json(other)["figures"] == added && other.date == result.date) {
      throw ConfigError(fmt::format("{}: has this result already, as {} of {}; it would count twice.",
                                    baseline.path.string(), other.name, other.date.empty() ? "no date" : other.date));
    }
  }
  baseline.results.push_back(std::move(result));
  write_baseline(baseline);
  return baseline;
}

Baseline find_baseline(const std::string& given, const GatedResult& result) {
  std::error_code error;
  if (fs::is_directory(given, error) && !path_exists(fs::path(given) / "result.json") &&
      !path_exists(fs::path(given) / "sweep.json")) {
    const std::vector<Baseline> all = read_baselines(given);
    if (all.empty())
      throw ConfigError(fmt::format("{}: holds no baseline; `fsdpbench baseline add` makes one.", given));
    if (std::optional<Baseline> found = nearest(all, result)) return *std::move(found);
    throw ConfigError(fmt::format("{}: no baseline there is of a{} {}, as {} is; there are: {}.", given,
                                  result.kind.starts_with('a') ? "n" : "", result.kind, result.name, names_in(all)));
  }
  const fs::path named = fs::path(kBaselineFolder) / (given + ".json");
  if (!path_exists(given) && path_exists(named)) return read_baseline(named);
  if (!path_exists(given)) {
    throw ConfigError(fmt::format("{}: there is no such baseline, folder or result; in {}/ there are: {}.", given,
                                  kBaselineFolder, names_in(read_baselines(kBaselineFolder))));
  }
  if (is_baseline_file(given)) return read_baseline(given);
  Baseline alone{given, {read_gated_result(given)}};
  return alone;
}

std::string baselines_table(const std::vector<Baseline>& baselines) {
  Table table;
  table.header = {"baseline", "results", "newest", "machine"};
  for (const Baseline& b : baselines) {
    std::string newest;
    for (const GatedResult& result : b.results) newest = std::max(newest, result.date);
    table.rows.push_back({b.name(), fmt::format("{}", b.results.size()), newest.empty() ? "–" : newest.substr(0, 10),
                          b.results.front().machine.summary()});
  }
  return format_table(table);
}

std::string baseline_text(const Baseline& baseline) {
  const GatedResult& first = baseline.results.front();
  std::string text = fmt::format("{}: {} of {}\n\n", baseline.name(), first.kind, first.machine.summary());
  Table machine;
  machine.header = {"machine", ""};
  for (const MachinePrint::Fact& fact : first.machine.facts()) machine.rows.push_back({fact.name, fact.value});
  Table results;
  results.header = {"result", "date", "kept because"};
  for (const GatedResult& r : baseline.results) {
    results.rows.push_back({r.name, r.date.empty() ? "–" : r.date,
                            r.kept_anyway_because.empty()
                                ? "it was accepted"
                                : fmt::format("{} (although {})", r.kept_anyway_because, r.not_accepted_because)});
  }
  Table figures;
  figures.header = {"figure", "median", "interval", "results", "left out", "unit"};
  const std::vector<accept::ResultFigures> all = baseline.figures();
  for (const accept::BaselineFigure& f : accept::baseline_figures(all)) {
    const accept::Interval& v = f.figure.value;
    figures.rows.push_back({f.figure.name, fmt::format("{:.4g}", v.median),
                            fmt::format("{:.4g} to {:.4g}", v.low, v.high), fmt::format("{}", f.values.size()),
                            f.left_out.empty() ? "–" : fmt::format("{}", fmt::join(f.left_out, ", ")), f.figure.unit});
  }
  text += format_table(machine) + "\n" + format_table(results) + "\n" + format_table(figures);
  if (baseline.results.size() < 3) {
    text +=
        fmt::format("\n{} of 3 results that a gate needs to know how much they scatter.\n", baseline.results.size());
  }
  return text;
}

const ObjectFacts& baseline_file_facts() { return baseline_fields().facts(); }

}  // namespace fsdpbench::app
