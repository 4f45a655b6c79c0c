#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands/command.h"
#include "hardware/machine_facts.h"
#include "launch/placement.h"
#include "record/console.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "record/table.h"
#include "runs/build_info.h"
#include "runs/select_backend.h"
#include "trace/nvtx_range.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench doctor`.
struct DoctorArguments {
  bool json = false;  ///< machine-readable
};

/// Who started this process, and as which rank.
std::string launch_text() {
  const std::optional<launch::Placement> placement = launch::find_placement(launch::process_environment());
  if (!placement) return "started alone: ranks are threads of one process";
  return fmt::format("rank {} of {}, local rank {} of {}, as {} says", placement->rank, placement->ranks,
                     placement->local_rank, placement->local_ranks, placement->source);
}

/// Data of `doctor --json`.
struct Examined {
  MachineFacts facts;
  backend::Facts backend;
};

}  // namespace

// clang-format off
template <>
Fields<Examined> declared() {
  using E = Examined;
  using F = MachineFacts;
  return {"Machine", "Output of `doctor --json` ([doctor.md](doctor.md)).", "hardware/machine_facts.h", {
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
    {"nvtx", [](const E&) { return trace::nvtx_note(); }, "", "whether ranges are marked for NVIDIA's profilers"},
    {"realtime", via(&E::facts, &F::realtime), "", "scheduling class of the threads that wait for a point in time"},
    {"libraries", via(&E::facts, &F::libraries), "", "versions of libraries, by name", if_any},
    {"backend", &E::backend, "", "what the CPU backend reports about itself", if_any},
  }};
}
// clang-format on

namespace {

/// Prints what this machine can do. Returns the process exit code.
int examine_machine(const DoctorArguments& arguments) {
  const nlohmann::json examined = fields<Examined>().write({machine_facts(), select_backend("cpu")->facts()});
  if (arguments.json) {
    console().print(json_text(examined));
    return 0;
  }
  console().print(fields_table(doctor_file_facts(), {{"", examined}}));
  return 0;
}

constexpr const char* kDoctorHelp =
    R"(Prints processor, memory, disk, GPUs, CUDA's driver, and how a launcher started this process. `accept` measures rates.

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
