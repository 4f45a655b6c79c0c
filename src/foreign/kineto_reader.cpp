#include "foreign/kineto_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <istream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/read_input.h"
#include "foreign/kineto_rows.h"
#include "foreign/nsys_events.h"
#include "foreign/xla_trace.h"
#include "trace/whole_file.h"

namespace fsdpbench::foreign {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBase_ns = 2'200'000'000'000'000'000;
constexpr std::int64_t kUnix_ns = 1'000'000'000'000'000'000;  // times behind that are Unix times of 2001 or later

struct File {
  std::string path;
  bool of_folder = false;  ///< nobody named it: it is left out if it holds no trace
};

bool is_xspace_name(const std::string& name) { return name.ends_with(".xplane.pb") || name.ends_with(".xplane.pb.gz"); }

bool is_trace_name(const std::string& name) {
  return !name.starts_with('.') && (name.ends_with(".json") || name.ends_with(".json.gz") ||
                                    name.ends_with(".sqlite") || name.ends_with(".sqlite.gz") || is_xspace_name(name));
}

/// In the order of the numbers in them: "rank_2" before "rank_10".
bool by_number(const File& a, const File& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  const std::string &x = a.path, &y = b.path;
  while (i < x.size() && j < y.size()) {
    if (digit(x[i]) && digit(y[j])) {
      const auto end_of = [&](const std::string& text, std::size_t at) {
        while (at < text.size() && digit(text[at])) ++at;
        return at;
      };
      while (i + 1 < x.size() && x[i] == '0' && digit(x[i + 1])) ++i;
      while (j + 1 < y.size() && y[j] == '0' && digit(y[j + 1])) ++j;
      const std::string_view m = std::string_view(x).substr(i, end_of(x, i) - i);
      const std::string_view n = std::string_view(y).substr(j, end_of(y, j) - j);
      if (m.size() != n.size()) return m.size() < n.size();
      if (m != n) return m < n;
      i += m.size();
      j += n.size();
    } else if (x[i] != y[j]) {
      return x[i] < y[j];
    } else {
      ++i, ++j;
    }
  }
  return x.size() - i < y.size() - j;
}

/// `within`: in the folder that was named.
void add_folder(const std::string& path, std::vector<File>& files, bool within = false) {
  std::vector<File> found;
  std::error_code error;
  fs::directory_iterator entry(path, error);
  if (error) throw ConfigError(fmt::format("{}: cannot be read: {}", path, error.message()));
  for (; entry != fs::directory_iterator(); entry.increment(error)) {
    const bool plain = entry->is_regular_file(error);
    if (plain && is_trace_name(entry->path().filename().string())) found.push_back({entry->path().string(), true});
  }
  // jax.profiler.trace(path) writes a folder for each recording, of which the last counts.
  if (const std::string recordings = path + "/plugins/profile"; fs::is_directory(recordings, error)) {
    std::string last;
    for (fs::directory_iterator one(recordings, error); !error && one != fs::directory_iterator();
         one.increment(error)) {
      if (one->is_directory(error)) last = std::max(last, one->path().string());
    }
    if (!last.empty()) return add_folder(last, files);
  }
  // An xplane.pb has all that the JSON beside it has, which ends at a million rows.
  if (std::ranges::any_of(found, [](const File& f) { return is_xspace_name(f.path); })) {
    std::erase_if(found, [](const File& f) { return !is_xspace_name(f.path); });
  }
  const std::string ours = path + "/trace";  // of a result folder
  if (std::ranges::any_of(found, [](const File& f) { return f.path.ends_with("/result.json"); }) &&
      fs::is_directory(ours, error)) {
    return add_folder(ours, files);
  }
  if (found.empty() && !within) {  // a folder a rank
    for (const fs::directory_entry& one : fs::directory_iterator(path, error)) {
      if (one.is_directory(error)) add_folder(one.path().string(), found, true);
    }
  }
  if (found.empty() && !within) {
    throw ConfigError(
        fmt::format("{}: has no trace; expected files *.json or *.json.gz, as torch.profiler writes one a rank, "
                    "*.sqlite of Nsight Systems, or what jax.profiler.trace writes, in it or in a folder a rank.",
                    path));
  }
  std::ranges::sort(found, by_number);
  files.insert(files.end(), found.begin(), found.end());
}

std::vector<File> files_of(const std::vector<std::string>& paths) {
  std::vector<File> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (const std::string trouble = lookup_error(path); !trouble.empty()) {
      throw ConfigError(fmt::format("{}: {}", path, trouble));
    }
    if (fs::is_directory(path, error)) {
      add_folder(path, files);
    } else {
      files.push_back({path, false});
    }
  }
  if (files.empty()) throw ConfigError("no trace is given; expected files of torch.profiler, one a rank, or a folder.");
  return files;
}

