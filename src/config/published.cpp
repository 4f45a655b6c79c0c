#include "config/published.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/read_input.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"

namespace fsdpbench::config {
namespace {

std::vector<std::string> split(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);  // spreadsheets and Python's csv end lines with both
  std::vector<std::string> parts(1);
  for (const char c : line) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

template <class Number>
Number parse(const CsvRow& row, const std::string& column, const char* expected) {
  const std::string& text = row.text(column);
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value <= 0) {
    throw ConfigError(fmt::format("{}: {} = {} is not valid; expected {} above 0.", row.place, column, text, expected));
  }
  return value;
}

/// none; all; every:N, of every N-th block; share:X, that part of all blocks; keeps:OUTPUTS, all but those of them.
void add_checkpointing(const CsvRow& row, std::vector<std::string>& settings) {
  const std::string& text = row.text("checkpointing");
  if (text == "none") return;
  settings.emplace_back("fsdp.activation_checkpointing=true");
  if (text == "all") return;
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string key = kind == "every"   ? "fsdp.checkpoint_every="
                          : kind == "share" ? "fsdp.recompute_share="
                          : kind == "keeps" ? "fsdp.checkpoint_keeps="
                                            : "";
  if (colon == std::string::npos || key.empty()) {
    throw ConfigError(
        fmt::format("{}: checkpointing = {} is not valid; expected none, all, every:N, share:X or "
                    "keeps:OUTPUTS.",
                    row.place, text));
  }
  settings.push_back(key + text.substr(colon + 1));
}

/// Adds the type that matrix products are computed in.
void add_numbers(const CsvRow& row, std::vector<std::string>& settings) {
  const std::string& numbers = row.text("numbers");
  if (numbers == "fp8") settings.emplace_back("fsdp.fp8_products=true");
  // fp16 has as many bytes as bf16, and the same rate.
  if (numbers == "bf16" || numbers == "fp16" || numbers == "fp8") return;
  throw ConfigError(fmt::format("{}: numbers = {} is not valid; expected bf16, fp16 or fp8, which simulations know.",
                                row.place, numbers));
}

std::vector<std::string> settings_of(const CsvRow& row) {
  // Some presets do in the first step what they do in no other.
  std::vector<std::string> settings{"device.backend=virtual", "emulate.link_gb_per_s=none", "fsdp.param_dtype=bf16",
                                    "train.warmup=1", "train.steps=1"};
  for (const auto& [key, column] : {std::pair{"simulate.cluster", "cluster"},
                                    {"simulate.compiled", "compiled"},
                                    {"simulate.attention", "attention"},
                                    {"simulate.loss", "loss"},
                                    {"simulate.fused_optimizer", "fused_optimizer"},
                                    {"model.preset", "model"},
                                    {"mesh.ranks", "ranks"},
                                    {"mesh.shard", "shard"},
                                    {"mesh.tensor", "tensor"},
                                    {"mesh.expert", "expert"},
                                    {"mesh.expert_rows", "expert_rows"},
                                    {"fsdp.strategy", "strategy"},
                                    {"fsdp.preset", "system"},
                                    {"fsdp.reduce_dtype", "reduce"},
                                    {"fsdp.cpu_offload", "offload"},
                                    {"fsdp.fp8_recipe", "fp8_recipe"},
                                    {"train.batch_per_rank", "batch"},
                                    {"train.seq_len", "seq_len"},
                                    {"train.accumulate", "accumulate"}}) {
    const std::string value = row.text_if_any(column);
    if (!value.empty()) settings.push_back(fmt::format("{}={}", key, value));
  }
  // As torchtitan's and Megatron's tensor parallelism.
  if (const std::string tensor = row.text_if_any("tensor"); !tensor.empty() && tensor != "1") {
    settings.emplace_back("mesh.sequence_parallel=true");
  }
  // Its run_train.sh sets PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
  if (row.text("family") == "torchtitan") settings.emplace_back("simulate.expandable_segments=true");
  add_numbers(row, settings);
  add_checkpointing(row, settings);
  return settings;
}

}  // namespace

const std::string& CsvRow::text(const std::string& column) const {
  const auto found = fields.find(column);
  if (found == fields.end()) throw ConfigError(fmt::format("{}: there is no column '{}'.", place, column));
  return found->second;
}

std::string CsvRow::text_if_any(const std::string& column) const {
  const auto found = fields.find(column);
  return found == fields.end() ? "" : found->second;
}

double CsvRow::number(const std::string& column) const { return parse<double>(*this, column, "a number"); }
int CsvRow::integer(const std::string& column) const { return parse<int>(*this, column, "an integer"); }

std::vector<CsvRow> read_csv(const std::string& path) {
  std::istringstream file(Input(path, "a table of values between commas").text(kMostOfAProfile));
  std::string line;
  if (!std::getline(file, line)) throw ConfigError(fmt::format("{}: is empty; expected a line of column names.", path));
  const std::vector<std::string> columns = split(line);
  std::vector<CsvRow> rows;
  for (int number = 2; std::getline(file, line); ++number) {
    if (line.empty() || line == "\r") continue;
    const std::vector<std::string> values = split(line);
    CsvRow row{fmt::format("{}:{}", path, number), {}};
    if (values.size() != columns.size()) {
      throw ConfigError(
          fmt::format("{}: there are {} values; expected {}, one a column.", row.place, values.size(), columns.size()));
    }
    for (std::size_t i = 0; i < values.size(); ++i) row.fields[columns[i]] = values[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string find_published_trainings() {
  const std::filesystem::path path = home_folder() / "profiles/published/training.csv";
  if (!std::filesystem::exists(path)) {
    throw ConfigError(fmt::format("{}: is not there; it belongs to this program.", path.string()));
  }
  return path.string();
}

RunConfig published_config(const CsvRow& row) {
  try {
    RunConfig config = load_profile(find_profile("quickstart"), settings_of(row));
    // The rows of a learned table are as many as the sequences are long.
    if (config.model.learned_positions > 0) config.model.learned_positions = config.train.seq_len;
    validate(config);
    return config;
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    throw ConfigError(message.starts_with(row.place) ? message : fmt::format("{}: {}", row.place, message));
  }
}

std::string published_title(const CsvRow& row) {
  const auto known = [&](const char* column) -> const std::string& {
    static const std::string kUnknown = "?";
    return row.text(column).empty() ? kUnknown : row.text(column);
  };
  return fmt::format("{} in {} on {} ranks of {}, {} x {} tokens", row.text("model"), row.text("numbers"),
                     row.text("ranks"), known("cluster"), known("batch"), known("seq_len"));
}

}  // namespace fsdpbench::config
