#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "accept/collectives/collectives_json.h"
#include "accept/collectives/collectives_options.h"
#include "accept/collectives/measure_collectives.h"
#include "app/commands/command.h"
#include "base/error.h"
#include "config/run_config.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/job_run.h"
#include "runs/result_file.h"
#include "runs/result_folder.h"
#include "trace/whole_file.h"

namespace fsdpbench::app {
namespace {

constexpr const char* kCollectivesService = "collectives";  // the command's name

/// Limit of nccl-tests' environment. Throws ConfigError where ignoring another variable would measure something else.
std::optional<double> least_bus_bandwidth(const launch::Environment& environment) {
  constexpr const char* kNoGroups = "ranks cannot be split into groups here";
  constexpr std::pair<const char*, const char*> kRefused[]{
      {"NCCL_TESTS_SPLIT", kNoGroups},
      {"NCCL_TESTS_SPLIT_MASK", kNoGroups},
      {"NCCL_TESTS_DEVICE", "GPUs are chosen by CUDA_VISIBLE_DEVICES here"}};
  for (const auto& [name, why] : kRefused) {
    if (const char* const given = environment(name))
      throw ConfigError(fmt::format("{} is '{}': {}; unset it.", name, given, why));
  }
  const char* const text = environment("NCCL_TESTS_MIN_BW");
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= 0)) throw ConfigError(fmt::format("NCCL_TESTS_MIN_BW is '{}'; expected GB/s.", text));
  return value;
}

World world_of(const CollectivesArguments& arguments, const launch::Session* session) {
  config::RunConfig config;
  config.device.backend = arguments.backend == "cuda" ? config::BackendKind::cuda : config::BackendKind::cpu;
  config.mesh.ranks = ranks_asked_for(arguments, session);
  config.emulate.link_gb_per_s.reset();
  config.emulate.compute_tflops.reset();
  return current_world(config, session, arguments.command_line);
}

/// `fsdpbench collectives`. `job`: null, or the job whose rank 0 this is. Returns the process exit code; throws
/// base/error.h errors.
int run_collectives(const CollectivesArguments& arguments, Job* job) {
  launch::Session* const session = job == nullptr ? nullptr : &job->session();
  const std::optional<double> least = least_bus_bandwidth(launch::process_environment());
  if (!arguments.output_file.empty()) {
    refuse_old_file(arguments.output_file, arguments.overwrite, "-J");
    const trace::WholeFile can_be_written(arguments.output_file);  // else it is said before anything is measured
  }
  World world = world_of(arguments, session);
  if (job != nullptr) {
    order_service(*job, kCollectivesService, arguments.given);
    job->watch().doing("measuring collectives", JobWatch::Work::may_be_cut);
  }

  std::vector<CollectivesTable> tables;
  std::vector<BesideRow> beside;
  const auto keep = [&] {  // after every table: what is done is not lost
    if (arguments.output_file.empty()) return;
    write_file(arguments.output_file, result_text(collectives_json(arguments, world, tables, beside)));
  };
  CollectivesListener listener;
  listener.begin = [&](const std::vector<World::RankPlace>& places) { world.places = places; };
  listener.table = [&](backend::Collective op) {
    CollectivesTable& table = tables.emplace_back();
    table.op = op;
    table.end.least_gb_per_s = least;
    console().print(nccl_header(arguments, op, world.ranks, world.places, world.cpu));
  };
  listener.row = [&](const CollectiveRow& row) {
    tables.back().rows.push_back(row);
    tables.back().end.add(row);
    console().print(nccl_row(arguments, row));
  };
  listener.table_end = [&](backend::Collective op) {
    console().print(nccl_footer(tables.back().end, op));
    keep();
  };
  listener.beside = [&](const BesideRow& row) {
    beside.push_back(row);
    console().print(beside_table(row));
    keep();
  };
  measure_collectives(arguments, session, listener);
  if (job != nullptr) job->watch().doing("writing results");

  ExitCode code = ExitCode::ok;
  for (const CollectivesTable& table : tables) {
    if (!table.end.fast_enough() && code == ExitCode::ok) code = ExitCode::below_floor;
    if (table.end.wrong > 0) code = ExitCode::wrong_data;
  }
  return static_cast<int>(code);
}

/// The part of every other rank of a job.
void serve_collectives(Job& job, const JsonPart& order) {
  CollectivesArguments arguments;
  for (const JsonPart& option : order.list()) {
    const std::vector<JsonPart> pair = option.list();
    if (pair.size() != 2) option.refuse("an option and its value");
    read_option(arguments, pair[0].text(), pair[1].text());
  }
  settle(arguments);
  job.watch().doing("measuring collectives", JobWatch::Work::may_be_cut);
  measure_collectives(arguments, &job.session(), {});
}

constexpr const char* kCollectivesHelp =
    R"(Ranks are threads, GPUs, or processes of a launcher. docs/collectives.md says what is counted.

Examples
  fsdpbench collectives all_gather --ranks 4 -b 64K -e 64M -f 4
  mpirun -n 8 fsdpbench collectives -b 8 -e 128M -f 2 -I -J collectives.json
  fsdpbench collectives --ranks 2 -b 16M --beside --matrix 512,1024x256x2048

Exit codes: 0 measured, 9 a result was wrong, 10 slower than 0.9 times NCCL_TESTS_MIN_BW.
)";

}  // namespace

Command collectives_command() {
  const auto collectives = std::make_shared<CollectivesArguments>();
  Command command(kCollectivesService, CommandGroup::measure, "Measure collectives alone, as nccl-tests do",
                  kCollectivesHelp);
  const ReadWords read_ops = [collectives](const std::vector<std::string>& words) {
    read_option(*collectives, "--op-list", fmt::format("{}", fmt::join(words, ",")));
  };
  command
      .argument("OP", read_ops, "all_gather, reduce_scatter (both: default), all_reduce, broadcast, alltoall, sendrecv")
      .is_required = false;
  command.option("--op-list", read_ops, "OP,OP", "The same in one word: a,b").counts.emplace(1, 1);
  for (const CollectivesOption& option : collectives_options()) {
    const ReadWord read = [collectives, &option](const std::string& value) {
      read_option(*collectives, option, value);
    };
    Option& added =
        command.option(std::string(option.names), read, std::string(option.type), std::string(option.meaning));
    added.last_counts = true;
    added.may_stand_alone = option.may_stand_alone;
  }
  command.runs_ranks = true;
  command.check = [collectives] { settle(*collectives); };
  command.body = [collectives](const Call& call) {
    collectives->command_line = call.command_line;
    return run_collectives(*collectives, call.job);
  };
  command.serve = serve_collectives;
  return command;
}

}  // namespace fsdpbench::app
