#include "foreign/xla_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/read_input.h"
#include "foreign/wire_format.h"
#include "trace/fields.h"

namespace fsdpbench::foreign {
namespace {

namespace field = trace::field;
using trace::ParsedEvent;
using trace::Value;

constexpr std::int64_t kDevicesOfAProcess = 2048;  // on CPUs, device ids count on from there in the next process
constexpr std::size_t kMostOfAGroup = 4096;
constexpr std::int64_t kMostLocalDevices = 1024;  // of one process

Value number(std::int64_t value) { return {Value::Type::integer, value, {}}; }
Value text(std::string_view value) { return {Value::Type::text, 0, value}; }

/// In JSON every number is a text.
std::int64_t integer_of(const Value& value) {
  return value.is_integer() ? value.integer : number_behind("", value.text);
}

ParsedEvent event(std::string_view category, std::string_view name, std::int64_t begin_ns, std::int64_t length_ns,
                  std::optional<std::int64_t> process = {}, std::int64_t thread = 0) {
  ParsedEvent made{0, {}, {}, "X", category, name, begin_ns, length_ns};
  if (process) made.members = {{field::kPid.name, number(*process)}, {field::kTid.name, number(thread)}};
  return made;
}

/// "all-gather-start" of "all-gather-start.4": what an instruction is called before its number.
std::string_view stem(std::string_view op) {
  while (!op.empty()) {
    const std::size_t dot = op.rfind('.');
    if (dot == op.npos || op.find_first_not_of("0123456789", dot + 1) != op.npos) break;
    op = op.substr(0, dot);
  }
  return op;
}

}  // namespace

XlaRows::Row XlaRows::row_of(std::string_view plane, std::string_view line) {
  constexpr std::string_view kDevice = "/device:GPU:", kThread = "Host Threads/";
  using enum Of;
  if (plane.starts_with(kDevice)) {
    const std::int64_t id = number_behind(kDevice, plane);
    // Other lines are what xprof derives of the streams.
    const bool read = line.starts_with("Stream #") && id >= 0 && id < kMostLocalDevices;
    return {read ? device : nothing, id, number_behind("#", line)};
  }
  if (plane != "/host:CPU") return {};
  if (line.starts_with(kThread) && line.find("/NVTX") == line.npos) return {calls, 0, number_behind(kThread, line)};
  return {line.starts_with("python") ? python : line.starts_with("tf_") ? thunks : nothing};
}

void XlaRows::add(Row row, std::string_view name, const std::vector<Stat>& stats) {
  if (row.of == Of::nothing || row.length_ns < 0) return;
  std::string_view op, module, path;
  for (const auto& [key, value] : stats) {
    if (key == "hlo_op") op = value.text;
    if (key == "hlo_module") module = value.text;
    if (key == "name") path = value.text;
    if (key == "correlation_id") row.correlation = integer_of(value);
    if (key == "device_ordinal") row.device = integer_of(value);
    if (key == "run_id") row.run = integer_of(value);
    if (key == "step_num") row.step = integer_of(value);
    if (key == "memcpy_details" || key == "memset_details") row.bytes = number_behind("size:", value.text);
  }
  if (!module.empty()) row.module = names_.number(module);
  if (!op.empty()) row.op = names_.number(op);
  if (const auto known = ops_.find({std::string(module), std::string(op)}); known != ops_.end())
    row.facts = &known->second;
  if (path.empty() && row.facts != nullptr) path = row.facts->path;
  if (!path.empty()) row.path = names_.number(path);
  const bool of_device = row.of == Of::device;
  if (of_device && (name.starts_with("MemoryAlloc") || name.starts_with("MemoryFree"))) return;
  if (of_device && name.starts_with("Memcpy")) row.category = kCopy;
  if (of_device && name.starts_with("Memset")) row.category = kFill;
  const bool thunk = !of_device && !op.empty() && row.run != -1 && row.device >= 0 && row.of != Of::calls;
  if (!of_device && !thunk) {
    const bool call = row.of == Of::calls && row.correlation >= 0;
    const bool function = name.starts_with('$');
    if (!call && (row.of != Of::python || (function && !functions_) || name.starts_with("end: "))) return;
    if (call) launches_.emplace(row.correlation, row.begin_ns);
    if (row.step >= 0) steps_.insert(row.step);
    row.name = names_.number(name);
    row.category = call ? "cuda_runtime" : function ? "python_function" : "user_annotation";
    host_.push_back(row);
    return;
  }
  const std::string_view word = stem(op);
  if (thunk && (word == "while" || word == "call" || word == "conditional")) return;  // around others
  on_host_ = on_host_ || thunk;
  row.name = names_.number(name);
  device_.push_back(row);
}

bool XlaRows::json_event(const ParsedEvent& event) {
  const Value* const pid = event.member(field::kPid.name);
  const Value* const tid = event.member(field::kTid.name);
  if (!event.category.empty() || pid == nullptr) return false;
  if (event.ph == "M") {
    const Value* const name = event.arg("name");
    if (name == nullptr || !name->is_text()) return false;
    const bool plane = name->text.starts_with("/host:") || name->text.starts_with("/device:");
    if (event.name == "process_name" && plane) planes_[pid->integer] = name->text;
    if (event.name == "thread_name" && tid != nullptr && planes_.contains(pid->integer))
      tracks_[{pid->integer, tid->integer}] = row_of(planes_[pid->integer], name->text);
    return planes_.contains(pid->integer);
  }
  if (tid == nullptr || event.ph != "X" || !event.begin_ns || !event.length_ns) return false;
  const auto track = tracks_.find({pid->integer, tid->integer});
  if (track == tracks_.end()) return planes_.contains(pid->integer);
  Row row = track->second;
  row.begin_ns = *event.begin_ns, row.length_ns = *event.length_ns;
  add(row, event.name, event.args);
  return true;
}

// Numbers of fields are those of tsl's xplane.proto.

void XlaRows::xspace(std::string_view bytes, std::int64_t most_events) {
  const std::vector<std::string_view> planes = all_in(bytes, 1);
  if (planes.empty()) throw ConfigError("is no xplane.pb of a profiler, or is cut off in its first plane.");
  for (const std::string_view module : modules_in_xspace(bytes)) add_module(module);
  for (const std::string_view one : planes) plane(one, most_events);
  if (!is_whole(bytes)) trouble_ = "The file is cut off.";
}

void XlaRows::plane(std::string_view bytes, std::int64_t most_events) {
  std::unordered_map<std::int64_t, std::string_view> events, stat_names;
  for (const std::string_view entry : all_in(bytes, 4)) events[integer_in(entry, 1)] = bytes_in(entry, 2);
  for (const std::string_view entry : all_in(bytes, 5))
    stat_names[integer_in(entry, 1)] = bytes_in(bytes_in(entry, 2), 2);
  const auto read_stat = [&](std::string_view stat) -> Stat {
    std::string_view name;
    Value value;
    for (WireMessage one{stat}; one.next();) {
      constexpr std::uint32_t kUnsigned = 3, kSigned = 4, kText = 5, kBytes = 6, kName = 7;
      if (one.field == 1) name = stat_names[one.integer];
      if (one.field == kUnsigned || one.field == kSigned) value = number(one.integer);
      if (one.field == kText || one.field == kBytes) value = text(one.bytes);
      if (one.field == kName) value = text(stat_names[one.integer]);
    }
    return {name, value};
  };
  for (const std::string_view stat : all_in(bytes, 6)) {
    const auto [key, value] = read_stat(stat);
    if (key == "jaxlib_version") jaxlib_ = numbers_in(value.text);
    if (key == "profile_start_time") base_ns_ = integer_of(value);
    if (key == "device_vendor" && device_model_.empty()) device_model_ = clean_text(value.text, kMostOfACell);
  }
  for (const std::string_view line : all_in(bytes, 3)) {
    const std::string_view shown = bytes_in(line, 11);
    Row row = row_of(bytes_in(bytes, 2), shown.empty() ? bytes_in(line, 2) : shown);
    const std::int64_t line_ns = integer_in(line, 3);
    if (row.of == Of::nothing) continue;
    for (const std::string_view event : all_in(line, 4)) {
      if (rows_++ >= most_events) {
        trouble_ = fmt::format("The file has more rows than the {} that are read.", most_events);
        return;
      }
      const std::string_view known = events[integer_in(event, 1)];
      std::vector<Stat> stats;
      for (const std::string_view stat : all_in(event, 4)) stats.push_back(read_stat(stat));
      for (const std::string_view stat : all_in(known, 5)) stats.push_back(read_stat(stat));
      constexpr std::int64_t kMost_ns = 2'200'000'000'000'000'000, kPico = 1000;
      const std::int64_t offset_ps = integer_in(event, 2), length_ps = integer_in(event, 3);
      if (line_ns < 0 || line_ns > kMost_ns || offset_ps < 0 || length_ps < 0) continue;
      const std::string_view name = bytes_in(known, 4);
      row.begin_ns = line_ns + offset_ps / kPico, row.length_ns = length_ps / kPico;
      add(row, name.empty() ? bytes_in(known, 2) : name, stats);
    }
  }
}

void XlaRows::add_module(std::string_view bytes) {
  try {
    HloModule made = parse_hlo_proto(bytes);
    HloModule& module = modules_.insert_or_assign(made.name, std::move(made)).first->second;
    for (std::int32_t c = 0; c < std::ssize(module.computations); ++c) {
      const auto& rows = module.computations[c].instructions;
      for (std::int32_t i = 0; i < std::ssize(rows); ++i) {
        const HloInstruction& one = rows[i];
        ops_[{module.name, one.name}] = {collective_of(module, c, i), &module, one.op_name};
      }
    }
  } catch (const ConfigError&) {  // then the sizes of its collectives are not known
  }
}

/// Tells `to` where steps begin and end, as it would be told by torch.profiler; how that is known, in words.
std::string XlaRows::mark_steps(const std::vector<Row>& rows, KinetoRows& to) {
  const std::vector<std::int64_t> steps(steps_.begin(), steps_.end());
  std::map<std::int32_t, std::int64_t> times;                // by module
  std::map<std::int32_t, std::vector<std::int64_t>> starts;  // of the one that takes most, by instruction
  for (const Row& row : rows) {
    if (row.module >= 0) times[row.module] += row.length_ns;
  }
  if (times.empty()) return {};
  const std::int32_t module = std::ranges::max_element(times, {}, [](const auto& one) { return one.second; })->first;
  std::int64_t end = 0;
  std::vector<std::int64_t> begins;
  std::set<std::int64_t> runs;  // where rows tell their numbers
  for (const Row& row : rows) {
    end = std::max(end, row.begin_ns + row.length_ns);
    if (row.module != module || row.op < 0) continue;
    if (row.run != -1 && runs.insert(row.run).second) begins.push_back(row.begin_ns);
    const auto call = launches_.find(row.correlation);
    starts[row.op].push_back(call == launches_.end() ? row.begin_ns : call->second);
  }
  std::map<std::size_t, std::size_t> counts;
  for (const auto& [op, moments] : starts) ++counts[moments.size()];
  const auto usual = std::ranges::find_if(counts, [&](const auto& c) { return c.second * 10 >= starts.size(); });
  for (auto& [op, moments] : starts) {
    std::ranges::sort(moments);
    const bool fits = runs.empty() && usual != counts.end() && moments.size() == usual->first;
    if (fits && (begins.empty() || moments.front() < begins.front())) begins = moments;
  }
  if (begins.empty()) return {};
  const bool annotated = !steps.empty() && begins.size() % steps.size() == 0;
  const std::size_t each = annotated ? begins.size() / steps.size() : 1;
  for (std::size_t i = 0; i * each < begins.size(); ++i) {
    const std::int64_t until = (i + 1) * each < begins.size() ? begins[(i + 1) * each] : end;
    const std::string name = fmt::format("ProfilerStep#{}", annotated ? steps[i] : static_cast<std::int64_t>(i));
    to.event(event("user_annotation", name, begins[i * each], until - begins[i * each], -1, -1));
  }
  const std::string whole = fmt::format("XlaModule {}", names_[module]);
  to.event(event("user_annotation", whole, begins.front(), end - begins.front(), -1, -2));
  return fmt::format("executions of the module {}{}", names_[module],
                     annotated ? ", with the numbers of StepTraceAnnotation" : "");
}

/// A row of a device as torch.profiler would tell it. `id`: of the device, among all of the program.
void XlaRows::device_event(const Row& row, std::int64_t id, KinetoRows& to, std::int64_t& world) {
  ParsedEvent told = event(row.category, names_[row.name], row.begin_ns, row.length_ns);
  const auto add = [&](const trace::Field& field, const Value& value) { told.args.emplace_back(field.name, value); };
  const HloKind* const kind = row.op < 0 || row.category != kKernel ? nullptr : kind_of_hlo(stem(names_[row.op]));
  add(field::kDevice, number(on_host_ ? RankRows::kHostDevice : row.device));
  add(field::kStream, number(!on_host_ ? row.track : kind != nullptr ? 0 : 1));
  add(field::kCorrelation, number(row.correlation));
  if (row.bytes >= 0) add(field::kBytes, number(row.bytes));
  if (row.path >= 0) told.args.emplace_back(kSourcePath, text(names_[row.path]));
  std::string group;
  if (kind != nullptr) add(field::kCollectiveName, text(to_string(kind->kind)));
  if (kind != nullptr && row.facts != nullptr && row.facts->collective) {
    const HloCollective& known = *row.facts->collective;
    const HloModule& module = *row.facts->module;
    // Bytes count where operands have several types.
    const int size = std::max(1, hlo_bytes(known.dtype));
    add(field::kInElements, number(known.bytes_in / size));
    add(field::kOutElements, number(known.bytes_out / size));
    add(field::kDtype, text(known.dtype));
    world = std::max(world, module.devices);
    if (known.groups >= 0) {
      const ReplicaGroups& groups = module.groups[known.groups];
      const auto [list, fresh] = own_groups_.try_emplace({&module, known.groups, id});
      for (const std::vector<int>& one : groups.lists) {
        if (!fresh || one.size() > kMostOfAGroup) continue;
        const bool own = groups.lists.size() == 1 || std::ranges::find(one, static_cast<int>(id)) != one.end();
        if (own) list->second = fmt::format("[{}]", fmt::join(one, ", "));
      }
      group = list->second.empty() ? fmt::format("groups of {}", groups.size) : list->second;
      add(field::kGroupName, text(group));
      add(field::kGroupSize, number(groups.size));
      if (!list->second.empty()) add(field::kGroupRanks, text(group));
    }
  }
  to.event(told);
}

std::vector<RankRows> XlaRows::take() {
  std::ranges::stable_sort(device_, {}, &Row::begin_ns);
  std::ranges::stable_sort(host_, {}, &Row::begin_ns);
  std::map<std::int64_t, std::vector<Row>> by_device;
  std::unordered_map<std::int64_t, std::int64_t> device_of;  // by correlation
  for (const Row& row : device_) {
    by_device[row.device].push_back(row);
    if (row.correlation >= 0) device_of.emplace(row.correlation, row.device);
  }
  device_ = {};
  std::vector<RankRows> made;
  const auto devices = std::ssize(by_device);
  for (auto& [device, rows] : by_device) {
    const auto local = std::ssize(made);
    const std::int64_t id = on_host_ ? device / kDevicesOfAProcess * devices + device % kDevicesOfAProcess : local;
    KinetoRows to(functions_);
    for (const Row& row : host_) {
      const auto own = device_of.find(row.correlation);
      const bool call = row.of == Of::calls;
      if (call && (own == device_of.end() ? local > 0 : own->second != device)) continue;
      ParsedEvent told = event(row.category, names_[row.name], row.begin_ns, row.length_ns, 0, call ? row.track : -2);
      told.args.emplace_back(field::kCorrelation.name, number(row.correlation));
      to.event(told);
    }
    std::int64_t world = 0;
    for (const Row& row : rows) device_event(row, id, to, world);
    const std::string told = mark_steps(rows, to);
    trace::FileFacts facts;
    facts.device = device_model_;
    if (on_host_ || devices == world) facts.rank = id;
    if (world > 0) facts.world_size = world;
    RankRows& rank = made.emplace_back(to.take(facts));
    if (!trouble_.empty()) rank.notes.insert(rank.notes.begin(), trouble_);
    rank.xla.emplace(told);
    if (!jaxlib_.empty()) rank.xla->since_0_11_1 = jaxlib_ >= std::vector<std::int64_t>{0, 11, 1};
    if (devices > 1) rank.notes.push_back(fmt::format("It is device {} of the {} of its process.", local, devices));
  }
  return made;
}

}  // namespace fsdpbench::foreign
