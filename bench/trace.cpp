// Costs of tracing: a record (should be at most 40 ns), a step with it and without it, taken in turns (at most 1 %);
// how fast the files are written (at least 200 MB/s of JSON), ten million records in bounded memory included, and how
// fast they are read (at least 300 MB/s). A busy machine slows all alike: MB/s_of_cpu counts the thread's own time,
// plain_write is the share of the time that as many bytes take without being made, and over_simdjson how much faster
// reading is than simdjson's document model, in the same run.
#include <benchmark/benchmark.h>
#include <simdjson.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "backend/cpu/backend.h"
#include "base/clock.h"
#include "foreign/kineto_reader.h"
#include "trace/merged_writer.h"
#include "trace/nvtx_range.h"
#include "trace/rank_writer.h"
#include "tracing_cost.h"

namespace fsdpbench {
namespace {

constexpr std::int32_t kOps = 1000;  // of one step

/// Labels of a step as a decoder has them: gathers, copies, forwards, waits.
std::vector<trace::OpLabel> labels() {
  std::vector<trace::OpLabel> result;
  for (std::int32_t i = 0; i < kOps; ++i) {
    trace::OpLabel label;
    label.unit = std::to_string(i / 8);
    switch (i % 4) {
      case 0:
        label.name = "all_gather " + label.unit;
        label.category = trace::OpCategory::communication;
        label.lane = Lane::all_gather;
        label.parameters = true;
        label.bytes = 1 << 20;
        label.collective = {CollectiveKind::all_gather, 0, 1 << 18, DType::f32};
        break;
      case 1:
        label.name = "copy_out " + label.unit;
        label.category = trace::OpCategory::copy;
        label.lane = Lane::copy;
        label.bytes = 1 << 20;
        break;
      default: label.name = "forward blocks." + label.unit; break;
    }
    result.push_back(label);
  }
  return result;
}

/// One step of kOps records that overlap as lanes do; `number` shifts it in time.
class SyntheticStep {
 public:
  SyntheticStep() : labels_(labels()), records_(kOps), memory_(kOps / 4) {}

