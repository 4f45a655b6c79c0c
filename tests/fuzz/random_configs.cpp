// Draws configurations over the table of all keys (support/random_keys.h) and takes what config::validate() accepts
// through all that the program does with one, in this process: plan, schedules and their check, explain, export,
// simulation, result, traces and their check; of those that can, every RUN_EVERY-th is also trained. A finding is a
// signal, a hang, an exception that is not a refusal, a trace that breaks a rule, or two answers that differ: memory
// to the byte, bytes on the wire, order of collectives.
//   random_configs SOURCE_FOLDER CASES [FIRST_CASE] [RUN_EVERY] [KEEP_FOLDER]
// KEEP_FOLDER gets what was said and written of each case, by its number: tests/frozen compares two programs by it.
// Cases run in a child process, so that one that dies is named and the next goes on. One alone, by its number:
//   random_configs . 1 NUMBER 1
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "app/explain_report.h"
#include "base/error.h"
#include "clock/op_times.h"
#include "config/load.h"
#include "config/validate.h"
#include "config/write.h"
#include "dialects/make_export.h"
#include "engine/simulate.h"
#include "model/outline.h"
#include "runs/cell.h"
#include "runs/result_fields.h"
#include "runs/result_folder.h"
#include "runs/result_json.h"
#include "runs/run_table.h"
#include "runs/trial.h"
#include "schedule/print_schedule.h"
#include "support/check_schedules.h"
#include "support/random_keys.h"
#include "support/temporary_folder.h"
#include "trace/validate.h"

namespace fsdpbench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostKeys = 256;
constexpr int kMostRankedRun = 6;                      // threads of a case that is trained: six a rank
constexpr std::int64_t kMostModelled_ns = 20'000'000;  // of a step that is trained in real time

/// After which a case hangs; FSDPBENCH_PATIENCE multiplies it, for busy machines.
double hang_s() {
  const char* patience = std::getenv("FSDPBENCH_PATIENCE");
  return 60 * (patience == nullptr ? 1 : std::max(1.0, std::strtod(patience, nullptr)));
}

/// Messages of the child to the parent, in memory that both see.
struct Shared {
  std::atomic<std::uint64_t> number = 0;  ///< of the case that it is at
  std::atomic<std::uint64_t> accepted = 0, refused = 0, no_resources = 0, simulated = 0, trained = 0, findings = 0;
  std::bitset<kMostKeys * kMostKeys> pairs;  ///< of keys that were drawn together in an accepted case
};

struct Finding : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
void expect(bool holds, fmt::format_string<Args...> message, Args&&... args) {
  if (!holds) throw Finding(fmt::format(message, std::forward<Args>(args)...));
}

/// The keys that differ from the base, as --set takes them.
std::string settings(const config::RunConfig& config, const config::RunConfig& base) {
  std::string text;
  for (const config::Field& field : config::fields()) {
    const config::Value value = field.write(config);
    if (value != field.write(base)) text += fmt::format(" --set {}={}", field.name(), config::to_toml(value));
  }
  return text;
}

config::RunConfig base_config(const std::string& text) {
  config::RunConfig c;
  c.model.layers = 2;
  c.model.width = 24;
  c.model.heads = 4;
  c.model.kv_heads = 4;
  c.model.ffn_width = 40;
  c.mesh.ranks = 4;
  c.train.steps = 2;
  c.train.warmup = 1;
  c.train.seq_len = 8;
  c.train.batch_per_rank = 1;
  c.data.path = text;
  return c;
}

/// A configuration that was accepted means the same once more, and after a way through its file.
void check_stays(const config::RunConfig& c, const fs::path& folder) {
  config::RunConfig again = c;
  (void)config::validate(again);
  expect(again == c, "validate() changes what it has accepted");
  const fs::path file = folder / "config.toml";
  std::ofstream(file) << config::to_toml(c);
  config::RunConfig read = config::load_profile(file.string(), {});
  (void)config::validate(read);
  expect(config::to_toml(read) == config::to_toml(c), "config.toml is read as another configuration");
}

void keep(const fs::path& folder, const char* name, const std::string& text) {
  if (!folder.empty()) std::ofstream(folder / name) << text;
}

