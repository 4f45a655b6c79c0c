#include "foreign/nsys_events.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/bytes.h"
#include "base/error.h"
#include "foreign/kineto_names.h"
#include "trace/fields.h"
#include "trace/whole_file.h"

namespace fsdpbench::foreign {
namespace {

namespace field = trace::field;
using trace::ParsedEvent;
using trace::Value;

// A process and a thread in one number, as Nsight Systems keeps them (globalTid).
constexpr std::int64_t process_of(std::int64_t global) { return (global >> 24) & 0xFFFFFF; }
constexpr std::int64_t thread_of(std::int64_t global) { return global & 0xFFFFFF; }

Value number_value(std::int64_t number) { return {Value::Type::integer, number, {}}; }

constexpr int kMostOfAValue = 1 << 20;
constexpr std::size_t kMostOfAllNames = std::size_t{256} << 20;

class Database {
 public:
  /// `unpacked`: what is in the file, if not the file itself.
  Database(const std::string& path, std::string unpacked) : unpacked_(std::move(unpacked)) {
    sqlite3* opened = nullptr;
    const bool in_memory = !unpacked_.empty();
    int result = sqlite3_open_v2(in_memory ? ":memory:" : path.c_str(), &opened,
                                 in_memory ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY, nullptr);
    database_.reset(opened);
    if (result == SQLITE_OK && in_memory) {
      const auto size = static_cast<sqlite3_int64>(unpacked_.size());
      result = sqlite3_deserialize(opened, "main", reinterpret_cast<unsigned char*>(unpacked_.data()), size, size,
                                   SQLITE_DESERIALIZE_READONLY);
    }
    if (result != SQLITE_OK) fail();
    // A column may be computed by the file itself: some bytes that say "900 million zeros".
    (void)sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, kMostOfAValue);
    (void)sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  }

  bool any(const std::string& query) {
    bool found = false;
    rows(query, [&](sqlite3_stmt*) { return found = true, false; });
    return found;
  }
  bool has(std::string_view table) {
    return any(fmt::format("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{}'", table));
  }

  /// Calls `row` for each row of a query until it returns false.
  template <typename Row>
  void rows(const std::string& query, Row&& row) {
    sqlite3_stmt* prepared = nullptr;
    if (sqlite3_prepare_v2(database_.get(), query.c_str(), -1, &prepared, nullptr) != SQLITE_OK) fail();
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, sqlite3_finalize);
    for (;;) {
      const int result = sqlite3_step(prepared);
      if (result == SQLITE_DONE) return;
      if (result == SQLITE_TOOBIG) {
        throw ConfigError(fmt::format("has a row or a value of more than {}, which no export of Nsight Systems has.",
                                      format_bytes(kMostOfAValue)));
      }
      if (result != SQLITE_ROW) fail();
      if (!row(prepared)) return;
    }
  }

 private:
  [[noreturn]] void fail() {
    throw ConfigError(
        fmt::format("cannot be read as a database of Nsight Systems: {}; expected what `nsys export --type "
                    "sqlite` writes.",
                    sqlite3_errmsg(database_.get())));
  }

  std::string unpacked_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database_{nullptr, sqlite3_close};
};

/// A table of rows that have a begin and an end, and how it is read.
struct SqlTable {
  std::string_view name;      ///< of the database
  std::string_view category;  ///< of kineto's rows
  /// SELECT what: begin, end, name (a number of StringIds, or a text), process or thread, device, stream, correlation,
  /// bytes. NULL: it has none.
  std::string_view columns;
  std::string_view where;
};