/// Why a file is not for this reader, by its first bytes and name; "" if it may be.
std::string other_program(const std::string& path, std::string_view beginning) {
  const std::string_view name = std::string_view(path).substr(0, path.size() - (path.ends_with(".gz") ? 3 : 0));
  if (name.ends_with(".nsys-rep") || name.ends_with(".qdrep")) {
    return "is a report of Nsight Systems, which only its own programs read; `nsys export --type sqlite` makes a "
           "database "
           "of it that is read here.";
  }
  if (beginning.starts_with("\x80") && beginning.size() > 1 && beginning[1] <= 5) {
    return "is a pickle, no trace: a snapshot of PyTorch's memory (_dump_snapshot), which pytorch.org/memory_viz "
           "shows, or "
           "a dump of its flight recorder, which `fsdpbench watch` reads.";
  }
  const auto has = [&](std::string_view word) { return beginning.find(word) != std::string_view::npos; };
  if (has("<html") || has("<!DOCTYPE")) {
    return has("emory") ? "is a page that shows a snapshot of PyTorch's memory, no trace." : "is a page, no trace.";
  }
  if (!has("\"traceEvents\"") && (has("\"segments\"") || has("\"device_traces\""))) {
    return "is a snapshot of PyTorch's memory, no trace: pytorch.org/memory_viz shows it.";
  }
  if (beginning.starts_with("PK")) return "is a zip archive; unpack it, and give the .json files in it.";
  return "";
}

/// The number behind the last "rank" of a file's name: "rank_3.json.gz", "rank3_trace.json", "trace-rank-3.json"; else
/// of its folder's.
std::optional<int> rank_of_name(const fs::path& path) {
  std::string name = path.filename().string();
  std::size_t word = name.rfind("rank");
  if (word == std::string::npos) {
    name = path.parent_path().filename().string();
    word = name.rfind("rank");
  }
  if (word == std::string::npos) return std::nullopt;
  std::size_t at = word + 4;
  while (at < name.size() && (name[at] == '_' || name[at] == '-' || name[at] == '.' || name[at] == '=')) ++at;
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), rank);
  return error == std::errc{} && rank >= 0 && rank < (1 << 20) ? std::optional(rank) : std::nullopt;
}

struct OneFile {
  RankRows rows;
  std::optional<std::int64_t> base_ns;
  std::string host;
};

std::string beginning_of(const std::string& path) {
  trace::InputFile file(path);
  std::array<char, 4096> bytes{};
  const std::streamsize count = file.sgetn(bytes.data(), bytes.size());
  return {bytes.data(), static_cast<std::size_t>(std::max<std::streamsize>(count, 0))};
}

/// The rank by the file's name, where the file does not tell it.
void name_rank(RankRows& rows) {
  if (rows.rank_told) return;
  const auto rank = rank_of_name(rows.file);
  if (!rank) return;
  rows.rank = *rank;
  rows.rank_told = true;
  rows.notes.push_back(fmt::format("The rank, {}, is from the file's name: the file does not tell it.", *rank));
}

/// A report of `nsys profile torchrun …` holds all ranks of its node, each a process.
std::vector<OneFile> read_database(const std::string& path, const ReadOptions& options) {
  constexpr std::size_t kMostProcesses = 4096;  // with those that load data
  std::map<std::int64_t, KinetoRows> rows;
  const NsysFacts facts = read_nsys_events(
      path, options.most_events, options.most_bytes, [&](std::int64_t process, const trace::ParsedEvent& event) {
        rows.try_emplace(process, options.functions).first->second.event(event);
        if (rows.size() > kMostProcesses) {
          throw ConfigError(fmt::format("has rows of more than {} processes, which no node has.", kMostProcesses));
        }
      });
  std::vector<std::int64_t> processes = facts.processes;
  if (processes.empty() && !rows.empty()) processes.push_back(rows.begin()->first);
  std::vector<OneFile> ranks;
  for (const std::int64_t process : processes) {
    OneFile& one = ranks.emplace_back(rows.at(process).take(facts.file), facts.file.base_time_ns, "");
    one.rows.file = path;
    if (!facts.trouble.empty()) one.rows.notes.insert(one.rows.notes.begin(), facts.trouble);
    if (processes.size() == 1) {
      name_rank(one.rows);
      continue;
    }
    one.rows.notes.push_back(
        fmt::format("It is process {} of the {} with work on a device in {}.", process, processes.size(), path));
  }
  return ranks;
}

/// Rows that jax.profiler wrote of a process, each device a rank.
std::vector<OneFile> take_devices(XlaRows& rows, const std::string& path) {
  std::vector<OneFile> ranks;
  for (RankRows& one : rows.take()) {
    ranks.push_back({std::move(one), rows.base_ns(), ""});
    ranks.back().rows.file = path;
  }
  if (ranks.size() == 1) name_rank(ranks.back().rows);
  return ranks;
}

