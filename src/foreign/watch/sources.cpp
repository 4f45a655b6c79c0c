#include "foreign/watch/sources.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/read_input.h"
#include "foreign/watch/flight_recorder.h"
#include "foreign/watch/judge_gpus.h"
#include "foreign/watch/plain_pickle.h"
#include "foreign/watch/ras.h"

namespace fsdpbench::watch {
namespace {

using nlohmann::json;

double milliseconds(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return -1;
  const double value = found->get<double>();
  return value >= 0 && value < 1e12 ? value : -1;
}

}  // namespace

bool is_step_line(const json& line) { return line.is_object() && line.contains("fsdpbench_step"); }

std::string add_step_line(JobView& job, const json& line) {
  if (!is_step_line(line)) return "is no line of fsdpbench.torch.step().";
  const auto rank = count_in(line, "rank", kMostMembers), ranks = count_in(line, "ranks", kMostMembers);
  const auto number = count_in(line, "fsdpbench_step", kMostCount), ended_ns = count_in(line, "ended_ns", kMostCount);
  const double step_ms = milliseconds(line, "step_ms");
  if (!rank || !ranks || *rank >= *ranks || !number || !ended_ns || step_ms < 0) {
    return "lacks one of fsdpbench_step, rank, ranks, ended_ns and step_ms, or it is no number that may be there.";
  }
  RankView& view = job.ranks[static_cast<int>(*rank)];
  job.world = std::max(job.world, static_cast<int>(*ranks));
  if (std::string host = text_in(line, "host"); !host.empty()) view.host = std::move(host);
  view.heard.add(*ended_ns);
  double waits_ms = -1;  // no hook saw any
  for (const char* const of : {"gathers_ms", "reductions_ms", "own_ms"}) {
    if (const double ms = milliseconds(line, of); ms >= 0) waits_ms = std::max(0.0, waits_ms) + ms;
  }
  add_step(view, {*number, *ended_ns, step_ms, waits_ms});
  return {};
}
namespace {

using nlohmann::json;

constexpr std::int64_t kMostMicroseconds = 4'000'000'000'000'000;  // the year 2096

}  // namespace

bool is_inspector_line(const json& line) {
  return line.is_object() && has_object(line, "header") && has_object(line, "metadata") &&
         (has_object(line, "coll_perf") || has_object(line, "p2p_perf"));
}

std::string add_inspector_line(JobView& job, const json& line) {
  if (!is_inspector_line(line)) return "is no line of NCCL's Inspector: it has no header, metadata and coll_perf.";
  if (!has_object(line, "coll_perf")) return {};
  const json &header = line["header"], &metadata = line["metadata"], &collective = line["coll_perf"];
  const std::string id = text_in(header, "id");
  const auto rank = count_in(header, "rank", kMostMembers), size = count_in(header, "n_ranks", kMostMembers);
  const auto sequence = count_in(collective, "coll_sn", kMostCount);
  const auto told_us = count_in(metadata, "dump_timestamp_us", kMostMicroseconds);
  const auto took_us = count_in(collective, "coll_exec_time_us", kMostMicroseconds);
  const std::string name = text_in(collective, "coll");
  if (id.empty() || name.empty() || !rank || !size || *rank >= *size || !sequence || !told_us || !took_us) {
    return "lacks one of id, rank, n_ranks, dump_timestamp_us, coll, coll_sn and coll_exec_time_us, or it is no number "
           "that may be there.";
  }
  Communicator& communicator = job.communicators["NCCL Inspector/" + id];
  communicator.source = "NCCL Inspector";
  const std::string label = text_in(header, "comm_name");
  communicator.name = label.empty() || label == "unknown" ? id : fmt::format("{} ({})", label, id);
  communicator.size = static_cast<int>(*size);
  communicator.nodes = static_cast<int>(count_in(header, "nnodes", kMostMembers).value_or(0));
  communicator.lateness = Lateness::waits;
  Member& member = communicator.members[static_cast<int>(*rank)];
  member.heard.add(*told_us * 1000);
  Operation operation;
  operation.sequence = *sequence;
  operation.name = name;
  operation.bytes = count_in(collective, "coll_msg_size_bytes", kMostCount).value_or(-1);
  operation.told_ns = *told_us * 1000;
  operation.took_ns = *took_us * 1000;
  // Times of the GPU and of the host differ by what it takes to notice: they are not compared.
  operation.shape = text_in(collective, "coll_timing_source");
  if (const auto trace = collective.find("event_trace_ts"); trace != collective.end() && trace->is_object()) {
    if (const auto came_us = count_in(*trace, "coll_start_ts", kMostMicroseconds)) operation.came_ns = *came_us * 1000;
  }
  add_operation(member, std::move(operation));
  return {};
}
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr std::size_t kMostFiles = 100'000;
constexpr const char* kExpected =
    "expected dumps of PyTorch's flight recorder, lines of NCCL's Inspector, answers of its RAS in JSON, metrics of "
    "GPUs as dcgm-exporter or nvidia_gpu_exporter answer them, or what fsdpbench.torch writes";

/// Answers are printed over many lines: only their first brace is at the beginning of a line. One that was cut short
/// ends where the next begins.
struct Answer {
  std::size_t begin = std::string_view::npos, end = std::string_view::npos;  ///< npos: not found yet
};

Answer next_answer(std::string_view text, std::size_t from) {
  Answer found;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = from; i < text.size(); ++i) {
    const char one = text[i];
    if (one == '{' && (i == from || text[i - 1] == '\n')) {
      if (depth > 0) {
        found.end = i;
        return found;
      }
      found.begin = i;
    }
    if (found.begin == std::string_view::npos) continue;
    if (in_text) {
      if (one == '\\') ++i;
      if (one == '"' || one == '\n') in_text = false;
    } else if (one == '"') {
      in_text = true;
    } else if (one == '{') {
      ++depth;
    } else if (one == '}' && --depth == 0) {
      found.end = i + 1;
      return found;
    }
  }
  return found;
}