constexpr std::array kTables{
    SqlTable{"CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_runtime",
             "start, end, nameId, globalTid, NULL, NULL, correlationId, NULL", ""},
    // Waits for a stream or the whole device, of exports in which the calls that waited are left out.
    SqlTable{
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "cuda_runtime",
        "start, end, 'cudaStreamSynchronize', globalPid, NULL, NULL, correlationId, NULL",
        " WHERE syncType IN (3, 4) AND (correlationId, globalPid >> 24) NOT IN (SELECT correlationId, globalTid >> 24 "
        "FROM CUPTI_ACTIVITY_KIND_RUNTIME)"},
    SqlTable{"NVTX_EVENTS", "user_annotation", "start, end, coalesce(text, textId), globalTid, NULL, NULL, NULL, NULL",
             " WHERE eventType IN (59, 60) AND end IS NOT NULL"},  // ranges of a thread, and between threads
    SqlTable{"CUPTI_ACTIVITY_KIND_KERNEL", "kernel",
             "start, end, demangledName, globalPid, deviceId, streamId, correlationId, NULL", ""},
    SqlTable{"CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_memcpy",
             "start, end, 'Memcpy', globalPid, deviceId, streamId, correlationId, bytes", ""},
    SqlTable{"CUPTI_ACTIVITY_KIND_MEMSET", "gpu_memset",
             "start, end, 'Memset', globalPid, deviceId, streamId, correlationId, bytes", ""},
};

/// "cudaLaunchKernel_v7000" is called so by CUPTI.
std::string_view without_version(std::string_view name) {
  const std::size_t at = name.rfind("_v");
  const bool numbered = at != std::string_view::npos && at + 2 < name.size() &&
                        name.find_first_not_of("0123456789", at + 2) == std::string_view::npos;
  return numbered ? name.substr(0, at) : name;
}

/// "FSDP::pre_forward (layers.0), seq = 7, op_id = 12" is what emit_nvtx() makes of PyTorch's ranges.
std::string_view without_numbers(std::string_view name) {
  return name.substr(0, std::min(name.find(", seq = "), name.find(", op_id = ")));
}

/// Places of numbers in the blob (`nsys export --include-blobs=true`) of a range of NCCL's own; -1: it has none.
struct NcclPayload {
  std::int64_t communicator = -1, bytes = -1, ranks = -1;
};
/// Domain, schema, size and a word more stand before a payload, eight bytes each.
constexpr std::int64_t kPayloadBegin = 32;

std::int64_t number_at(std::string_view blob, std::int64_t begin, std::size_t bytes) {
  const auto at = static_cast<std::size_t>(begin);
  std::uint64_t number = 0;
  for (std::size_t i = bytes; i-- > 0 && at + bytes <= blob.size();) {
    number = number << 8 | static_cast<unsigned char>(blob[at + i]);
  }
  return static_cast<std::int64_t>(number);
}

/// All of a gzipped file; empty if it is none.
std::string unpack(const std::string& path, std::uint64_t most_bytes) {
  std::ifstream raw(path, std::ios::binary);
  if (raw.get() != 0x1f || raw.get() != 0x8b) return {};
  trace::InputFile file(path, most_bytes);
  std::string bytes(std::istreambuf_iterator<char>(&file), {});
  if (!file.error().empty()) throw ConfigError(fmt::format("cannot be unpacked: {}.", file.error()));
  return bytes;
}

class NsysReader {
 public:
  using OnEvent = std::function<void(std::int64_t, const ParsedEvent&)>;
  NsysReader(const std::string& path, std::string unpacked, std::int64_t most_events, const OnEvent& event)
      : most_events_(most_events), event_(event), database_(path, std::move(unpacked)) {}