/// The ranks of a file; none if it holds nothing, and why in `why`.
std::vector<OneFile> read_file(const std::string& path, const ReadOptions& options, std::string& why) {
  const std::string beginning = beginning_of(path);
  why = other_program(path, beginning);
  if (!why.empty()) return {};
  trace::InputFile file(path, options.most_bytes);
  XlaRows compiled(options.functions);
  try {
    if (beginning.starts_with("SQLite format 3")) return read_database(path, options);
    if (is_xspace_name(path))
      compiled.xspace(std::string(std::istreambuf_iterator<char>(&file), {}), options.most_events);
  } catch (const ConfigError& error) {
    why = error.what();
    return {};
  }
  if (is_xspace_name(path)) {
    why = compiled.empty() ? "no rows of a GPU, and no thunks of XLA on processors" : "";
    return compiled.empty() ? std::vector<OneFile>() : take_devices(compiled, path);
  }
  std::istream in(&file);
  constexpr std::size_t kMostOfAMessage = 400;
  std::string trouble;
  const auto fault = [&](trace::ReadFault what, std::optional<std::int64_t>, std::string_view message) {
    if (what != trace::ReadFault::structure) trouble = clean_text(message, kMostOfAMessage);
  };
  KinetoRows rows(options.functions);
  const trace::FileFacts facts =
      trace::read_events(in, options.most_events, fault, [&](const trace::ParsedEvent& event) {
        if (!compiled.json_event(event)) rows.event(event);
      });
  if (!compiled.empty() && rows.empty()) return take_devices(compiled, path);
  if (!file.error().empty()) trouble = fmt::format("The file cannot be read to its end: {}.", file.error());
  if (rows.empty()) {
    why = !trouble.empty() ? trouble
          : facts.has_events
              ? "no rows of a profiler: neither of the categories cpu_op, cuda_runtime … nor kernel, gpu_memcpy …"
              : "not a trace (no traceEvents list).";
    return {};
  }
  std::vector<OneFile> ranks;
  OneFile& one = ranks.emplace_back(rows.take(facts), facts.base_time_ns, facts.host);
  one.rows.file = path;
  if (!trouble.empty()) {
    one.rows.notes.insert(one.rows.notes.begin(),
                          fmt::format("Only the first {} events are read: {}", facts.events, trouble));
  } else if (!facts.whole) {
    one.rows.notes.insert(one.rows.notes.begin(),
                          fmt::format("The file ends behind its event {}, before its list does.", facts.events));
  }
  name_rank(one.rows);
  return ranks;
}

std::optional<std::int64_t> first_time(const RankRows& rows) {
  if (!rows.host.empty()) return rows.host.front().begin_ns;
  if (!rows.device.empty()) return rows.device.front().begin_ns;
  return std::nullopt;
}

void shift(RankRows& rows, std::int64_t by_ns) {
  for (DeviceRow& row : rows.device) row.begin_ns += by_ns, row.end_ns += by_ns;
  for (HostRow& row : rows.host) row.begin_ns += by_ns, row.end_ns += by_ns;
  for (StreamWait& wait : rows.waits) wait.asked_ns += by_ns;
  for (MemoryRow& row : rows.memory) row.time_ns += by_ns;
  for (StepMark& step : rows.steps) step.begin_ns += by_ns, step.end_ns += by_ns;
}

/// Moves all ranks onto one clock, if the files tell how: each with what it adds to be Unix time, or all in that.
/// Machines that are told to differ have clocks of their own, set alike to some milliseconds.
bool share_clock(std::vector<OneFile>& files) {
  const bool one_machine = std::ranges::all_of(files, [&](const OneFile& f) { return f.host == files.front().host; });
  const auto usable = [](const OneFile& file) {
    return file.base_ns && *file.base_ns >= 0 && *file.base_ns <= kMostBase_ns;
  };
  if (std::ranges::all_of(files, usable)) {
    const auto least = std::ranges::min_element(files, {}, [](const OneFile& file) { return *file.base_ns; });
    const std::int64_t first_ns = *least->base_ns;
    for (OneFile& file : files) {
      if (*file.base_ns > first_ns) shift(file.rows, *file.base_ns - first_ns);
    }
    return one_machine;
  }
  return one_machine && std::ranges::all_of(files, [](const OneFile& file) {
           const auto first = first_time(file.rows);
           return !file.base_ns && first && *first > kUnix_ns;
         });
}

/// "0 to 3, 6": of sorted numbers.
std::string ranges(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(last == i ? fmt::format("{}", numbers[i]) : fmt::format("{} to {}", numbers[i], numbers[last]));
    i = last + 1;
  }
  constexpr std::size_t kMost = 8;
  const std::size_t shown = std::min(parts.size(), kMost);
  return fmt::format("{}{}", fmt::join(std::span(parts).first(shown), ", "), parts.size() > shown ? " …" : "");
}

