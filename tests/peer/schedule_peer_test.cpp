// Our schedules against what PyTorch did, step by step. The lines are record.py's; its docstring says what they mean.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "config/load.h"
#include "config/validate.h"
#include "dialects/make_export.h"
#include "model/model.h"
#include "schedule/print_schedule.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;

/// The reduction of parameters that are not split: to PyTorch they are ignored_params, whose gradients its users
/// reduce.
bool is_users(const Op& op) { return op.kind == OpKind::all_reduce && op.group() == Group::shard; }

/// Writes a step of ours as record.py writes PyTorch's.
class Line {
 public:
  Line(const plan::Plan& plan, const Schedules& schedules) : plan_(plan) {
    for (const Schedule& step : schedules.steps) {
      step_done_ = step.ops.back().record;
      for (const Op& op : step.ops) {
        if (op.kind != OpKind::reshard) continue;
        freed_[op.record] = (op.phase == Phase::forward ? "f" : "b") + label(op) +
                            std::string(static_cast<std::size_t>(op.micro), '\'');
      }
    }
  }

  std::string of(const Schedule& schedule) {
    tokens_.clear();
    reduced_.clear();
    waited_.clear();
    schedule_ = &schedule;
    Phase phase = Phase::forward;
    int micro = 0;
    for (const Op& op : schedule.ops) {
      if (op.micro != micro && op.phase != Phase::optimizer) {
        tokens_.emplace_back("||");
        micro = op.micro;
        phase = Phase::forward;
      }
      if (op.phase == Phase::backward && phase == Phase::forward) {
        tokens_.emplace_back("|");
        phase = Phase::backward;
      }
      if (op.lane == Lane::compute) {
        for (const Wait& wait : op.waits) waited_.insert(wait.event);
      }
      if (op.phase == Phase::optimizer && op.kind != OpKind::release) break;
      add(op);
    }
    end_backward();
    std::string line;
    for (const std::string& token : tokens_) line += (line.empty() ? "" : " ") + token;
    return line;
  }

 private:
  const std::string& label(const Op& op) const { return plan_.units[static_cast<std::size_t>(op.unit)].label(); }

  std::string module(const Op& op) const {
    const plan::ModuleShape& shape = plan_.shapes.modules[static_cast<std::size_t>(op.module)];
    switch (shape.kind) {
      case plan::ModuleKind::embedding: return "e";
      case plan::ModuleKind::head: return "h";
      case plan::ModuleKind::block:
      case plan::ModuleKind::linear: return std::to_string(shape.index);
      case plan::ModuleKind::mean_squared_error: break;
    }
    return "";
  }

  void compute(const char* verb, const Op& op) {
    const std::string name = module(op);
    if (!name.empty() && part_of(op) <= 0) tokens_.push_back(verb + name);
  }

  void unit(const char* verb, const Op& op, const char* mark = "") { tokens_.push_back(verb + label(op) + mark); }

  void add(const Op& op) {
    // A unit's last event stands for its reduction.
    if ((op.lane == Lane::reduce_scatter || op.lane == Lane::all_reduce) && op.record != kNoEvent) {
      reduced_[op.unit] = op.record;
    }
    add_token(op);
    if (op.lane == Lane::reduce_scatter || op.lane == Lane::all_reduce) last_reduction_ = tokens_.size();
  }

  void add_token(const Op& op) {
    switch (op.kind) {
      case OpKind::host_wait: {
        const EventId event = op.waits.front().event;
        if (op.waits.front().reason == WaitReason::data) break;  // for counts of rows, which has a token
        tokens_.push_back("W(" + (event == step_done_ ? "step" : freed_.at(event)) + ")");
        break;
      }
      case OpKind::unshard: unit("U", op, op.prefetch ? "*" : ""); break;
      case OpKind::all_gather: unit("AG", op, op.prefetch ? "*" : ""); break;
      case OpKind::copy_out: unit("C", op); break;
      case OpKind::reshard:
        if (plan_.shares_units()) unit("S", op);
        break;
      case OpKind::post_backward: unit("P", op); break;
      case OpKind::reduce_scatter: {
        const bool own = op.group() == Group::shard_separate || op.group() == Group::expert_shard_separate;
        unit("RS", op, own ? "'" : "");
        break;
      }
      case OpKind::all_reduce:
        if (!is_users(op)) unit("AR", op);
        break;
      case OpKind::expert_counts: tokens_.push_back("N" + module(op)); break;
      case OpKind::expert_dispatch: tokens_.push_back(">" + module(op)); break;
      case OpKind::expert_combine: tokens_.push_back("<" + module(op)); break;
      case OpKind::release:
        if (schedule_->buffers[static_cast<std::size_t>(op.frees.front())].role == BufferRole::reduce_input) {
          unit("D", op);
        }
        break;
      case OpKind::forward: compute("F", op); break;
      case OpKind::recompute: compute("X", op); break;
      case OpKind::backward: compute("B", op); break;
      case OpKind::end_backward: end_backward(); break;
      default: break;
    }
  }