/// `kept`: a folder for what was said; empty: it is forgotten.
void check_words(const engine::Setup& setup, const fs::path& kept) {
  const std::vector<schedule::Fault> faults = schedule::check_schedules(setup.schedules, 1);
  expect(faults.empty(), "the schedule is wrong: {}", faults.empty() ? "" : faults.front().message);
  const std::string text = app::explain_text(setup);
  expect(!text.empty(), "explain says nothing");
  keep(kept, "explain.txt", text);
  keep(kept, "explain.json", app::explain_json(setup).dump());
  keep(kept, "schedule.txt", app::schedule_text(setup));
  keep(kept, "order.txt",
       schedule::issue_order(setup.plan, setup.schedules.steady()) + "\n" +
           schedule::collective_order(setup.plan, setup.schedules.steady()));
  for (const dialects::Dialect& target : dialects::dialects()) {
    const dialects::Export made = dialects::make_export(target, setup.config);
    for (const dialects::ExportFile& file : made.files) keep(kept, file.name.c_str(), file.text);
  }
}

/// Ops begin on a communicator in the order of the schedule, and every op of every step is recorded.
void check_order(const engine::Setup& setup, const std::vector<trace::RankTrace>& traces) {
  const auto first_step = static_cast<std::size_t>(setup.config.train.warmup);
  for (const trace::RankTrace& trace : traces) {
    std::size_t at = 0;
    for (std::size_t s = 0; s < trace.steps.size(); ++s) {
      const schedule::Schedule& step = setup.schedules.of_step(first_step + s);
      EnumTable<plan::Group, std::int64_t> last;
      for (std::size_t i = 0; i < step.ops.size(); ++i, ++at) {
        expect(at < trace.records.size() && std::cmp_equal(trace.records[at].op, i), "an op is not recorded");
        const schedule::Op& op = step.ops[i];
        if (!op.is_collective() || setup.plan.groups.size(op.group()) == 1) continue;
        const trace::Record& record = trace.records[at];
        expect(record.begin_ns >= last[op.group()], "rank {}: collective {} overtook another one of its communicator",
               trace.rank, i);
        last[op.group()] = record.begin_ns;
      }
    }
    expect(at == trace.records.size(), "an op is recorded that the schedule does not have");
  }
}

void check_trace(const fs::path& path) {
  const trace::Validation checked = trace::validate_file(path.string());
  expect(checked.ok(), "{}: {}", path.filename().string(), checked.ok() ? "" : checked.findings.list().front().message);
}

/// Writes and reads all files of a trial.
void check_files(const app::Cell& cell, const app::Trial& trial, const fs::path& folder) {
  (void)app::run_table(cell.setup, trial, folder);
  (void)app::run_headline(cell.setup);
  const nlohmann::json json = app::result_json(cell.setup, trial);
  (void)app::trial_from_json(nlohmann::json::parse(json.dump()));
  fs::remove_all(folder);
  fs::create_directory(folder);
  app::write_result(folder, cell.setup, trial);
  if (!trial.metrics) return;
  check_trace(folder / "trace.json");
  for (const auto& file : fs::directory_iterator(folder / "trace")) check_trace(file.path());
}

