#include "trace/device_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trace/fields.h"

namespace fsdpbench::trace {
namespace {

constexpr EnumNames<FieldType> kTypes{"text", "integer", "number", "list", "object"};

constexpr auto kDeviceCategories = std::to_array<std::string_view>({"kernel", "gpu_memcpy", "gpu_memset"});
constexpr auto kHostCategories = std::to_array<std::string_view>(
    {"cpu_op", "user_annotation", "gpu_user_annotation", "cuda_runtime", "cuda_driver", "python_function", "overhead"});

/// They go together; the first and the last are texts.
constexpr std::array<const Field*, 5> kCollectiveFields{&field::kCollectiveName, &field::kInElements,
                                                        &field::kOutElements, &field::kGroupSize, &field::kDtype};

}  // namespace

void DeviceRules::event(const ParsedEvent& event) {
  if (event.ph != "X") return;
  const std::optional<std::int64_t> time = event.begin_ns;
  if (!time) return;  // reported by TrackRules
  const std::string_view category = event.category;
  if (event.index == 0 && event.arg(field::kCorrelation.name) != nullptr) {
    findings_.add(Rule::first_row, event.index,
                  "The first event has a correlation; HTA takes row 0 for \"not linked\": put metadata first.");
  }
  if (std::ranges::find(kDeviceCategories, category) != kDeviceCategories.end()) {
    device_row(event, category, *time);
    if (const auto row = op_row(event, *time)) op_rows_.push_back(*row);
  } else if (std::ranges::find(kHostCategories, category) != kHostCategories.end()) {
    host_row(event, category, *time);
    if (category == "gpu_user_annotation") {
      if (const auto row = op_row(event, *time)) ops_.insert_or_assign(row->op, *row);
    }
  } else if (category == "cuda_sync") {
    const Value* stream = event.arg(field::kStream.name);
    if (stream != nullptr && stream->is_integer() && stream->integer >= 0) {
      findings_.add(Rule::host_stream, event.index,
                    "A cuda_sync row has a stream of 0 or more; HTA counts it as busy time. Use -1.");
    }
  }
}

std::optional<DeviceRules::OpRow> DeviceRules::op_row(const ParsedEvent& event, std::int64_t time_ns) {
  const Value* step = event.arg(field::kStep.name);
  const Value* op = event.arg(field::kOp.name);
  const std::optional<std::int64_t> length = event.length_ns;
  if (step == nullptr || !step->is_integer() || op == nullptr || !op->is_integer() || !length) return std::nullopt;
  constexpr std::int64_t kMostOps = std::int64_t{1} << 31U;
  if (step->integer < 0 || step->integer >= kMostOps || op->integer < 0 || op->integer >= kMostOps) return std::nullopt;
  return OpRow{step->integer * kMostOps + op->integer, time_ns, time_ns + *length, event.index};
}

void DeviceRules::host_row(const ParsedEvent& event, std::string_view category, std::int64_t time_ns) {
  if (event.arg(field::kStream.name) != nullptr) {
    findings_.add(Rule::host_stream, event.index,
                  fmt::format("A {} row has a stream; HTA takes rows with a stream for the device's.", category));
  }
  if (category != "cuda_runtime" && category != "cuda_driver") return;
  const Value* correlation = event.arg(field::kCorrelation.name);
  if (correlation == nullptr || !correlation->is_integer()) return;
  const auto [launch, fresh] = launches_.try_emplace(correlation->integer, Launch{time_ns, event.index});
  if (!fresh) {
    findings_.add(Rule::correlation, event.index,
                  fmt::format("Event {} is a launch with the same correlation {}; HTA would count its kernels twice.",
                              launch->second.event, correlation->integer));
  }
}

void DeviceRules::device_row(const ParsedEvent& event, std::string_view category, std::int64_t time_ns) {
  const Value* stream = event.arg(field::kStream.name);
  if (stream == nullptr || !stream->is_integer() || stream->integer < 1) {
    findings_.add(Rule::stream, event.index,
                  "A device row has no integer stream of 1 or more; HTA would not count it in its step.");
  }
  const Value* correlation = event.arg(field::kCorrelation.name);
  if (correlation == nullptr || !correlation->is_integer() || correlation->integer < 0) {
    findings_.add(Rule::correlation, event.index, "A device row has no integer correlation of 0 or more.");
  } else {
    device_rows_.push_back({correlation->integer, time_ns, event.index});
  }
  const std::string_view name = event.name;
  if (category == "gpu_memcpy" && !name.starts_with("Memcpy")) {
    findings_.add(Rule::row_name, event.index,
                  "A gpu_memcpy row's name does not begin with Memcpy; HTA goes by names.");
  } else if (category == "gpu_memset" && !name.starts_with("Memset")) {
    findings_.add(Rule::row_name, event.index,
                  "A gpu_memset row's name does not begin with Memset; HTA goes by names.");
  }
  collective(event, name);
}

void DeviceRules::collective(const ParsedEvent& event, std::string_view name) {
  std::size_t present = 0;
  for (const Field* field : kCollectiveFields) {
    const Value* value = event.arg(field->name);
    if (value == nullptr) continue;
    ++present;
    const bool right = field->type == FieldType::text ? value->is_text() : value->is_integer() && value->integer >= 0;
    if (!right)
      findings_.add(Rule::collective, event.index,
                    fmt::format("\"{}\" is not a(n) {}.", field->name, kTypes[field->type]));
  }
  if (present == 0) return;
  if (present < kCollectiveFields.size()) {
    findings_.add(Rule::collective, event.index,
                  "Of Collective name, In msg nelems, Out msg nelems, Group size and dtype some are missing.");
  }
  const bool known = name.starts_with("nccl") || name.starts_with("hip") || name.starts_with("hccl") ||
                     name.find("ncclKernel") != std::string_view::npos;
  if (!known) {
    findings_.add(
        Rule::row_name, event.index,
        "A collective's kernel is not named nccl…; HTA goes by names and would not count it as communication.");
  }
}

void DeviceRules::finish(const FileFacts& file, std::optional<std::int64_t> searched_rank) {
  for (const DeviceRow& row : device_rows_) {
    const auto launch = launches_.find(row.correlation);
    if (launch == launches_.end()) {
      findings_.add(
          Rule::launch, row.event,
          fmt::format("No launch has the correlation {} of this device row; HTA would drop it.", row.correlation));
    } else if (row.time_ns < launch->second.time_ns) {
      findings_.add(Rule::launch, row.event,
                    fmt::format("The device row begins {} ns before its launch, event {}.",
                                launch->second.time_ns - row.time_ns, launch->second.event));
    }
  }
  for (const OpRow& row : op_rows_) {
    const auto op = ops_.find(row.op);
    if (op == ops_.end() || (op->second.begin_ns <= row.begin_ns && row.end_ns <= op->second.end_ns)) continue;
    findings_.add(Rule::op_span, row.event,
                  fmt::format("The device row does not lie inside its op, event {}.", op->second.event));
  }
  if (!file.has_distributed_info) return;
  if (!searched_rank) {
    findings_.add(
        Rule::rank, std::nullopt,
        "distributedInfo's rank is not written as \"rank\": N, with a blank; HTA would take the file for rank 0.");
  } else if (file.rank && *file.rank != *searched_rank) {
    findings_.add(Rule::rank, std::nullopt,
                  fmt::format("The first \"rank\": in the file is {}, distributedInfo says {}; HTA takes the first.",
                              *searched_rank, *file.rank));
  }
}

}  // namespace fsdpbench::trace