  /// Computation that has waited for all reductions says so before it frees their inputs.
  void end_backward() {
    if (reduced_.empty()) return;
    for (const auto& [unit, event] : reduced_) {
      if (!waited_.contains(event)) return;
    }
    tokens_.insert(tokens_.begin() + static_cast<std::ptrdiff_t>(last_reduction_), "E");
    reduced_.clear();
  }

  const plan::Plan& plan_;
  const Schedule* schedule_ = nullptr;
  std::map<EventId, std::string> freed_;
  EventId step_done_ = kNoEvent;
  std::vector<std::string> tokens_;
  std::map<int, EventId> reduced_;  // by unit, since the last end of a backward
  std::set<EventId> waited_;
  std::size_t last_reduction_ = 0;  // tokens up to it
};

config::RunConfig configured(const json& keys) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : keys.items()) {
    overrides.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  config::RunConfig config = config::load_profile(FSDPBENCH_PEER_DIR "/case.toml", overrides);
  config::validate(config);
  return config;
}

/// Dtypes on the wire, by verb, in the last step.
std::map<std::string, std::string> dtypes(const Schedule& schedule) {
  std::map<std::string, std::string> result;
  for (const Op& op : schedule.ops) {
    const char* verb = op.kind == OpKind::all_gather       ? "AG"
                       : op.kind == OpKind::reduce_scatter ? "RS"
                       : op.kind == OpKind::all_reduce     ? "AR"
                                                           : nullptr;
    if (verb != nullptr && !is_users(op)) result[verb] = op.collective()->dtype == DType::f32 ? "f32" : "bf16";
  }
  return result;
}

/// With the model's own parts where ranks exchange rows in the middle of a block.
schedule::Training training_of(const config::RunConfig& config) {
  if (config.mesh.expert == 1) return testing::make_case(config);
  return make_training(config, [&](const plan::Plan& plan) { return model::make_model(config, plan.shapes)->sizes(); });
}

/// Returns what differs; empty if nothing does.
std::string compare(const json& recorded, const Lines& lines) {
  constexpr std::size_t kSteps = 6;  // as many as were recorded, unless the last ones are alike
  testing::ScheduleCase c;
  try {
    c = training_of(configured(recorded["keys"]));
  } catch (const std::exception& error) {
    return error.what();
  }
  Line line(c.plan, c.schedules);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const json& steps = recorded["steps"];
    const std::string& theirs = lines.at(steps[std::min(step, steps.size() - 1)]);
    const std::string ours = line.of(c.schedules.of_step(step));
    if (ours != theirs) {
      return "step " + std::to_string(step) + "\n  PyTorch " + theirs + "\n  ours    " + ours;
    }
  }
  if (c.plan.mesh.data_ranks() == 1) return "";  // nothing travels; our one rank's optimizer may read bf16 as it is
  const auto theirs = recorded["dtypes"].get<std::map<std::string, std::string>>();
  const auto ours = dtypes(c.schedules.steady());
  return ours == theirs ? "" : "dtypes: PyTorch " + recorded["dtypes"].dump() + ", ours " + json(ours).dump();
}

/// Says of each stored case whose file's name begins with `prefix` what differs; nothing, if nothing does.
void expect_equal(std::string_view prefix, const std::function<std::string(const json&, const Lines&)>& difference) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(FSDPBENCH_PEER_DIR "/recorded")) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    ++files;
    std::ifstream in(file.path());
    const json recorded = json::parse(in);
    const auto lines = recorded["lines"].get<Lines>();
    std::size_t equal = 0;
    for (const json& found : recorded["cases"]) {
      const std::string differs = difference(found, lines);
      if (differs.empty()) {
        ++equal;
      } else {
        ADD_FAILURE() << found["keys"].dump() << "\n" << differs;
      }
    }
    const std::size_t all = recorded["cases"].size();
    std::cout << name << ": " << equal << " of " << all << " are equal\n";
    EXPECT_GT(all, 0U);
  }
  EXPECT_GT(files, 0) << "nothing was recorded";
}

TEST(Peer, SchedulesAreWhatPyTorchDid) { expect_equal("schedules-", compare); }

/// Returns what differs of a case of deepspeed_record.py; empty if nothing does.
std::string compare_deepspeed(const json& recorded, const Lines& lines) {
  constexpr std::size_t kSteps = 5;
  testing::ScheduleCase c;
  try {
    c = testing::make_case(configured(recorded["keys"]));
  } catch (const std::exception& error) {
    return error.what();
  }
  const auto elements = [&](std::size_t unit) { return c.plan.units[unit].layout.parameter_numel(); };
  if (elements(0) != recorded["elements"]["root"] || elements(1) != recorded["elements"]["block"]) {
    return "units of " + std::to_string(elements(0)) + " and " + std::to_string(elements(1)) + " elements, not of " +
           recorded["elements"].dump();
  }
  // Units that stay gathered are so before our first step. There they never were apart (stages 1 and 2), or the step
  // that
  // records the order treats it as the rest (stage 3).
  const bool some_stay = std::ranges::any_of(c.plan.units, &plan::Unit::stays_gathered);
  for (std::size_t step = some_stay ? 1 : 0; step < kSteps; ++step) {
    const json& steps = recorded["steps"];
    const std::string& theirs = lines.at(steps[std::min(step, steps.size() - 1)]);
    const std::string ours = host_order(c.plan, c.schedules.of_step(step));
    if (ours != theirs) {
      return "step " + std::to_string(step) + "\n  DeepSpeed " + theirs + "\n  ours      " + ours;
    }
  }
  return "";
}