/// A cell that is ready to run; nothing where that is refused with a sentence (a machine that is too small, a
/// rule that the schedule alone can tell).
std::optional<app::Cell> open(const config::RunConfig& c) {
  try {
    return app::open_cell(c);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// On a computed clock, on the machine that is named or else at rates of its own.
std::optional<app::Trial> simulate(config::RunConfig c, const app::World& world, const fs::path& folder) {
  c.device.backend = config::BackendKind::virtual_;
  c.checkpoint = {};
  const bool named = !c.simulate.cluster.empty();
  if (named) c.emulate.compute_tflops = c.emulate.link_gb_per_s = c.emulate.pcie_gb_per_s = std::nullopt;
  if (!named && !c.emulate.compute_tflops) c.emulate.compute_tflops = 0.01;
  if (!named && !c.emulate.link_gb_per_s) c.emulate.link_gb_per_s = 1;
  if (!named && !c.emulate.pcie_gb_per_s) c.emulate.pcie_gb_per_s = 1;
  if (named) c.emulate = {};
  c.simulate.measured_jitter = false;
  const std::optional<app::Cell> opened = open(c);
  if (!opened) return std::nullopt;
  const app::Cell& cell = *opened;
  app::Trial trial = app::run_trial(cell, {}, world);
  const PoolStatistics &said = cell.setup.memory, &has = trial.measurement.memory.front();
  expect(has == said, "simulate needs {} bytes, explain says {}", has.peak_occupied_total, said.peak_occupied_total);
  check_order(cell.setup, trial.measurement.traces);
  check_files(cell, trial, folder);
  return trial;
}

/// Trains for real, on threads. Some cannot in the time there is.
bool train(config::RunConfig c, const app::World& world, const app::Trial* simulated, const fs::path& folder) {
  if (c.device.backend != config::BackendKind::cpu || c.mesh.ranks > kMostRankedRun) return false;
  if (!model::key_without_kernels(c).empty()) return false;
  if (c.emulate.compute_tflops || c.emulate.link_gb_per_s || c.emulate.pcie_gb_per_s) {
    const engine::Setup setup = engine::set_up(c);
    config::RunConfig modelled = c;
    if (!modelled.emulate.compute_tflops) modelled.emulate.compute_tflops = 1e3;
    if (!modelled.emulate.link_gb_per_s) modelled.emulate.link_gb_per_s = 1e3;
    const engine::Setup other = engine::set_up(modelled);
    const engine::Measurement once = engine::simulate(other, engine::simulated_times(other, nullptr));
    const trace::StepWindow& step = once.traces.front().steps.front();
    if (step.end_ns - step.begin_ns > kMostModelled_ns) return false;
  }
  const std::optional<app::Cell> opened = open(c);
  if (!opened) return false;
  const app::Cell& cell = *opened;
  const app::Trial trial = app::run_trial(cell, {}, world);
  const engine::Measurement& m = trial.measurement;
  const auto steps = static_cast<std::size_t>(c.train.warmup + c.train.steps);
  for (const PoolStatistics& rank : m.memory) {
    const PoolStatistics& said = cell.setup.memory;
    // A run shorter than the schedules' walk may not have come to its peak.
    const bool whole = steps > cell.setup.schedules.steps.size();
    expect(!whole || (rank.peak_occupied == said.peak_occupied && rank.peak_occupied_total == said.peak_occupied_total),
           "a rank took {} bytes, explain says {}", rank.peak_occupied_total, said.peak_occupied_total);
    expect(rank.peak_occupied_total <= said.peak_occupied_total, "a rank took more than explain says");
  }
  // A simulation may leave out some ranks; all ranks send alike.
  expect(simulated == nullptr || m.wire_bytes.front() == simulated->measurement.wire_bytes.front(),
         "run and simulate differ in bytes on the wire");
  check_order(cell.setup, m.traces);
  check_files(cell, trial, folder);
  return true;
}

class Cases {
 public:
  Cases(Shared& shared, fs::path folder, std::uint64_t run_every, fs::path keep)
      : shared_(shared), folder_(std::move(folder)), run_every_(run_every), keep_(std::move(keep)) {
    text_ = (folder_ / "text").string();
    std::ofstream out(text_);
    for (int i = 0; i < 4000; ++i) out << static_cast<char>('a' + i * i % 23);
    world_ = app::current_world(base_config(text_), nullptr, {});
    world_.launcher = "threads of one process";
  }

  void run(std::uint64_t number) {
    shared_.number = number;
    std::mt19937_64 random(number * 0x9E3779B97F4A7C15ULL + 1);
    // Fewer other keys with each refusal, so that the pair itself is tried.
    for (int others = static_cast<int>(random() % 24); others >= 0; others = others / 2 - (others == 0 ? 1 : 0)) {
      testing::RandomKeys::Draw draw = keys_.draw(number, others, random, base_config(text_));
      config::RunConfig c = draw.config;
      if (!c.checkpoint.folder.empty()) c.checkpoint.folder = (folder_ / "saved").string();
      try {
        (void)config::validate(c);
      } catch (const ConfigError& refusal) {
        ++shared_.refused;
        if (std::strlen(refusal.what()) < 20) report(number, c, "a refusal that says nothing");
        continue;
      }
      ++shared_.accepted;
      for (const std::size_t a : draw.keys) {
        for (const std::size_t b : draw.keys) shared_.pairs.set(a * kMostKeys + b);
      }
      const std::string stage = check(number, c);
      if (!stage.empty()) report(number, c, stage);
      return;
    }
  }

  /// Complaint about an accepted configuration; empty: none.
  std::string check(std::uint64_t number, const config::RunConfig& c) {
    const char* stage = "config.toml";
    const fs::path kept = keep_.empty() ? fs::path() : keep_ / std::to_string(number);
    try {
      if (!kept.empty()) fs::create_directories(kept);
      check_stays(c, folder_);
      stage = "explain, export";
      check_words(engine::set_up(c), kept);
      stage = "simulate";
      const std::optional<app::Trial> simulated = simulate(c, world_, folder_ / "simulated");
      if (simulated) ++shared_.simulated;
      if (simulated && !kept.empty()) fs::rename(folder_ / "simulated", kept / "simulated");
      stage = "run";
      if (number % run_every_ == 0 && train(c, world_, simulated ? &*simulated : nullptr, folder_ / "trained"))
        ++shared_.trained;
    } catch (const ResourceError&) {
      ++shared_.no_resources;
    } catch (const std::exception& error) {
      return fmt::format("{}: {}", stage, error.what());
    }
    fs::remove_all(folder_ / "saved");
    return {};
  }

 private:
  void report(std::uint64_t number, const config::RunConfig& c, const std::string& what) {
    ++shared_.findings;
    fmt::print("case {}: {}\n  {}\n", number, what, settings(c, base_config(text_)));
    std::fflush(stdout);
  }

  Shared& shared_;
  fs::path folder_;
  std::uint64_t run_every_;
  fs::path keep_;
  std::string text_;
  app::World world_;
  testing::RandomKeys keys_;
};

/// Waits for the child; a signal name, "hung", or nothing if it is through.
std::string await(pid_t child, const Shared& shared) {
  const double most_s = hang_s();
  std::uint64_t at = shared.number;
  for (int ticks = 0;; ++ticks) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
      return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit code {}", WEXITSTATUS(status));
    }
    if (std::exchange(at, shared.number.load()) != shared.number) ticks = 0;
    if (ticks > most_s * 20) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return fmt::format("did nothing for {} s", most_s);
    }
    usleep(50'000);
  }
}