bool may_be_answers(std::string_view beginning) {
  return beginning.starts_with('{') && beginning.substr(0, 4096).find("\"nccl_version\"") != std::string_view::npos &&
         beginning.substr(0, 4096).find("\"communicators_count\"") != std::string_view::npos;
}

}  // namespace

Sources::Sources(std::vector<std::string> paths, ParseJson parse) : paths_(std::move(paths)), parse_(std::move(parse)) {
  for (const std::string& path : paths_) {
    if (const std::string trouble = lookup_error(path); !trouble.empty()) {
      throw ConfigError(fmt::format("{}: {}", path, trouble));
    }
  }
}

/// Returns why a line is not added; empty: it is.
std::string Sources::add_line(JobView& job, std::string_view text) const {
  const json line = parse_(text);
  if (line.is_discarded()) return "is no JSON.";
  return is_step_line(line) ? add_step_line(job, line) : add_inspector_line(job, line);
}

bool Sources::is_line(std::string_view text) const {
  const json line = parse_(text.substr(0, text.find('\n')));
  return !line.is_discarded() && (is_step_line(line) || is_inspector_line(line));
}

std::string Sources::add_ras(JobView& job, std::string_view text, std::int64_t time_ns) const {
  const json answer = parse_(text);
  return answer.is_discarded() ? "is no JSON." : add_ras_answer(job, answer, time_ns);
}

std::vector<std::string> Sources::list(bool once) {
  std::vector<std::string> found;
  for (const std::string& path : paths_) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      found.push_back(path);
      files_[path].is_named = true;
      continue;
    }
    fs::directory_iterator entry(path, error);
    if (error) throw ConfigError(fmt::format("{}: cannot be read: {}", path, error.message()));
    std::vector<std::string> own;
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with('.') || name.ends_with(".tmp")) continue;
      std::error_code ignored;
      if (entry->is_regular_file(ignored)) own.push_back(entry->path().string());
      if (own.size() > kMostFiles) throw ConfigError(fmt::format("{}: has more than {} files.", path, kMostFiles));
    }
    if (own.empty() && once) throw ConfigError(fmt::format("{}: has no files; {}.", path, kExpected));
    std::ranges::sort(own);
    found.insert(found.end(), own.begin(), own.end());
  }
  return found;
}

void Sources::read(JobView& job, std::int64_t now_ns, bool once, const std::function<bool()>& stop) {
  job.notes.clear();
  for (const std::string& path : list(once)) {
    if (stop()) return;
    File& file = files_[path];
    try {
      read_file(path, file, job, now_ns, once, stop);
    } catch (const ConfigError& error) {
      if (once && file.is_named) throw;
      file.why = error.what();
    }
  }
  used_ = 0;
  for (const auto& [path, file] : files_) {
    if (file.kind == Kind::dump || file.kind == Kind::gpus || file.lines > file.bad_lines) ++used_;
    if (file.bad_lines > 0) {
      const char* what = file.kind == Kind::answers ? "answer" : "line";
      job.notes.push_back(fmt::format("{}: {} of {} {}s are left out; the first, {} {}, {}", path, file.bad_lines,
                                      file.lines, what, what, file.first_bad, file.why));
    } else if (!file.why.empty()) {
      job.notes.push_back(file.why);
    }
  }
  if (once && used_ == 0 && !paths_.empty()) {
    throw ConfigError(job.notes.empty() ? fmt::format("{}: there is nothing to read; {}.", paths_.front(), kExpected)
                                        : job.notes.front());
  }
  first_time_ = false;
}

