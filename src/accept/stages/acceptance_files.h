#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "accept/stages/acceptance_report.h"
#include "record/json_fields.h"
#include "runs/world.h"

namespace fsdpbench::app {

/// Fewer rounds of a step's arms have no interval: `accept` measures none then.
inline constexpr int kFewestArmRounds = 6;

/// A report in the forms that people and programs read: one screen, what failed first, and what was
/// not rated only if `verbose`; a page (Markdown); for continuous integration
/// (JUnit XML: fail is a failure, inconclusive an error, unrated skipped); for Prometheus' textfile collector; for
/// programs, which also get what was set (an object).
std::string acceptance_table(const AcceptanceReport& report, bool verbose = false);
/// `evidence`: the SHA-256 of result.json; empty: there is none.
std::string acceptance_markdown(const AcceptanceReport& report, const std::string& evidence = {});
std::string acceptance_junit(const AcceptanceReport& report);
std::string acceptance_metrics(const AcceptanceReport& report);
nlohmann::json acceptance_json(const AcceptanceReport& report, const AcceptanceMeasurements& measured,
                               const World& world, const nlohmann::json& settings);
const ObjectFacts& acceptance_file_facts();

}  // namespace fsdpbench::app