  trace::TracedStep at(std::int32_t number) {
    constexpr std::int64_t kStep = 10'000 * (kOps + 10);
    const std::int64_t begin = kStep * number;
    for (std::int32_t i = 0; i < kOps; ++i) {
      const std::int64_t issued = begin + 1'000 * i;
      const std::int64_t start = begin + 20'000 + 9'876 * i;
      records_[static_cast<std::size_t>(i)] = {number, i, issued, start, start + 9'123, i % 4 == 0 ? start + 100 : 0};
    }
    for (std::size_t i = 0; i < memory_.size(); ++i)
      memory_[i] = {begin + 4'000 * static_cast<std::int64_t>(i), {1, 2, 3, 4, 5, 6}, 100};
    return {number, {begin, begin + kStep}, records_, memory_, {}, {}};
  }
  trace::LabelOf label() const {
    return [this](std::int32_t, std::int32_t op) -> const trace::OpLabel& {
      return labels_[static_cast<std::size_t>(op)];
    };
  }

 private:
  std::vector<trace::OpLabel> labels_;
  std::vector<trace::Record> records_;
  std::vector<trace::MemorySample> memory_;
};

const trace::RankFacts kFacts{0, 8, "cpu", {{"1", "shard", {0, 1, 2, 3, 4, 5, 6, 7}}}};

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& ending)
      : path_((std::filesystem::temp_directory_path() / ("fsdpbench_bench_trace" + ending)).string()) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

/// The host's work for one record: the time of issue, the entry, the lane's stamp copied at the end of the step.
void record(benchmark::State& state) {
  std::vector<trace::Record> records;
  records.reserve(kOps);
  const backend::Stamp stamp{1, 2, 3, 4, 5};
  for (auto _ : state) {
    records.clear();
    for (std::int32_t i = 0; i < kOps; ++i) {
      records.push_back({0, i, 0, 0, 0, 0});
      records.back().issued_ns = now_ns();
      benchmark::ClobberMemory();
    }
    for (trace::Record& entry : records) {
      entry.begin_ns = stamp.begin_ns;
      entry.end_ns = stamp.end_ns;
      entry.peers_arrived_ns = stamp.peers_arrived_ns;
      entry.core_wait_ns = stamp.core_wait_ns;
      entry.link_ns = stamp.link_ns;
    }
    benchmark::DoNotOptimize(records.data());
  }
  state.counters["per_record"] = benchmark::Counter(static_cast<double>(state.iterations()) * kOps,
                                                    benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(record);

/// An NVTX range when no tool listens.
void nvtx_range_without_tool(benchmark::State& state) {
  const trace::NvtxName name("forward blocks.0");
  for (auto _ : state) {
    trace::nvtx_push(name, 2, {0, 1, 2});
    trace::nvtx_pop();
  }
}
BENCHMARK(nvtx_range_without_tool);

/// So many bytes from memory to a new file, in the writers' pieces.
double plain_write_seconds(std::size_t bytes, const std::string& to) {
  const std::string piece(1 << 18, 'x');
  const std::int64_t begin = now_ns();
  trace::WholeFile file(to);
  for (; bytes > 0; bytes -= std::min(bytes, piece.size())) {
    file.write(std::string_view(piece).substr(0, std::min(bytes, piece.size())));
  }
  file.commit();
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename Write>
void write_steps(benchmark::State& state, const std::string& ending, std::int32_t steps, const Write& write) {
  const TemporaryFile file(ending);
  const TemporaryFile plain(".size");
  SyntheticStep step;
  double seconds = 0, computed_seconds = 0, plain_seconds = 0;
  for (auto _ : state) {
    // A result folder has no such file yet; replacing one makes some file systems write it out first.
    std::filesystem::remove(file.path());
    std::filesystem::remove(plain.path());
    const std::int64_t begin = now_ns();
    const double computed = cpu_seconds();
    write(file.path(), step, steps);
    const double took = static_cast<double>(now_ns() - begin) * 1e-9;
    state.SetIterationTime(took);
    seconds += took;
    computed_seconds += cpu_seconds() - computed;
    plain_seconds += plain_write_seconds(std::filesystem::file_size(file.path()), plain.path());
  }
  const double records = static_cast<double>(steps) * kOps * static_cast<double>(state.iterations());
  // JSON bytes a record, from an uncompressed file of a few steps.
  write(plain.path(), step, 10);
  const double bytes = static_cast<double>(std::filesystem::file_size(plain.path())) / (10.0 * kOps);
  state.counters["MB/s"] = records * bytes * 1e-6 / seconds;
  state.counters["MB/s_of_cpu"] = records * bytes * 1e-6 / computed_seconds;
  state.counters["plain_write"] = plain_seconds / seconds;
  state.counters["ns/record"] = seconds * 1e9 / records;
  state.counters["bytes/record"] = bytes;
  state.counters["file_MB"] = static_cast<double>(std::filesystem::file_size(file.path())) * 1e-6;
  state.counters["peak_rss_MB"] = peak_megabytes();
}

void rank_file(const std::string& path, SyntheticStep& step, std::int32_t steps) {
  trace::RankWriter writer(path, kFacts, {}, step.label());
  for (std::int32_t i = 1; i <= steps; ++i) writer.step(step.at(i));
  writer.finish();
}

void merged_file(const std::string& path, SyntheticStep& step, std::int32_t steps) {
  trace::MergedWriter writer(path, {}, step.label());
  writer.begin_rank(0);
  for (std::int32_t i = 1; i <= steps; ++i) writer.step(step.at(i));
  writer.finish();
}

void write_rank_file(benchmark::State& state) { write_steps(state, ".json", 100, rank_file); }
void write_rank_file_gz(benchmark::State& state) { write_steps(state, ".json.gz", 100, rank_file); }
void write_merged_file(benchmark::State& state) { write_steps(state, ".json", 100, merged_file); }
/// Ten million; compressed, because as text they would need seven gigabytes of disk.
void write_ten_million_records_gz(benchmark::State& state) { write_steps(state, ".json.gz", 10'000, merged_file); }
BENCHMARK(write_rank_file)->Unit(benchmark::kMillisecond)->MinTime(2)->UseManualTime();
BENCHMARK(write_rank_file_gz)->Unit(benchmark::kMillisecond)->MinTime(2)->UseManualTime();
BENCHMARK(write_merged_file)->Unit(benchmark::kMillisecond)->MinTime(2)->UseManualTime();
BENCHMARK(write_ten_million_records_gz)->Unit(benchmark::kSecond)->Iterations(1)->UseManualTime();

constexpr std::int32_t kReadSteps = 100;

/// How much longer reading takes than parsing the same text with simdjson's document model, in turns: a ratio that a
/// busy machine leaves alone. `write`: makes the file; `read`: reads it.
template <typename Write, typename Read>
void read_file(benchmark::State& state, const Write& write, const Read& read) {
  const TemporaryFile file(".json");
  SyntheticStep step;
  write(file.path(), step, kReadSteps);
  const simdjson::padded_string text = simdjson::padded_string::load(file.path());
  simdjson::dom::parser parser;
  double read_seconds = 0, parse_seconds = 0, bytes = 0;
  for (auto _ : state) {
    double begin = cpu_seconds();
    if (!read(file.path())) state.SkipWithError("the file is not read as it was written");
    read_seconds += cpu_seconds() - begin;
    begin = cpu_seconds();
    benchmark::DoNotOptimize(parser.parse(text).error());
    parse_seconds += cpu_seconds() - begin;
    bytes += static_cast<double>(text.size());
  }
  state.counters["MB/s_of_cpu"] = bytes * 1e-6 / read_seconds;
  state.counters["simdjson_MB/s_of_cpu"] = bytes * 1e-6 / parse_seconds;
  state.counters["over_simdjson"] = parse_seconds / read_seconds;
  state.counters["peak_rss_MB"] = peak_megabytes();
}

/// The first part of `trace explain`.
void read_kineto_file(benchmark::State& state) {
  read_file(state, rank_file, [](const std::string& path) {
    return foreign::read_job({path}).ranks.at(0).device.size() == kReadSteps * kOps;
  });
}
BENCHMARK(read_kineto_file)->Unit(benchmark::kMillisecond)->UseRealTime();

void step_with_recording_over_without(benchmark::State& state) {
  config::RunConfig c;
  c.model.layers = 4;
  c.model.width = 128;
  c.model.heads = 2;
  c.model.kv_heads = 2;
  c.model.ffn_width = 352;
  c.train.seq_len = 64;
  c.train.batch_per_rank = 2;
  c.mesh = {2, 2, 1};
  bench::step_with_recording_over_without(state, *backend::cpu::make_cpu_backend(), c, 800);
}
BENCHMARK(step_with_recording_over_without)->Iterations(1)->Unit(benchmark::kSecond)->UseRealTime();

}  // namespace
}  // namespace fsdpbench