void Sources::read_file(const std::string& path, File& file, JobView& job, std::int64_t now_ns, bool once,
                        const std::function<bool()>& stop) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (once) throw ConfigError(fmt::format("{}: there is no such file; {}.", path, kExpected));
    return;  // renamed or taken away meanwhile
  }
  const std::int64_t changed_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  const bool same = file.size == status.st_size && file.changed_ns == changed_ns;
  if (same && file.kind != Kind::unknown) return;
  if (status.st_size < file.offset) file.offset = 0, file.lines = 0, file.bad_lines = 0;  // another file by now
  file.size = status.st_size;
  file.changed_ns = changed_ns;
  if (file.kind == Kind::lines) return read_lines(path, file, job, once, stop);
  if (file.kind == Kind::answers) return read_answers(path, file, job, once, stop);
  const std::string beginning = Input(path, kExpected).beginning(kPiece);
  if (beginning.empty()) {
    if (once) file.why = fmt::format("{}: is empty.", path);
    return;
  }
  if (is_line(beginning)) {
    file.kind = Kind::lines;
    file.why.clear();
    return read_lines(path, file, job, once, stop);
  }
  if (may_be_answers(beginning)) {
    file.kind = Kind::answers;
    file.why.clear();
    return read_answers(path, file, job, once, stop);
  }
  if (may_be_gpu_metrics(beginning)) {
    if (read_gpus(path, file, job, once)) file.kind = Kind::gpus;
    return;
  }
  const bool was_dump = file.kind == Kind::dump;
  if (read_dump(path, file, job, first_time_ ? -1 : now_ns)) {
    file.kind = Kind::dump;
    file.why.clear();
  } else if (!was_dump) {
    file.kind = Kind::other;  // read again once it changes: it may be written at this moment
    if (once && file.is_named) throw ConfigError(file.why);
  }
}

/// A file that is replaced each time; its time is that of its last change.
bool Sources::read_gpus(const std::string& path, File& file, JobView& job, bool once) {
  std::string text = read_input(path, kMostOfAResult, kExpected);
  // A line without its end is being written.
  if (!once) text.resize(text.rfind('\n') + 1);
  file.why = add_gpu_metrics(job, text, path, fs::path(path).stem().string(), file.changed_ns);
  if (!file.why.empty()) file.why = fmt::format("{}: {}", path, file.why);
  return file.why.empty();
}

bool Sources::read_dump(const std::string& path, File& file, JobView& job, std::int64_t seen_ns) {
  const std::string text = read_input(path, kMostOfAResult, kExpected);
  json dump;
  if (text.starts_with('\x80')) {
    std::string why;
    auto read = read_plain_pickle(text, why);
    if (!read) {
      file.why = fmt::format("{}: is a pickle that is not read: {}.", path, why);
      return false;
    }
    dump = std::move(*read);
  } else {
    dump = parse_(text);
    if (dump.is_discarded() || !dump.is_object()) {
      file.why = fmt::format("{}: is neither JSON nor a pickle; {}.", path, kExpected);
      return false;
    }
  }
  const std::string why = add_flight_record(job, dump, {path, seen_ns});
  if (!why.empty()) file.why = fmt::format("{}: {}", path, why);
  return why.empty();
}

void Sources::read_answers(const std::string& path, File& file, JobView& job, bool once,
                           const std::function<bool()>& stop) {
  const Input input(path, kExpected);
  std::size_t most = kPiece;
  while (!stop()) {
    const std::string text = input.part(file.offset, most);
    const bool last = text.size() < most;
    std::size_t at = 0;
    for (Answer one = next_answer(text, 0); one.begin != std::string::npos; one = next_answer(text, at)) {
      if (one.end == std::string::npos) {
        if (!last || !once) break;
        one.end = text.size();
      }
      ++file.lines;
      const std::string why = add_ras(job, std::string_view(text).substr(one.begin, one.end - one.begin), -1);
      if (!why.empty() && ++file.bad_lines == 1) file.first_bad = file.lines, file.why = why;
      at = one.end;
    }
    if (at == 0 && !last) {
      if (most < static_cast<std::size_t>(kMostOfAResult)) {
        most *= 4;
        continue;
      }
      ++file.lines, ++file.bad_lines;
      if (file.bad_lines == 1) file.first_bad = file.lines, file.why = "has more than 64 MiB.";
      at = text.size();
    }
    file.offset += static_cast<std::int64_t>(at);
    if (last) return;
  }
}

void Sources::read_lines(const std::string& path, File& file, JobView& job, bool once,
                         const std::function<bool()>& stop) {
  const Input input(path, kExpected);
  const auto take = [&](std::string_view line) {
    ++file.lines;
    const std::string why = add_line(job, line);
    if (!why.empty() && ++file.bad_lines == 1) file.first_bad = file.lines, file.why = why;
  };
  while (!stop()) {
    const std::string piece = input.part(file.offset, kPiece);
    std::size_t at = 0;
    for (std::size_t end = piece.find('\n'); end != std::string::npos; end = piece.find('\n', at)) {
      if (end > at) take(std::string_view(piece).substr(at, end - at));
      at = end + 1;
    }
    const bool last = piece.size() < kPiece;
    if (last && once && at < piece.size()) {
      take(std::string_view(piece).substr(at));
      at = piece.size();
    }
    if (at == 0 && !last) {
      ++file.lines, ++file.bad_lines;
      if (file.bad_lines == 1) file.first_bad = file.lines, file.why = "has more than 4 MiB.";
      at = piece.size();
    }
    file.offset += static_cast<std::int64_t>(at);
    if (last) return;
  }
}

}  // namespace fsdpbench::watch
