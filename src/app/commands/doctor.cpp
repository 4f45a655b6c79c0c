#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands/command.h"
#include "app/machine_rates.h"
#include "base/bytes.h"
#include "hardware/machine_facts.h"
#include "hardware/topology_matrix.h"
#include "launch/placement.h"
#include "record/console.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "runs/build_info.h"
#include "runs/select_backend.h"
#include "trace/nvtx_range.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench doctor`.
struct DoctorArguments {
  bool json = false;  ///< machine-readable
};

constexpr std::int64_t kGemmSize = 1024;
constexpr std::int64_t kCopyBytes = 64 << 20;
constexpr double kSecondsEach = 0.3;

struct Rate {
  std::string name;
  int threads = 1;
  double value = 0;  ///< FLOP/s, bytes/s or seconds
  std::string unit;
};

/// One thread, and all of them if there are more.
std::vector<int> thread_counts(const MachineFacts& facts) {
  if (facts.threads > 1) return {1, facts.threads};
  return {1};
}

std::vector<Rate> measure_rates(const MachineFacts& facts, backend::Backend& backend) {
  std::vector<Rate> rates;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int threads : thread_counts(facts)) {
      console().progress(fmt::format("measuring matrix products in {} on {} thread(s)", to_string(dtype), threads));
      rates.push_back({fmt::format("gemm_{}", to_string(dtype)), threads,
                       measure_gemm(backend, threads, dtype, kGemmSize, kSecondsEach), "FLOP/s"});
    }
  }
  for (const int threads : thread_counts(facts)) {
    console().progress(fmt::format("measuring memcpy on {} thread(s)", threads));
    rates.push_back({"memcpy", threads, measure_memcpy(threads, kCopyBytes, kSecondsEach), "B/s"});
  }
  console().progress("measuring the timer");
  rates.push_back({"timer_late", 1, static_cast<double>(measure_timer_lateness_ns()) * 1e-9, "s"});
  console().clear_progress();
  return rates;
}

/// Who started this process, and as which rank.
std::string launch_text() {
  const std::optional<launch::Placement> placement = launch::find_placement(launch::process_environment());
  if (!placement) return "started alone: ranks are threads of one process";
  return fmt::format("rank {} of {}, local rank {} of {}, as {} says", placement->rank, placement->ranks,
                     placement->local_rank, placement->local_ranks, placement->source);
}

/// What `doctor --json` prints.
struct Examined {
  MachineFacts facts;
  std::vector<Rate> rates;
  backend::Facts backend;
};

}  // namespace

// clang-format off
template <>
Fields<Rate> declared() {
  return {"MachineRate", "A rate that was measured.", "app/machine_rates.h", {
    {"name", &Rate::name, "", "`gemm_` and a dtype, `memcpy` or `timer_late`"},
    {"threads", &Rate::threads, "", "threads that worked"},
    {"value", &Rate::value, "", "the rate, in `unit`"},
    {"unit", &Rate::unit, "", "`FLOP/s`, `B/s` or `s`"},
  }};
}

template <>
Fields<Examined> declared() {
  using E = Examined;
  using F = MachineFacts;
  return {"Machine", "What `doctor --json` prints ([doctor.md](doctor.md)).", "hardware/machine_facts.h", {
    {"schema_version", [](const E&) { return 1; }, "", "version of this format"},
    {"program", [](const E&) { return version_line(); }, "", "version of this program"},
    {"cpu", via(&E::facts, &F::cpu), "", "name of the processor"},
    {"launch", [](const E&) { return launch_text(); }, "", "who started this process, and as which rank"},
    {"cores", via(&E::facts, &F::cores), "", "physical cores"},
    {"threads", via(&E::facts, &F::threads), "", "hardware threads that the program may use"},
    {"sockets", via(&E::facts, &F::sockets), "", "processors"},
    {"numa_nodes", via(&E::facts, &F::numa_nodes), "", "NUMA nodes"},
    {"l3_bytes", via(&E::facts, &F::l3_bytes), "B", "one L3 cache", if_any},
    {"memory_bytes", via(&E::facts, &F::memory_bytes), "B", "memory of the machine"},
    {"available_bytes", via(&E::facts, &F::available, &AvailableMemory::bytes), "B", "memory that the program may use"},
    {"disk_free_bytes", via(&E::facts, &F::disk_free_bytes), "B", "free where the command was started"},
    {"kernel", via(&E::facts, &F::kernel), "", "version of the operating system's kernel"},
    {"gpus", via(&E::facts, &F::gpus), "", "each GPU, as its driver describes it"},
    {"cuda_driver", via(&E::facts, &F::cuda_driver), "", "version of CUDA's driver"},
    {"cuda_toolkit", via(&E::facts, &F::cuda_toolkit), "", "version of CUDA's toolkit"},
    {"mpi", via(&E::facts, &F::mpi), "", "version of MPI"},
    {"nvtx", [](const E&) { return trace::nvtx_note(); }, "", "whether ranges are marked for NVIDIA's profilers"},
    {"realtime", via(&E::facts, &F::realtime), "", "scheduling class of the threads that wait for a point in time"},
    {"libraries", via(&E::facts, &F::libraries), "", "versions of libraries, by name", if_any},
    {"rates", &E::rates, "", "rates that were measured"},
    {"backend", &E::backend, "", "what the CPU backend reports about itself", if_any},
    {"topology", [](const E&) { return topology_json(); }, "", "what GPUs and network cards share", if_any},
  }};
}
// clang-format on

