// Saving a training, against plain writing of as many bytes with the same sync: all ranks save a shard each, and one
// thread writes one file, before and after. TMPDIR says on which disk.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "against_plain.h"
#include "backend/cpu/backend.h"
#include "base/clock.h"
#include "engine/run.h"

namespace fsdpbench {
namespace {

namespace fs = std::filesystem;

/// What is measured does not depend on the data.
class Halves : public engine::BatchSource {
 public:
  void tokens(std::int64_t, std::span<std::int32_t>) const override {}
  void features(std::int64_t, std::span<float> inputs, std::span<float> targets) const override {
    std::ranges::fill(inputs, 0.5F);
    std::ranges::fill(targets, 0.5F);
  }
};

class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "fsdpbench-bench-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder in " + path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

config::RunConfig training(std::int64_t width, int ranks, std::int64_t saves, const std::string& folder) {
  config::RunConfig c;
  c.model.kind = config::ModelKind::mlp;
  c.model.layers = 4;
  c.model.width = c.model.in_features = c.model.out_features = width;
  c.mesh = {ranks, ranks, 1};
  if (ranks == 1) c.fsdp.strategy = config::Strategy::no_shard;
  c.train.warmup = 0;
  c.train.steps = saves;
  c.train.batch_per_rank = 1;
  c.checkpoint.folder = folder;
  c.checkpoint.every = 1;
  c.checkpoint.keep = 1;
  return c;
}

/// What `dd bs=4M conv=fsync` does; seconds.
double write_plainly(const std::string& path, std::int64_t bytes) {
  const std::vector<char> block(std::size_t{4} << 20, 'x');
  const std::int64_t begin = now_ns();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("cannot open " + path);
  for (std::int64_t done = 0; done < bytes;) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(bytes - done, std::ssize(block)));
    const ssize_t written = ::write(file, block.data(), count);
    if (written <= 0) throw std::runtime_error("cannot write " + path);
    done += written;
  }
  if (::fsync(file) != 0) throw std::runtime_error("cannot sync " + path);
  ::close(file);
  const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  fs::remove(path);
  return seconds;
}

/// From the first rank's begin until the last file was on disk.
double seconds_of(const engine::Measurement& m, std::int64_t steps) {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (const trace::RankTrace& rank : m.traces) {
    for (const trace::SaveSpan& span : rank.saves) {
      if (span.steps != steps) continue;
      begin = std::min(begin, span.begin_ns);
      end = std::max(end, span.end_ns);
    }
  }
  return static_cast<double>(end - begin) * 1e-9;
}

/// `ranks` save 12 bytes for each of 4 width x width weights.
void BM_Save(benchmark::State& state) {
  constexpr std::int64_t kSaves = 5;
  const auto ranks = static_cast<int>(state.range(0));
  const std::int64_t width = state.range(1);
  std::vector<double> ratios, noise, saves_s;
  double bytes = 0;
  for (auto _ : state) {
    const Folder folder;
    const engine::Setup setup = engine::set_up(training(width, ranks, kSaves, folder.path() + "/saved"));
    const std::int64_t expected = setup.plan.shapes.parameter_count() * 12;
    std::vector<double> plain_s{write_plainly(folder.path() + "/plain", expected)};
    engine::RunHooks hooks;  // the disk's speed changes by the minute, so the plain files are written in between
    hooks.progress = [&](std::int64_t, const std::optional<engine::StepLoss>&) {
      plain_s.push_back(write_plainly(folder.path() + "/plain", expected));
    };
    hooks.meet_before_steps = true;
    const engine::Measurement m = engine::run(*backend::cpu::make_cpu_backend(), setup, Halves(), hooks);
    for (std::size_t i = 1; i < m.checkpoints.size(); ++i) {  // the first makes the folder's blocks
      const double save_s = seconds_of(m, m.checkpoints[i].steps);
      saves_s.push_back(save_s);
      ratios.push_back((plain_s[i] + plain_s[i + 1]) / 2 / save_s);
      noise.push_back(plain_s[i] / plain_s[i + 1]);
      bytes = static_cast<double>(m.checkpoints[i].bytes);
    }
    state.SetIterationTime(bench::median(saves_s));
  }
  state.counters["MB_s"] = bytes / bench::median(saves_s) * 1e-6;
  state.counters["ratio_to_plain"] = bench::median(ratios);
  state.counters["plain_to_itself"] = bench::median(noise);
}

BENCHMARK(BM_Save)
    ->ArgNames({"ranks", "width"})
    ->Args({1, 2048})
    ->Args({4, 2048})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdpbench
