// gpu_trace FOLDER: writes the traces of runs on GPUs that never were, for readers of others: FOLDER/NAME/rank_N.json,
// and FOLDER/NAME.json with what our records say of each rank, in microseconds.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "trace/gpu_example.h"
#include "trace/rank_writer.h"

using namespace fsdpbench::trace;

namespace {

void write(const std::filesystem::path& folder, const std::string& name, const std::vector<GpuRun>& ranks) {
  std::filesystem::create_directories(folder / name);
  std::string figures;
  for (const GpuRun& run : ranks) {
    write_rank_trace((folder / name / fmt::format("rank_{}.json", run.facts.rank)).string(), run.trace, run.facts,
                     run.time, run.label());
    const RecordFigures f = figures_of(run);
    figures += fmt::format(R"({}"{}":{{"compute_us":{},"communication_us":{},"overlap_us":{},"busy_us":{}}})",
                           figures.empty() ? "" : ",", run.facts.rank, f.compute_us, f.communication_us, f.overlap_us,
                           f.busy_us);
  }
  std::ofstream(folder / (name + ".json")) << "{" << figures << "}\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gpu_trace FOLDER\n";
    return 2;
  }
  write(argv[1], "golden", {golden_gpu_run()});
  write(argv[1], "synthetic", {synthetic_gpu_run(0, 11), synthetic_gpu_run(1, 12)});
}
