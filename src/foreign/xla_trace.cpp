#include "foreign/xla_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

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
  std::int64_t result = -1;
  if (value.is_integer()) return value.integer;
  if (value.is_text()) std::from_chars(value.text.data(), value.text.data() + value.text.size(), result);
  return result;
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

/// Thunks around those of a body.
bool is_around_others(std::string_view op) { return op == "while" || op == "call" || op == "conditional"; }

/// "size:4096" of "kind_src:device kind_dst:device size:4096 dest:0 async:1".
std::int64_t copied_bytes(std::string_view details) {
  std::int64_t bytes = -1;
  const std::size_t at = details.find("size:");
  if (at != details.npos) std::from_chars(details.data() + at + 5, details.data() + details.size(), bytes);
  return bytes;
}

/// XLA launches a collective that is not asynchronous where it computes, so that nothing can run beside it.
void note_compute_stream(RankRows& rank) {
  int compute = -1;
  stream_roles(rank, compute);
  std::size_t count = 0;
  std::int64_t ns = 0;
  for (const DeviceRow& row : rank.device) {
    if (row.kind != Activity::collective || row.stream != compute) continue;
    ++count;
    ns += row.end_ns - row.begin_ns;
  }
  if (count == 0) return;
  rank.notes.push_back(fmt::format(
      "{} collectives, {:.3f} ms, ran on the stream that computes: XLA made them synchronous. `explain --hlo` on the "
      "xplane.pb says which, and why.",
      count, static_cast<double>(ns) * 1e-6));
}

}  // namespace