  NsysFacts read() {
    if (!database_.has("StringIds") ||
        (!database_.has("CUPTI_ACTIVITY_KIND_KERNEL") && !database_.has("NVTX_EVENTS"))) {
      throw ConfigError(
          "is a database without kernels and ranges of Nsight Systems; expected what `nsys export --type sqlite` "
          "writes "
          "of a profile with --trace=cuda,nvtx.");
    }
    constexpr std::size_t kEntryBytes = 64;  // of a map, beside the text
    std::size_t bytes = 0;
    database_.rows("SELECT id, value FROM StringIds", [&](sqlite3_stmt* row) {
      const auto [entry, is_new] = texts_.emplace(sqlite3_column_int64(row, 0), text(row, 1));
      bytes += kEntryBytes + entry->second.size();
      if (bytes > kMostOfAllNames) {
        throw ConfigError(fmt::format("has names of more than {} in all, which no export of Nsight Systems has.",
                                      format_bytes(static_cast<std::int64_t>(kMostOfAllNames))));
      }
      return true;
    });
    read_payloads();
    const bool calls = database_.has(kTables.front().name);
    for (const SqlTable& table : kTables) {
      if (database_.has(table.name) && (calls || table.where.find(kTables.front().name) == table.where.npos))
        read_table(table);
    }
    facts_.file.whole = facts_.trouble.empty();
    facts_.file.has_events = true;
    for (const auto& [process, device] : devices_) facts_.processes.push_back(process);
    std::ranges::stable_sort(facts_.processes, {}, [&](std::int64_t process) { return devices_[process]; });
    if (database_.has("TARGET_INFO_SESSION_START_TIME")) {
      database_.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME", [&](sqlite3_stmt* row) {
        facts_.file.base_time_ns = sqlite3_column_int64(row, 0);
        return false;
      });
    }
    if (database_.has("TARGET_INFO_GPU")) {
      database_.rows("SELECT name FROM TARGET_INFO_GPU", [&](sqlite3_stmt* row) {
        facts_.file.device = text(row, 0);
        return false;
      });
    }
    return std::move(facts_);
  }

 private:
  static std::string text(sqlite3_stmt* row, int column) {
    const unsigned char* bytes = sqlite3_column_text(row, column);
    return bytes == nullptr ? std::string()
                            : std::string(bytes, bytes + sqlite3_column_bytes(row, column));  // NUL may be in it
  }

  const NcclPayload* payload_of(std::string_view blob) const {
    const auto known = payloads_.find({number_at(blob, 0, 4), number_at(blob, 8, 4)});
    return known == payloads_.end() || known->second.communicator < 0 ? nullptr : &known->second;
  }

  /// Where ranges of NCCL hold what they say, and how many ranks its communicators have.
  void read_payloads() {
    constexpr std::size_t kMostSchemas = 4096, kMostCommunicators = 65536;
    const bool blobs = database_.any("SELECT 1 FROM pragma_table_info('NVTX_EVENTS') WHERE name = 'binaryData'");
    if (!blobs || !database_.has("NVTX_PAYLOAD_SCHEMA_ENTRIES")) return;
    database_.rows("SELECT domainId, schemaId, name, offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES", [&](sqlite3_stmt* row) {
      NcclPayload& one = payloads_[{sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1)}];
      const std::string name = text(row, 2);
      const auto offset = kPayloadBegin + std::clamp<std::int64_t>(sqlite3_column_int64(row, 3), 0, kMostOfAValue);
      if (name == "NCCL communicator ID") one.communicator = offset;
      if (name == "Message size [bytes]") one.bytes = offset;
      if (name == "No. of ranks") one.ranks = offset;
      return payloads_.size() < kMostSchemas;
    });
    database_.rows("SELECT binaryData FROM NVTX_EVENTS WHERE binaryData IS NOT NULL", [&](sqlite3_stmt* row) {
      const std::string blob = text(row, 0);
      const NcclPayload* at = payload_of(blob);
      if (at != nullptr && at->ranks >= 0) ranks_[number_at(blob, at->communicator, 8)] = number_at(blob, at->ranks, 4);
      return ranks_.size() < kMostCommunicators;
    });
  }

  /// The collective of a range that NCCL made, as a row of kineto's has it; in bytes, for the type is not told.
  void add_collective(const std::string& blob, ParsedEvent& event) {
    const auto kind = communication_of_kernel(event.name);
    const NcclPayload* at = kind ? payload_of(blob) : nullptr;
    if (at == nullptr || at->bytes < 0 || *kind == Communication::other) return;
    const std::int64_t communicator = number_at(blob, at->communicator, 8), bytes = number_at(blob, at->bytes, 8);
    const auto known = ranks_.find(communicator);
    const std::int64_t ranks = known == ranks_.end() || known->second > 1 << 20 ? -1 : known->second;
    if (bytes < 0 || bytes >= std::int64_t{1} << 40) return;
    const std::int64_t all = ranks > 0 ? bytes * ranks : -1;
    group_ = fmt::format("{:x}", static_cast<std::uint64_t>(communicator));
    const bool gathers = *kind == Communication::all_gather, scatters = *kind == Communication::reduce_scatter;
    event.args.emplace_back(field::kCollectiveName.name, Value{Value::Type::text, 0, to_string(*kind)});
    event.args.emplace_back(field::kInElements.name, number_value(scatters ? all : bytes));
    event.args.emplace_back(field::kOutElements.name, number_value(gathers ? all : bytes));
    event.args.emplace_back(field::kDtype.name, Value{Value::Type::text, 0, "Byte"});
    event.args.emplace_back(field::kGroupName.name, Value{Value::Type::text, 0, group_});
    event.args.emplace_back(field::kGroupSize.name, number_value(ranks));
  }

  void read_table(const SqlTable& table) {
    const bool payloads = !payloads_.empty() && table.name == "NVTX_EVENTS";
    const std::string query =
        fmt::format("SELECT {}{} FROM {}{}", table.columns, payloads ? ", binaryData" : "", table.name, table.where);
    const bool of_device = table.category != "cuda_runtime" && table.category != "user_annotation";
    database_.rows(query, [&](sqlite3_stmt* row) {
      if (facts_.file.events == most_events_) {
        facts_.trouble = fmt::format("The database has more rows than the {} that are read.", most_events_);
        return false;
      }
      ParsedEvent event;
      event.index = facts_.file.events++;
      event.ph = "X";
      event.category = table.category;
      event.begin_ns = sqlite3_column_int64(row, 0);
      event.length_ns = sqlite3_column_int64(row, 1) - *event.begin_ns;
      name_ = sqlite3_column_type(row, 2) == SQLITE_INTEGER ? texts_[sqlite3_column_int64(row, 2)] : text(row, 2);
      event.name = table.category == "cuda_runtime"      ? without_version(name_)
                   : table.category == "user_annotation" ? without_numbers(name_)
                                                         : std::string_view(name_);
      const std::int64_t global = sqlite3_column_int64(row, 3);
      if (of_device) {
        const auto [known, is_new] = devices_.emplace(process_of(global), sqlite3_column_int64(row, 4));
        if (!is_new) known->second = std::min<std::int64_t>(known->second, sqlite3_column_int64(row, 4));
      }
      event.members.emplace_back(field::kPid.name, number_value(process_of(global)));
      event.members.emplace_back(field::kTid.name, number_value(of_device ? 0 : thread_of(global)));
      const std::array<std::string_view, 4> names{field::kDevice.name, field::kStream.name, field::kCorrelation.name,
                                                  field::kBytes.name};
      for (int i = 0; i < 4; ++i) {
        if (sqlite3_column_type(row, 4 + i) == SQLITE_NULL) continue;
        event.args.emplace_back(names.at(static_cast<std::size_t>(i)), number_value(sqlite3_column_int64(row, 4 + i)));
      }
      if (payloads) add_collective(text(row, 8), event);
      event_(process_of(global), event);
      return true;
    });
  }

  std::int64_t most_events_;
  const OnEvent& event_;
  Database database_;
  std::unordered_map<std::int64_t, std::string> texts_;
  std::map<std::int64_t, std::int64_t> devices_;                           // of processes with work on one: the first
  std::map<std::pair<std::int64_t, std::int64_t>, NcclPayload> payloads_;  // by domain and schema
  std::map<std::int64_t, std::int64_t> ranks_;                             // by communicator
  std::string name_, group_;                                               // of the event at hand
  NsysFacts facts_;
};

}  // namespace

NsysFacts read_nsys_events(const std::string& path, std::int64_t most_events, std::uint64_t most_bytes,
                           const NsysReader::OnEvent& event) {
  return NsysReader(path, unpack(path, most_bytes), most_events, event).read();
}

}  // namespace fsdpbench::foreign