TEST(Peer, SchedulesAreWhatDeepSpeedDid) { expect_equal("deepspeed-", compare_deepspeed); }

/// A script without what is for people only: its docstring at the top, comments, blank lines.
std::vector<std::string> code_of(const std::string& script) {
  constexpr std::string_view kQuotes = "\"\"\"";
  const std::size_t end = script.find(kQuotes, kQuotes.size());
  std::istringstream in(script.substr(end + kQuotes.size()));
  std::vector<std::string> code;
  for (std::string line; std::getline(in, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    line.resize(line.find_last_not_of(' ') + 1);
    if (!line.empty()) code.push_back(line);
  }
  return code;
}

/// Compares today's export with the script that was run: each line, and that nothing was left unsaid.
std::string compare_script(const json& found, const Lines& lines) {
  const config::RunConfig config = configured(found["keys"]);
  const dialects::Export made = dialects::make_export(
      dialects::find_export_target("pytorch-" + found["keys"]["fsdp.preset"].get<std::string>()), config);
  for (const dialects::KeyFate& key : made.with(dialects::Fate::lost)) return key.key + " is said to have no word";
  std::string ran;
  for (const json& line : found["script"]) ran += lines.at(line) + '\n';
  const std::vector<std::string> ours = code_of(made.files.front().text), theirs = code_of(ran);
  if (ours == theirs) return "";
  const auto [here, there] = std::ranges::mismatch(ours, theirs);
  return "the exported script is not the one that was run; `make check-peer-all` runs it. First difference:\n  "
         "exported " +
         (here == ours.end() ? "the end" : *here) + "\n  was run  " + (there == theirs.end() ? "the end" : *there);
}

TEST(Peer, ExportedScriptsDidWhatOurSchedulesSay) { expect_equal("exported-", compare); }

/// The stored files whose names begin with `prefix`, by that name's version.
std::map<std::string, json> recorded(const std::string& prefix) {
  std::map<std::string, json> files;
  for (const auto& file : std::filesystem::directory_iterator(FSDPBENCH_PEER_DIR "/recorded")) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::ifstream in(file.path());
    files[name.substr(prefix.size())] = json::parse(in);
  }
  return files;
}

/// profiles.py has read each configuration from the model that PyTorch had wrapped: the schedule of what it read is
/// what PyTorch then did.
TEST(Peer, ProfilesReadFromModelsHaveTheSchedulesThatPyTorchHad) {
  const std::map<std::string, json> profiles = recorded("profiles-");
  EXPECT_FALSE(profiles.empty()) << "nothing was recorded";
  for (const auto& [version, read] : profiles) {
    std::map<std::string, json> files;
    for (const std::string name : {"schedules", "exported"}) files[name] = recorded(name + "-").at(version);
    std::size_t equal = 0, said = 0;
    for (const json& profile : read["cases"]) {
      const json& of = files.at(profile["file"]);
      json found = of["cases"][profile["case"].get<std::size_t>()];
      const std::string asked = found["keys"].dump();
      found["keys"] = json::object();
      for (const json& line : profile["profile"]) {
        const std::string text = read["lines"][line.get<std::size_t>()];
        const std::size_t equals = text.find('=');
        found["keys"][text.substr(0, equals)] = text.substr(equals + 1);
      }
      const std::string differs = compare(found, of["lines"].get<Lines>());
      const bool is_said = std::ranges::any_of(profile["unread"], [&](const json& line) {
        return read["lines"][line.get<std::size_t>()].get<std::string>().find("prefetches") != std::string::npos;
      });
      if (differs.empty()) {
        ++equal;
      } else if (is_said) {
        ++said;
      } else {
        ADD_FAILURE() << asked << "\nwas read as " << found["keys"].dump() << "\n" << differs;
      }
    }
    std::cout << "profiles-" << version << ": " << equal << " of " << read["cases"].size() << " are equal, " << said
              << " said not to be\n";
    EXPECT_LE(said, 1U);
    EXPECT_EQ(read["cases"].size(), files["schedules"]["cases"].size() + files["exported"]["cases"].size());
  }
}

TEST(Peer, ExportedScriptsAreThoseThatWereRun) { expect_equal("exported-", compare_script); }

}  // namespace
}  // namespace fsdpbench::schedule