XlaRows::Track XlaRows::track_of(std::string_view plane, std::string_view line) {
  const auto number_in = [](std::string_view text) {
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  constexpr std::string_view kDevice = "/device:GPU:", kStream = "Stream #";
  Track track;
  if (plane.starts_with(kDevice)) {
    if (!line.starts_with(kStream)) return track;  // what xprof derives of the streams
    track = {Track::Of::device, number_in(plane.substr(kDevice.size())), number_in(line.substr(kStream.size()))};
    if (track.device < 0 || track.device >= kMostLocalDevices) track.of = Track::Of::nothing;
  } else if (plane == "/host:CPU") {
    track.of = line.starts_with("python")                                             ? Track::Of::python
               : line.starts_with("Host Threads/") && line.find("/NVTX") == line.npos ? Track::Of::calls
               : line.starts_with("tf_")                                              ? Track::Of::thunks
                                                                                      : Track::Of::nothing;
    if (track.of == Track::Of::calls) track.id = number_in(line.substr(13));
  }
  return track;
}

void XlaRows::add(const Track& track, std::string_view name, std::int64_t begin_ns, std::int64_t length_ns,
                  const std::vector<Stat>& stats) {
  if (track.of == Track::Of::nothing || length_ns < 0) return;
  Row row;
  row.begin_ns = begin_ns;
  row.length_ns = length_ns;
  row.device = track.device;
  row.track = track.id;
  std::string_view op, path, around;
  for (const auto& [key, value] : stats) {
    if (key == "hlo_op") op = value.text;
    if (key == "hlo_module") row.module = names_.number(value.text);
    if (key == "name") path = value.text;
    if (key == "tf_op") around = value.text;
    if (key == "correlation_id") row.correlation = integer_of(value);
    if (key == "device_ordinal") row.device = integer_of(value);
    if (key == "run_id") row.run = integer_of(value);
    if (key == "step_num") row.step = integer_of(value);
    if (key == "memcpy_details") row.bytes = copied_bytes(value.text), row.kind = Activity::copy;
    if (key == "memset_details") row.bytes = copied_bytes(value.text), row.kind = Activity::fill;
  }
  if (path.empty() && around.find('/') != around.npos) path = around;  // before JAX 0.6
  if (!op.empty()) row.op = names_.number(op);
  if (!path.empty()) row.path = names_.number(path);
  const bool of_device = track.of == Track::Of::device;
  if (of_device && (name.starts_with("MemoryAlloc") || name.starts_with("MemoryFree"))) return;
  if (of_device && row.kind == Activity::computation) {
    if (name.starts_with("Memcpy")) row.kind = Activity::copy;
    if (name.starts_with("Memset")) row.kind = Activity::fill;
  }
  const bool thunk = !of_device && !op.empty() && row.run != -1 && row.device >= 0 && track.of != Track::Of::calls;
  if (!of_device && !thunk) {
    const bool call = track.of == Track::Of::calls && row.correlation >= 0;
    const bool function = name.starts_with('$');
    if (!call && (track.of != Track::Of::python || (function && !functions_) || name.starts_with("end: "))) return;
    if (call) launches_.emplace(row.correlation, begin_ns);
    row.name = names_.number(name);
    row.device = call ? 0 : function ? 1 : 2;
    host_.push_back(row);
    return;
  }
  if (thunk && is_around_others(stem(op))) return;
  on_host_ = on_host_ || thunk;
  row.name = names_.number(name);
  device_.push_back(row);
}

bool XlaRows::json_event(const ParsedEvent& event) {
  if (!event.category.empty()) return false;
  const Value* const pid = event.member(field::kPid.name);
  const Value* const tid = event.member(field::kTid.name);
  if (event.ph == "M") {
    const Value* const name = event.arg("name");
    if (pid == nullptr || name == nullptr || !name->is_text()) return false;
    if (event.name == "process_name") {
      if (!name->text.starts_with("/host:") && !name->text.starts_with("/device:")) return false;
      planes_[pid->integer] = name->text;
    } else if (event.name == "thread_name" && tid != nullptr && planes_.contains(pid->integer)) {
      tracks_[{pid->integer, tid->integer}] = track_of(planes_[pid->integer], name->text);
    }
    return planes_.contains(pid->integer);
  }
  if (pid == nullptr || tid == nullptr || event.ph != "X" || !event.begin_ns || !event.length_ns) return false;
  const auto track = tracks_.find({pid->integer, tid->integer});
  if (track == tracks_.end()) return planes_.contains(pid->integer);
  add(track->second, event.name, *event.begin_ns, *event.length_ns, event.args);
  return true;
}

// Numbers of fields are those of tsl's xplane.proto.

void XlaRows::xspace(std::string_view bytes, std::int64_t most_events) {
  std::vector<std::string_view> planes;
  WireMessage in(bytes);
  while (in.next()) {
    if (in.field() == 1) planes.push_back(in.bytes());
  }
  if (planes.empty()) throw ConfigError("is no xplane.pb of a profiler, or is cut off in its first plane.");
  for (const std::string_view one : planes) plane(one, most_events);
  if (in.broken()) trouble_ = "The file is cut off.";
}

void XlaRows::plane(std::string_view bytes, std::int64_t most_events) {
  struct Named {
    std::string_view name;
    std::vector<std::string_view> stats;
  };
  std::string_view name;
  std::vector<std::string_view> lines, own_stats;
  std::unordered_map<std::int64_t, Named> events, stat_names;
  WireMessage in(bytes);
  while (in.next()) {
    constexpr std::uint32_t kName = 2, kLine = 3, kEvents = 4, kStats = 5, kOwn = 6;
    if (in.field() == kName) name = in.bytes();
    if (in.field() == kLine) lines.push_back(in.bytes());
    if (in.field() == kOwn) own_stats.push_back(in.bytes());
    if (in.field() != kEvents && in.field() != kStats) continue;
    const bool of_event = in.field() == kEvents;
    std::int64_t id = 0;
    Named made;
    WireMessage entry(in.bytes());
    while (entry.next()) {
      if (entry.field() == 1) id = entry.integer();
      if (entry.field() != 2) continue;
      std::string_view shown;
      WireMessage one(entry.bytes());
      while (one.next()) {
        if (one.field() == 2) made.name = one.bytes();
        if (one.field() == 4 && of_event) shown = one.bytes();
        if (one.field() == 5 && of_event) made.stats.push_back(one.bytes());
      }
      if (!shown.empty()) made.name = shown;
    }
    (of_event ? events : stat_names)[id] = std::move(made);
  }
  const auto read_stat = [&](std::string_view stat) -> Stat {
    std::int64_t id = 0;
    Value value;
    WireMessage one(stat);
    while (one.next()) {
      constexpr std::uint32_t kUnsigned = 3, kSigned = 4, kText = 5, kBytes = 6, kName = 7;
      if (one.field() == 1) id = one.integer();
      if (one.field() == kUnsigned || one.field() == kSigned) value = number(one.integer());
      if (one.field() == kText || one.field() == kBytes) value = text(one.bytes());
      if (one.field() == kName) {
        const auto known = stat_names.find(one.integer());
        value = text(known == stat_names.end() ? std::string_view() : known->second.name);
      }
    }
    const auto known = stat_names.find(id);
    return {known == stat_names.end() ? std::string_view() : known->second.name, value};
  };
  for (const std::string_view stat : own_stats) {
    const auto [key, value] = read_stat(stat);
    if (key == "profile_start_time") base_ns_ = integer_of(value);
    if (key == "device_vendor" && device_model_.empty()) device_model_ = clean_text(value.text, kMostOfACell);
  }
  if (name == "/host:metadata") {
    for (const auto& [id, event] : events) {
      for (const std::string_view stat : event.stats) {
        const auto [key, value] = read_stat(stat);
        if (value.is_text() && key.find("lo") != key.npos && !value.text.empty()) add_module(value.text);
      }
    }
    return;
  }
  for (const std::string_view line : lines) {
    std::string_view line_name;
    std::int64_t line_ns = 0;
    std::vector<std::string_view> rows;
    WireMessage at(line);
    while (at.next()) {
      if (at.field() == 2 || (at.field() == 11 && !at.bytes().empty())) line_name = at.bytes();
      if (at.field() == 3) line_ns = at.integer();
      if (at.field() == 4) rows.push_back(at.bytes());
    }
    Track track = track_of(name, line_name);
    if (track.of == Track::Of::nothing) continue;
    std::vector<Stat> stats;
    for (const std::string_view raw : rows) {
      if (rows_++ >= most_events) {
        trouble_ = fmt::format("The file has more rows than the {} that are read.", most_events);
        return;
      }
      std::int64_t id = 0, offset_ps = 0, length_ps = 0;
      stats.clear();
      WireMessage event(raw);
      while (event.next()) {
        if (event.field() == 1) id = event.integer();
        if (event.field() == 2) offset_ps = event.integer();
        if (event.field() == 3) length_ps = event.integer();
        if (event.field() == 4) stats.push_back(read_stat(event.bytes()));
      }
      const auto known = events.find(id);
      if (known == events.end()) continue;
      for (const std::string_view stat : known->second.stats) stats.push_back(read_stat(stat));
      constexpr std::int64_t kMost_ns = 2'200'000'000'000'000'000, kPico = 1000;
      if (line_ns < 0 || line_ns > kMost_ns || offset_ps < 0 || length_ps < 0) continue;
      add(track, known->second.name, line_ns + offset_ps / kPico, length_ps / kPico, stats);
    }
  }
}

void XlaRows::add_module(std::string_view bytes) {
  WireMessage in(bytes);  // HloProto: hlo_module 1
  while (in.next()) {
    if (in.field() != 1) continue;
    try {
      HloModule module = parse_hlo_proto(in.bytes());
      const std::string name = module.name;
      modules_.insert_or_assign(name, std::move(module));
    } catch (const ConfigError&) {
      continue;  // then the sizes of its collectives are not known
    }
  }
}

const XlaRows::OpFacts* XlaRows::facts_of(const Row& row) const {
  if (row.op < 0 || row.module < 0) return nullptr;
  const auto module = ops_.find(std::string(names_[row.module]));
  if (module == ops_.end()) return nullptr;
  const auto op = module->second.find(std::string(names_[row.op]));
  return op == module->second.end() ? nullptr : &op->second;
}

/// When the main module began to run, each time; `module` becomes that one, or -1.
std::vector<std::int64_t> XlaRows::executions(const std::vector<Row>& rows, std::int32_t& module) const {
  std::map<std::int32_t, std::int64_t> times;
  for (const Row& row : rows) {
    if (row.module >= 0) times[row.module] += row.length_ns;
  }
  module = -1;
  for (const auto& [one, ns] : times) {
    if (module < 0 || ns > times[module]) module = one;
  }
  const auto launched = [&](const Row& row) {
    const auto call = launches_.find(row.correlation);
    return call == launches_.end() ? row.begin_ns : call->second;
  };
  std::map<std::int64_t, std::int64_t> runs;                 // by number, where rows tell it
  std::map<std::int32_t, std::vector<std::int64_t>> begins;  // by instruction
  std::int64_t run_of_the_last = -1;
  for (const Row& row : rows) {
    if (row.module != module || row.op < 0) continue;
    if (row.run != -1) {
      const auto [run, fresh] = runs.try_emplace(row.run, launched(row));
      run->second = std::min(run->second, launched(row));
      run_of_the_last = row.run;
    }
    begins[row.op].push_back(launched(row));
  }
  std::vector<std::int64_t> found;
  if (run_of_the_last != -1) {
    for (const auto& [run, begin_ns] : runs) found.push_back(begin_ns);
  } else if (!begins.empty()) {
    std::map<std::size_t, std::size_t> counts;
    for (const auto& [op, moments] : begins) ++counts[moments.size()];
    constexpr std::size_t kTenth = 10;
    const auto usual = std::ranges::find_if(counts, [&](const auto& c) { return c.second * kTenth >= begins.size(); });
    for (auto& [op, moments] : begins) {
      if (usual == counts.end() || moments.size() != usual->first) continue;
      std::ranges::sort(moments);
      if (found.empty() || moments.front() < found.front()) found = moments;
    }
  }
  std::ranges::sort(found);
  return found;
}

/// Tells `to` where steps begin and end, as it would be told by torch.profiler.
void XlaRows::mark_steps(std::vector<Row>& rows, std::vector<Row>& steps, KinetoRows& to, std::string& told) {
  std::int32_t module = -1;
  std::vector<std::int64_t> begins = executions(rows, module);
  if (begins.empty()) return;
  std::size_t each = 1;
  const bool annotated = !steps.empty() && begins.size() % steps.size() == 0;
  if (annotated) each = begins.size() / steps.size();
  std::int64_t end = begins.back();
  for (const Row& row : rows) end = std::max(end, row.begin_ns + row.length_ns);
  for (std::size_t i = 0; i * each < begins.size(); ++i) {
    const std::int64_t until = (i + 1) * each < begins.size() ? begins[(i + 1) * each] : end;
    const std::string name = fmt::format("ProfilerStep#{}", annotated ? steps[i].step : static_cast<std::int64_t>(i));
    ParsedEvent event;
    event.ph = "X";
    event.category = "user_annotation";
    event.name = name;
    event.begin_ns = begins[i * each];
    event.length_ns = until - begins[i * each];
    event.members = {{field::kPid.name, number(-1)}, {field::kTid.name, number(-1)}};
    to.event(event);
  }
  const std::string whole = fmt::format("XlaModule {}", names_[module]);
  ParsedEvent event;
  event.ph = "X";
  event.category = "user_annotation";
  event.name = whole;
  event.begin_ns = begins.front();
  event.length_ns = end - begins.front();
  event.members = {{field::kPid.name, number(-1)}, {field::kTid.name, number(-2)}};
  to.event(event);
  told = fmt::format("executions of the module {}{}", names_[module],
                     annotated ? ", with the numbers of StepTraceAnnotation" : "");
}

XlaRanks XlaRows::take() {
  for (const auto& [name, module] : modules_) {
    auto& ops = ops_[name];
    for (std::size_t c = 0; c < module.computations.size(); ++c) {
      const auto& rows = module.computations[c].instructions;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        OpFacts& facts = ops[rows[i].name];
        facts.module = &module;
        facts.path = rows[i].op_name;
        facts.collective = collective_of(module, static_cast<std::int32_t>(c), static_cast<std::int32_t>(i));
      }
    }
  }
  std::ranges::stable_sort(device_, {}, &Row::begin_ns);
  std::map<std::int64_t, std::vector<Row>> by_device;
  std::unordered_map<std::int64_t, std::int64_t> device_of;  // by correlation
  for (const Row& row : device_) {
    by_device[row.device].push_back(row);
    if (row.correlation >= 0) device_of.emplace(row.correlation, row.device);
  }
  device_ = {};
  std::ranges::stable_sort(host_, {}, &Row::begin_ns);
  std::vector<Row> steps;
  std::set<std::int64_t> numbers;
  for (const Row& row : host_) {
    if (row.step >= 0 && numbers.insert(row.step).second) steps.push_back(row);
  }
  XlaRanks made;
  made.base_ns = base_ns_;
  made.trouble = trouble_;
  std::int64_t place = 0;
  const auto devices = static_cast<std::int64_t>(by_device.size());
  for (auto& [device, rows] : by_device) {
    const std::int64_t local = place++;
    const std::int64_t id = on_host_ ? device / kDevicesOfAProcess * devices + device % kDevicesOfAProcess : local;
    KinetoRows to(functions_);
    std::int64_t world = 0;
    std::map<std::int32_t, std::string> lists;  // by groups of the module at hand
    const HloModule* lists_of = nullptr;
    for (const Row& row : host_) {
      constexpr std::int64_t kCall = 0, kFunction = 1;
      if (row.device == kCall) {
        const auto own = device_of.find(row.correlation);
        if (own == device_of.end() ? local > 0 : own->second != device) continue;
      }
      ParsedEvent event;
      event.ph = "X";
      event.category = row.device == kCall       ? "cuda_runtime"
                       : row.device == kFunction ? "python_function"
                                                 : "user_annotation";
      event.name = names_[row.name];
      event.begin_ns = row.begin_ns;
      event.length_ns = row.length_ns;
      event.members = {{field::kPid.name, number(0)}, {field::kTid.name, number(row.device == kCall ? row.track : -2)}};
      event.args.emplace_back(field::kCorrelation.name, number(row.correlation));
      to.event(event);
    }
    for (const Row& row : rows) {
      const OpFacts* const facts = facts_of(row);
      ParsedEvent event;
      event.ph = "X";
      event.category = row.kind == Activity::copy ? "gpu_memcpy" : row.kind == Activity::fill ? "gpu_memset" : "kernel";
      event.name = names_[row.name];
      event.begin_ns = row.begin_ns;
      event.length_ns = row.length_ns;
      const auto kind = row.op < 0 ? std::nullopt : communication_of_hlo(stem(names_[row.op]));
      const bool communicates = row.kind == Activity::computation && kind.has_value();
      event.args = {{field::kDevice.name, number(on_host_ ? RankRows::kHostDevice : device)},
                    {field::kStream.name, number(on_host_ ? (communicates ? 0 : 1) : row.track)},
                    {field::kCorrelation.name, number(row.correlation)}};
      if (row.bytes >= 0) event.args.emplace_back(field::kBytes.name, number(row.bytes));
      const std::string_view path = row.path >= 0      ? names_[row.path]
                                    : facts != nullptr ? std::string_view(facts->path)
                                                       : std::string_view();
      if (!path.empty()) event.args.emplace_back(kSourcePath, text(path));
      std::string group_name, size_name;
      if (communicates) {
        event.args.emplace_back(field::kCollectiveName.name, text(to_string(*kind)));
        if (facts != nullptr && facts->collective) {
          const HloCollective& known = *facts->collective;
          // Of operands of several types the bytes are what counts.
          const int size = std::max(1, hlo_type(known.dtype).first);
          event.args.emplace_back(field::kInElements.name, number(known.bytes_in / size));
          event.args.emplace_back(field::kOutElements.name, number(known.bytes_out / size));
          event.args.emplace_back(field::kDtype.name, text(hlo_type(known.dtype).second));
          world = std::max(world, facts->module->partitions * facts->module->replicas);
          if (known.groups >= 0) {
            if (lists_of != facts->module) lists.clear();
            lists_of = facts->module;
            const ReplicaGroups& groups = facts->module->groups[static_cast<std::size_t>(known.groups)];
            const auto [list, fresh] = lists.try_emplace(known.groups);
            if (fresh) {
              for (const std::vector<int>& one : groups.lists) {
                const bool own = groups.lists.size() == 1 || std::ranges::find(one, static_cast<int>(id)) != one.end();
                if (own && one.size() <= kMostOfAGroup) list->second = fmt::format("[{}]", fmt::join(one, ", "));
              }
            }
            group_name = list->second.empty() ? fmt::format("groups of {}", groups.size) : list->second;
            event.args.emplace_back(field::kGroupName.name, text(group_name));
            event.args.emplace_back(field::kGroupSize.name, number(groups.size));
            if (!list->second.empty()) event.args.emplace_back(field::kGroupRanks.name, text(list->second));
          }
        }
      }
      to.event(event);
    }
    std::string told;
    mark_steps(rows, steps, to, told);
    trace::FileFacts facts;
    facts.device = device_model_;
    if (on_host_ || devices == world) facts.rank = id;
    if (world > 0) facts.world_size = world;
    RankRows& rank = made.ranks.emplace_back(to.take(facts));
    rank.steps_told_by = told;
    if (!on_host_) note_compute_stream(rank);
    if (devices > 1) rank.notes.push_back(fmt::format("It is device {} of the {} of its process.", local, devices));
  }
  return made;
}

}  // namespace fsdpbench::foreign
