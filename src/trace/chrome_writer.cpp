#include "trace/chrome_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fsdpbench::trace {
namespace {

constexpr int kHostTrack = 1;  // tracks 2… are lanes; Perfetto takes 0 for the process itself

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A file that is whole or not there: written beside its place, renamed by commit(), removed otherwise.
class WholeFile {
 public:
  explicit WholeFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {
    file_ = std::fopen(part_.c_str(), "w");
    if (file_ == nullptr) fail("open");
  }
  ~WholeFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(part_.c_str());
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail("write");
  }
  void commit() {
    FILE* file = file_;
    file_ = nullptr;
    if (std::fclose(file) != 0 || std::rename(part_.c_str(), path_.c_str()) != 0) fail("finish");
  }

 private:
  [[noreturn]] void fail(const char* verb) const {
    throw OutputError(fmt::format("cannot {} {}: {}", verb, path_, std::strerror(errno)));
  }
  std::string path_;
  std::string part_;
  FILE* file_ = nullptr;
};

class Writer {
 public:
  Writer(WholeFile& file, std::int64_t origin) : file_(file), origin_(origin) {}

  double microseconds(std::int64_t ns) const { return static_cast<double>(ns - origin_) / 1000.0; }

  void event(const std::string& text) {
    file_.write(first_ ? "\n" : ",\n");
    file_.write(text);
    first_ = false;
  }
  void metadata(const char* what, int pid, int tid, const std::string& args) {
    event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"ts":0,"args":{{{}}}}})", what, pid, tid, args));
  }
  void slice(const std::string& name, const std::string& category, int pid, int tid, std::int64_t begin,
             std::int64_t end, const std::string& args) {
    event(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                      quoted(name), category, pid, tid, microseconds(begin),
                      static_cast<double>(end - begin) / 1000.0, args));
  }

 private:
  WholeFile& file_;
  std::int64_t origin_;
  bool first_ = true;
};

void write_tracks(Writer& writer, int pid, int rank) {
  writer.metadata("process_name", pid, 0, fmt::format(R"("name":"rank {}")", rank));
  writer.metadata("process_sort_index", pid, 0, fmt::format(R"("sort_index":{})", rank));
  writer.metadata("thread_name", pid, kHostTrack, R"("name":"host")");
  writer.metadata("thread_sort_index", pid, kHostTrack, R"("sort_index":0)");
  for (Lane lane : kLanes) {
    const int tid = kHostTrack + 1 + static_cast<int>(index_of(lane));
    writer.metadata("thread_name", pid, tid, fmt::format(R"("name":"{}")", to_string(lane)));
    writer.metadata("thread_sort_index", pid, tid, fmt::format(R"("sort_index":{})", tid));
  }
}

void write_memory(Writer& writer, int pid, const RankTrace& trace) {
  for (const MemorySample& sample : trace.memory) {
    std::string args;
    for (MemoryCategory category : kMemoryCategories) {
      args += fmt::format(R"({}"{}":{})", args.empty() ? "" : ",", to_string(category), sample.live[index_of(category)]);
    }
    writer.event(fmt::format(R"({{"ph":"C","name":"live bytes","pid":{},"tid":0,"ts":{:.3f},"args":{{{}}}}})", pid,
                             writer.microseconds(sample.time_ns), args));
  }
}

}  // namespace

void write_chrome_trace(const std::string& path, const std::vector<RankTrace>& ranks,
                        const std::function<OpLabel(std::int32_t step, std::int32_t op)>& label) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& trace : ranks) {
    for (const StepWindow& window : trace.steps) origin = std::min(origin, window.begin_ns);
  }
  WholeFile file(path);
  file.write("{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  Writer writer(file, origin);
  for (const RankTrace& trace : ranks) {
    const int pid = trace.rank + 1;
    write_tracks(writer, pid, trace.rank);
    std::map<std::int32_t, std::size_t> step_index;
    for (const Record& record : trace.records) {
      const auto [window, fresh] = step_index.try_emplace(record.step, step_index.size());
      if (fresh) {
        const StepWindow& w = trace.steps.at(window->second);
        writer.slice(fmt::format("step {}", record.step), "step", pid, kHostTrack, w.begin_ns, w.end_ns, "");
      }
      const OpLabel op = label(record.step, record.op);
      if (!op.host && record.begin_ns == 0) continue;  // an op without work
      std::string args = fmt::format(R"("step":{},"op":{},"unit":{},"phase":"{}")", record.step, record.op,
                                     quoted(op.unit), op.phase);
      if (!op.host) args += fmt::format(R"(,"issued_us":{:.3f})", writer.microseconds(record.issued_ns));
      if (op.bytes > 0) args += fmt::format(R"(,"bytes":{})", op.bytes);
      if (record.peers_arrived_ns > 0) {
        args += fmt::format(R"(,"waited_for_peers_us":{:.3f})",
                            static_cast<double>(std::max<std::int64_t>(0, record.peers_arrived_ns - record.begin_ns)) / 1000.0);
      }
      const int tid = op.host ? kHostTrack : kHostTrack + 1 + static_cast<int>(index_of(op.lane));
      writer.slice(op.name, op.category, pid, tid, op.host ? record.issued_ns : record.begin_ns, record.end_ns, args);
    }
    write_memory(writer, pid, trace);
  }
  file.write("\n]}\n");
  file.commit();
}

}  // namespace fsdpbench::trace
