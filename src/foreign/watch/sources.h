#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/watch/job_view.h"

namespace fsdpbench::watch {

/// Adds one line of fsdpbench.torch.step(), which writes one per rank and step where FSDPBENCH_WATCH names a folder.
/// Returns why it is none; empty: it is added.
std::string add_step_line(JobView& job, const nlohmann::json& line);

bool is_step_line(const nlohmann::json& line);

/// Adds one line of NCCL's Inspector (plugins/profiler/inspector/inspector_json.cc, output format v4.0). Returns why it
/// is none; empty: it is added. Ranks are those of the communicator: the Inspector tells no others. Lines of sends and
/// receives are accepted and not kept: what one takes depends on the pipeline around it.
std::string add_inspector_line(JobView& job, const nlohmann::json& line);

bool is_inspector_line(const nlohmann::json& line);

/// JSON that came from outside: discarded if it is none, or nested too deeply.
using ParseJson = std::function<nlohmann::json(std::string_view)>;

/// The files that are watched, read as they grow. What a file is shows its content: a dump of the flight recorder
/// (pickle or JSON), lines of NCCL's Inspector, answers of its RAS one after another, lines of fsdpbench.torch.step(),
/// an answer of an exporter of GPU metrics.
class Sources {
 public:
  /// `paths`: files, or folders of which every file is read that is one of these. Throws ConfigError if one is not
  /// there.
  Sources(std::vector<std::string> paths, ParseJson parse);

  /// Reads what is new since the last time. `now_ns`: Unix time, of what has changed since the first time; `once`: the
  /// files are complete, so that what cannot be read is an error and a last line without its end counts. `stop` is
  /// asked between pieces. Throws ConfigError for a file that was named and is none of these, once, and for folders.
  void read(JobView& job, std::int64_t now_ns, bool once, const std::function<bool()>& stop);

  /// Adds one answer of NCCL's RAS that came at `time_ns`, Unix time. Returns why it is none; empty: it is added.
  std::string add_ras(JobView& job, std::string_view text, std::int64_t time_ns) const;

  int files() const { return used_; }  ///< of which something was read

 private:
  enum class Kind : std::uint8_t { unknown, dump, lines, answers, gpus, other };
  struct File {
    Kind kind = Kind::unknown;
    std::int64_t offset = 0, size = -1, changed_ns = -1;
    std::int64_t lines = 0, bad_lines = 0, first_bad = 0;  // or answers
    std::string why;                                       ///< why it, or its first bad line, is left out
    bool is_named = false;
  };

  std::vector<std::string> list(bool once);
  void read_file(const std::string& path, File& file, JobView& job, std::int64_t now_ns, bool once,
                 const std::function<bool()>& stop);
  bool read_gpus(const std::string& path, File& file, JobView& job, bool once);
  bool read_dump(const std::string& path, File& file, JobView& job, std::int64_t seen_ns);
  void read_lines(const std::string& path, File& file, JobView& job, bool once, const std::function<bool()>& stop);
  void read_answers(const std::string& path, File& file, JobView& job, bool once, const std::function<bool()>& stop);
  std::string add_line(JobView& job, std::string_view text) const;
  bool is_line(std::string_view text) const;

  std::vector<std::string> paths_;
  ParseJson parse_;
  std::map<std::string, File> files_;
  bool first_time_ = true;
  int used_ = 0;
};

}  // namespace fsdpbench::watch
