// The page and the Python package's records that describe result files say what the tables of fields say.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accept/collectives/collectives_json.h"
#include "accept/gate/gate_report.h"
#include "accept/stages/acceptance_files.h"
#include "app/commands/command.h"
#include "app/explain_report.h"
#include "base/read_input.h"
#include "foreign/job_json.h"
#include "runs/compare_report.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "runs/result_json.h"
#include "runs/sweep_report.h"
#include "runs/trial_log.h"
#include "tune/expectation.h"
#include "tune/tune_report.h"
#include "tune/what_if.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// A file of results: its name, what it is called in tables of renamed fields, its versions, and its fields.
struct ResultFormat {
  std::string file;
  std::string key;
  int version = 0;
  const ObjectFacts* object = nullptr;
};

const std::vector<ResultFormat>& formats() {
  static const std::vector<ResultFormat> kAll{
      {"result.json of run and simulate", "run", kResultSchemaVersion, &run_file_facts()},
      {"trials.jsonl", "trial", kTrialsVersion, &trial_line_facts()},
      {"result.json of accept", "acceptance", kResultSchemaVersion, &acceptance_file_facts()},
      {"sweep.json", "sweep", kResultSchemaVersion, &sweep_file_facts()},
      {"the file of collectives -J", "collectives", kResultSchemaVersion, &collectives_file_facts()},
      {"diff.json of trace diff", "trace_diff", 1, &trace_diff_file_facts()},
      {"explain --format json", "explain_plan", kExplainSchemaVersion, &explain_file_facts()},
      {"tune.json", "tuning", 1, &fields<Tuning>().facts()},
      {"what_if.json", "what_if", 1, &fields<WhatIf>().facts()},
      {"expect.json", "expectation", 1, &fields<Expectation>().facts()},
      {"doctor --json", "doctor", 1, &doctor_file_facts()},
      {"compare.json", "compare", kCompareSchemaVersion, &comparison_file_facts()},
      {"explain.json of trace explain", "explain", kJobSchemaVersion, &job_file_facts()},
      {"gate.json", "gate", kGateSchemaVersion, &gate_file_facts()},
  };
  return kAll;
}

/// The fields of an object; parts of one name are one object, whose fields are those of all parts.
struct MergedField {
  FieldFacts facts;
  std::string object;  ///< the name of the object it leads to; empty: none
};
struct MergedObject {
  std::string name;
  const ObjectFacts* facts = nullptr;
  std::vector<MergedField> fields;
};

/// All objects below some, each once, in the order in which they are met. Objects of one name are the same one.
class Objects {
 public:
  std::string add(std::vector<const ObjectFacts*> parts) {
    const std::string name = parts.front()->name;
    if (std::ranges::find(done_, name, &MergedObject::name) != done_.end()) return name;
    const std::size_t place = done_.size();
    done_.push_back({name, parts.front(), {}});
    std::vector<MergedField> fields;
    std::map<std::string, std::vector<const ObjectFacts*>> inner;
    for (const ObjectFacts* part : parts) {
      for (const FieldFacts& field : part->fields) {
        if (field.type.object != nullptr) inner[field.name].push_back(field.type.object);
        const auto there = std::ranges::find(fields, field.name, [](const MergedField& f) { return f.facts.name; });
        if (there == fields.end()) fields.push_back({field, ""});
      }
    }
    for (MergedField& field : fields) {
      if (field.facts.type.object != nullptr) field.object = add(inner[field.facts.name]);
    }
    done_[place].fields = std::move(fields);
    return name;
  }
  const std::vector<MergedObject>& all() const { return done_; }

 private:
  std::vector<MergedObject> done_;
};

std::string when_text(const FieldFacts& field) {
  switch (field.when) {
    case When::always: return "always";
    case When::if_any:
    case When::if_known: return "optional";
    case When::or_null: return "null";
  }
  return {};
}