namespace {

std::string plural(int count, const char* noun) { return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s"); }

Table facts_table(const MachineFacts& facts) {
  Table table;
  table.rows = {{"program", version_line()},
                {"processor", fmt::format("{}: {}, {}, {} usable{}", facts.cpu, plural(facts.sockets, "socket"),
                                          plural(facts.cores, "core"), plural(facts.threads, "hardware thread"),
                                          facts.l3_bytes > 0 ? ", L3 " + format_bytes(facts.l3_bytes) : "")},
                {"memory", fmt::format("{}, {}; {} {} available", format_bytes(facts.memory_bytes),
                                       plural(facts.numa_nodes, "NUMA node"), facts.available.limit,
                                       format_bytes(facts.available.bytes))},
                {"disk", fmt::format("{} free here", format_bytes(facts.disk_free_bytes))},
                {"system", facts.kernel},
                {"launch", launch_text()},
                {"GPUs", facts.gpus.empty() ? "There are no NVIDIA GPUs that a driver knows of." : facts.gpus.front()}};
  for (std::size_t i = 1; i < facts.gpus.size(); ++i) table.rows.push_back({"", facts.gpus[i]});
  table.rows.push_back({"CUDA driver", facts.cuda_driver});
  table.rows.push_back({"CUDA toolkit", facts.cuda_toolkit});
  table.rows.push_back({"MPI", facts.mpi});
  table.rows.push_back({"NVTX", trace::nvtx_note()});
  table.rows.push_back({"scheduling", facts.realtime});
  std::string libraries;
  for (const auto& [name, text] : facts.libraries) {
    libraries += fmt::format("{}{} {}", libraries.empty() ? "" : ", ", name, text);
  }
  table.rows.push_back({"libraries", libraries});
  return table;
}

Table rates_table(const std::vector<Rate>& rates) {
  Table table;
  table.title = fmt::format("Rates (matrices of {0} x {0}, copies of {1})", kGemmSize, format_bytes(kCopyBytes));
  table.header = {"what", "threads", "rate", "unit"};
  for (const Rate& rate : rates) {
    const bool seconds = rate.unit == "s";
    const Shown value(seconds ? "s" : "", rate.value);
    table.rows.push_back({rate.name, std::to_string(rate.threads),
                          seconds ? value.number(rate.value) : three_digits(rate.value * 1e-9),
                          seconds              ? value.unit() + " after a sleep of 1 ms"
                          : rate.unit == "B/s" ? "GB/s copied"
                                               : "GFLOP/s"});
  }
  return table;
}

/// Prints what this machine can do. Returns the process exit code.
int examine_machine(const DoctorArguments& arguments) {
  const MachineFacts facts = machine_facts();
  const auto backend = select_backend("cpu");
  const std::vector<Rate> rates = measure_rates(facts, *backend);
  if (arguments.json) {
    console().print(json_text(fields<Examined>().write({facts, rates, backend->facts()})));
    return 0;
  }
  console().print(facts_table(facts));
  console().print("\n");
  console().print(rates_table(rates));
  if (const Table topology = topology_table(); !topology.rows.empty()) {
    console().print("\n");
    console().print(topology);
    console().print(kTopologyWords);
  }
  return 0;
}

constexpr const char* kDoctorHelp =
    R"(Prints processor, memory, disk, GPUs, CUDA, MPI, how a launcher started this process, and measured rates of matrix
products, copies and the timer. It takes a few seconds.

Examples
  fsdpbench doctor
  mpirun -n 2 fsdpbench doctor --json
)";

}  // namespace

const ObjectFacts& doctor_file_facts() { return fields<Examined>().facts(); }

Command doctor_command() {
  const auto doctor = std::make_shared<DoctorArguments>();
  Command command("doctor", CommandGroup::operate, "Say what this machine can do", kDoctorHelp);
  command.flag("--json", doctor->json, "Print JSON, for programs");
  command.body = [doctor](const Call&) { return examine_machine(*doctor); };
  return command;
}

}  // namespace fsdpbench::app