void number_ranks(std::vector<OneFile>& files, JobTrace& job) {
  std::set<int> taken;
  for (const OneFile& file : files) {
    if (file.rows.rank_told) taken.insert(file.rows.rank);
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    RankRows& rows = files[i].rows;
    if (rows.rank_told) continue;
    rows.rank = static_cast<int>(i);
    while (taken.contains(rows.rank)) ++rows.rank;
    taken.insert(rows.rank);
    if (files.size() > 1) {
      rows.notes.push_back(
          fmt::format("No rank is told, neither in the file nor by its name; it is taken for {}, by "
                      "its place among the files.",
                      rows.rank));
    }
  }
  std::ranges::stable_sort(files, {}, [](const OneFile& file) { return file.rows.rank; });
  for (OneFile& file : files) {
    if (!job.ranks.empty() && job.ranks.back().rank == file.rows.rank) {
      job.notes.push_back(fmt::format("Rank {} has two files; {} counts, {} is left out.", file.rows.rank,
                                      job.ranks.back().file, file.rows.file));
    } else {
      job.ranks.push_back(std::move(file.rows));
    }
  }
}

void note_missing(JobTrace& job) {
  int world = 0;
  std::set<int> sizes, there;
  for (const RankRows& rows : job.ranks) {
    if (rows.world_size) sizes.insert(*rows.world_size);
    there.insert(rows.rank);
  }
  if (sizes.size() > 1) {
    job.notes.push_back(fmt::format("The files disagree on how many ranks the job had: {}.", fmt::join(sizes, ", ")));
  }
  if (!sizes.empty()) world = *sizes.rbegin();
  std::vector<int> missing;
  for (int rank = 0; rank < std::max(world, *there.rbegin() + 1); ++rank) {
    if (!there.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return;
  job.notes.push_back(world > 0 ? fmt::format("Of {} ranks {} are missing: {}.", world, missing.size(), ranges(missing))
                                : fmt::format("Ranks are missing: {}.", ranges(missing)));
}

/// Ranks of one job run at the same time.
void refuse_two_jobs(const JobTrace& job) {
  if (!job.shared_clock) return;
  const RankRows* first_to_end = nullptr;
  const RankRows* last_to_begin = nullptr;
  const auto begin = [](const RankRows& rows) { return rows.device.front().begin_ns; };
  const auto end = [](const RankRows& rows) {
    return std::ranges::max_element(rows.device, {}, &DeviceRow::end_ns)->end_ns;
  };
  for (const RankRows& rows : job.ranks) {
    if (rows.device.empty()) continue;
    if (first_to_end == nullptr || end(rows) < end(*first_to_end)) first_to_end = &rows;
    if (last_to_begin == nullptr || begin(rows) > begin(*last_to_begin)) last_to_begin = &rows;
  }
  if (first_to_end == nullptr || begin(*last_to_begin) <= end(*first_to_end)) return;
  throw ConfigError(fmt::format(
      "{} begins {:.3f} s after {} has ended: they are of two jobs, or of two recordings of one. Give the files of "
      "one.",
      last_to_begin->file, static_cast<double>(begin(*last_to_begin) - end(*first_to_end)) * 1e-9, first_to_end->file));
}

}  // namespace

JobTrace read_job(const std::vector<std::string>& paths, const ReadOptions& options) {
  JobTrace job;
  std::vector<OneFile> files;
  std::string why;
  for (const File& file : files_of(paths)) {
    std::vector<OneFile> ranks = read_file(file.path, options, why);
    if (!ranks.empty()) {
      std::ranges::move(ranks, std::back_inserter(files));
    } else if (!file.of_folder) {
      throw ConfigError(
          fmt::format("{}: {}{} Expected a trace of torch.profiler (JSON), Nsight Systems (.sqlite) or "
                      "jax.profiler (.xplane.pb).",
                      file.path, why, why.ends_with('.') ? "" : "."));
    } else {
      job.notes.push_back(fmt::format("{} skipped: {}", file.path, why));
    }
  }
  if (files.empty()) {
    throw ConfigError(fmt::format("{}: holds no trace of a profiler: {}", paths.front(), job.notes.front()));
  }
  const bool one_report =
      std::ranges::all_of(files, [&](const OneFile& file) { return file.rows.file == files.front().rows.file; });
  job.shared_clock = share_clock(files) || (one_report && files.size() > 1);
  if (!job.shared_clock && files.size() > 1) {
    job.notes.emplace_back("The files do not tell how their clocks relate; each rank has its own.");
  }
  number_ranks(files, job);
  note_missing(job);
  refuse_two_jobs(job);
  return job;
}

}  // namespace fsdpbench::foreign