/// Where a page has the heading `name`.
std::string anchor(std::string_view name) {
  std::string text(name);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string type_text(const MergedField& field) {
  std::string text = field.facts.type.name;
  if (field.object.empty()) return text;
  return text.replace(text.rfind("object"), 6, fmt::format("[{}](#{})", field.object, anchor(field.object)));
}

const Objects& all_objects() {
  static const Objects kAll = [] {
    Objects objects;
    for (const ResultFormat& format : formats()) objects.add({format.object});
    return objects;
  }();
  return kAll;
}

std::string page() {
  std::string text =
      "# The format of result files\n\n"
      "The program writes its results as JSON; `trials.jsonl` has one JSON object per line. This page lists every "
      "field, its\n"
      "unit and its meaning, object by object. It is generated from the tables with which the program writes and reads "
      "these\n"
      "files, and a test compares both.\n\n"
      "| file | version | object |\n|---|---|---|\n";
  for (const ResultFormat& format : formats()) {
    text += fmt::format("| {} | {} | [{}](#{}) |\n", format.file, format.version, format.object->name,
                        anchor(format.object->name));
  }
  text += "\nAll objects: ";
  for (const MergedObject& object : all_objects().all()) {
    text += fmt::format("{}[{}](#{})", text.ends_with(": ") ? "" : ",\n", object.name, anchor(object.name));
  }
  text +=
      ".\nThen [figures](#figures), by which results are compared.\n\n"
      "- A field that was not measured is absent, never 0. The last column says which fields are *always* there, which "
      "are\n"
      "  *optional*, and which are *null* if they are not known.\n"
      "- Times are in the unit that the name ends with. Bytes are exact.\n"
      "- The version, `schema_version` (`trials_version` in `trials.jsonl`), is raised when readers must know of a "
      "change.\n"
      "  Files of other versions are refused.\n"
      "- Results of `run`, `simulate`, `accept`, `sweep` and `collectives` also have `digest`, a hash of all other "
      "values, so\n"
      "  that changes by hand are noticed ([gate.md](gate.md#whole-results-only)).\n"
      "- The result of a run that failed has `\"complete\": false`, `failure` (`rank`, `died`, `message`) and the "
      "steps of the\n"
      "  rank that wrote the file, but no metrics.\n";
  for (const MergedObject& object : all_objects().all()) {
    text += fmt::format(
        "\n## {}\n\n{} Computed in `src/{}`.\n\n| field | type | unit | meaning | present |\n|---|---|---|---|---|\n",
        object.name, object.facts->meaning, object.facts->source);
    for (const MergedField& field : object.fields) {
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.facts.name, type_text(field), field.facts.unit,
                          field.facts.meaning, when_text(field.facts));
    }
  }
  text +=
      "\n## Figures\n\nNumbers by which results are compared. `gate` judges only some of them: the others follow from "
      "these or "
      "differ by\nchance.\n\n"
      "| figure | field | unit | better | `gate` |\n|---|---|---|---|---|\n";
  for (const MergedObject& object : all_objects().all()) {
    if (object.name != "Metrics" && object.name != "Memory" && object.name != "Comm") continue;
    std::string where = object.name;
    where[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(where[0])));
    for (const MergedField& field : object.fields) {
      const FigureFacts& figure = field.facts.figure;
      if (figure.label.empty()) continue;
      const char* gated = figure.gated == Gated::judged     ? "judges it"
                          : figure.gated == Gated::explains ? "shows it beside the step time"
                                                            : "";
      text += fmt::format("| {} | `{}.{}` | {} | {} | {} |\n", figure.label, where, field.facts.name, field.facts.unit,
                          figure.better == Better::more ? "more" : "less", gated);
    }
  }
  return text;
}

/// Text that the Python package reads: the kinds of files, and a line for each field.
std::string records() {
  using Json = nlohmann::ordered_json;
  Json files;
  for (const ResultFormat& format : formats()) files[format.key] = {format.version, format.object->name};
  std::string text = fmt::format("{{\"files\": {},\n\"objects\": [", files.dump());
  for (const MergedObject& object : all_objects().all()) {
    const ObjectFacts& facts = *object.facts;
    const Json said{{"name", facts.name}, {"meaning", facts.meaning}, {"source", facts.source}};
    text += fmt::format("{}\n{}, \"fields\": [", text.ends_with('[') ? "" : ",",
                        said.dump().substr(0, said.dump().size() - 1));
    for (const MergedField& field : object.fields) {
      const FigureFacts& figure = field.facts.figure;
      const std::string better = figure.label.empty() ? "" : figure.better == Better::more ? "more" : "less";
      const std::vector<std::pair<const char*, std::string>> all{
          {"name", field.facts.name},       {"type", field.facts.type.name},
          {"object", field.object},         {"unit", field.facts.unit},
          {"meaning", field.facts.meaning}, {"when", when_text(field.facts)},
          {"figure", figure.label},         {"better", better}};
      Json one;
      for (const auto& [key, value] : all) {
        if (!value.empty()) one[key] = value;
      }
      text += fmt::format("{}\n {}", text.ends_with('[') ? "" : ",", one.dump());
    }
    text += "]}";
  }
  return text + "]}\n";
}

/// Where it is not current the right text is left in the build folder, to be copied.
void expect_current(const std::string& path, const std::string& is) {
  const fs::path file = fs::path(FSDPBENCH_SOURCE_DIR) / path;
  if (fs::exists(file) && read_input(file, 1 << 24, "") == is) return;
  const fs::path written = fs::absolute(fs::path(path).filename());
  std::ofstream(written) << is;
  FAIL() << path << " is not what the tables of fields say. Copy it from " << written.string();
}

TEST(ResultFormat, ThePageIsCurrent) { expect_current("docs/result-format.md", page()); }

TEST(ResultFormat, ThePythonPackagesRecordsAreCurrent) { expect_current("analysis/fsdpbench/records.json", records()); }

TEST(ResultFormat, EveryFieldSaysWhatItIs) {
  for (const MergedObject& object : all_objects().all()) {
    EXPECT_FALSE(object.facts->meaning.empty()) << object.name;
    EXPECT_TRUE(fs::exists(fs::path(FSDPBENCH_SOURCE_DIR) / "src" / object.facts->source)) << object.name;
    for (const MergedField& field : object.fields) {
      EXPECT_FALSE(field.facts.meaning.empty()) << object.name << "." << field.facts.name;
    }
  }
}

TEST(ResultFormat, NobodyHasTwoNamesForOneThing) {
  const std::set<std::string, std::less<>> old{"computation_ms", "communication_ms",         "whole_ms",
                                               "busbw_gb_s",     "exposed_communication_ms", "waited_for_ms"};
  for (const MergedObject& object : all_objects().all()) {
    for (const MergedField& field : object.fields) EXPECT_FALSE(old.contains(field.facts.name)) << object.name;
  }
}

}  // namespace
}  // namespace fsdpbench::app