int campaign(std::uint64_t cases, std::uint64_t first, std::uint64_t run_every, const fs::path& keep) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  Shared& shared = *new (memory) Shared();
  const TemporaryFolder folder;
  for (std::uint64_t next = first; next < first + cases; next = shared.number + 1) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      int code = 0;
      {
        Cases all(shared, folder.path(), run_every, keep);
        for (std::uint64_t number = next; number < first + cases; ++number) all.run(number);
      }
      std::fflush(stdout);
      _exit(code);
    }
    const std::string died = await(child, shared);
    if (died.empty()) break;
    ++shared.findings;
    fmt::print("case {}: {}: random_configs . 1 {} 1\n", shared.number.load(), died, shared.number.load());
  }
  const std::size_t keys = config::fields().size();
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < keys; ++a) {
    for (std::size_t b = a + 1; b < keys; ++b) pairs += shared.pairs.test(a * kMostKeys + b);
  }
  fmt::print(
      "{} cases from {}: {} accepted ({} draws refused), {} simulated, {} trained, {} need more memory; {} of {} "
      "pairs of {} keys; {} findings\n",
      cases, first, shared.accepted.load(), shared.refused.load(), shared.simulated.load(), shared.trained.load(),
      shared.no_resources.load(), pairs, keys * (keys - 1) / 2, keys, shared.findings.load());
  return shared.findings == 0 && shared.accepted > 0 && shared.simulated > 0 ? 0 : 1;
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: {} SOURCE_FOLDER CASES [FIRST_CASE] [RUN_EVERY] [KEEP_FOLDER]\n", argv[0]);
    return 2;
  }
  const auto number = [&](int i, std::uint64_t otherwise) {
    return i < argc ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  return fsdpbench::campaign(number(2, 1), number(3, 1), std::max<std::uint64_t>(1, number(4, 8)),
                             argc > 5 ? argv[5] : "");
}
