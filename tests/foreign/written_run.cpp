#include "foreign/written_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "foreign/contention.h"
#include "trace/kineto.h"

namespace fsdpbench::foreign::corpus {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Phase;

constexpr std::int64_t kPid = 4242, kMainThread = 4242, kAutogradThread = 4310, kLoaderThread = 4377, kDevice = 0;
constexpr std::int64_t kComputeStream = 7;

class RankStory {
 public:
  RankStory(const testing::SimulatedRun& run, std::size_t place, const Dialect& dialect, std::uint64_t seed,
            std::int64_t shift_ns)
      : run_(run),
        trace_(run.measurement.traces[place]),
        dialect_(dialect),
        random_(seed),
        shift_ns_(shift_ns),
        work_(plan::module_work(run.config.model, run.config.train.batch_per_rank, run.config.train.seq_len)),
        result_{trace_.rank, KinetoText(facts()), {}} {
    if (dialect.slower_beside > 1) communicating_ = communicating(run.setup.schedules, trace_);
    for (const plan::Unit& unit : run.setup.plan.units) {
      if (unit.is_experts()) {  // FSDP2 names parameter groups by their module, so those of one have one name
        const bool nested = run.setup.plan.nests_experts;
        labels_.push_back(labels_[unit.members.experts_of] + (nested ? ".experts" : ""));
        continue;
      }
      const bool root = unit.label() == "R";
      labels_.push_back(root ? "" : unit.label() == "T" ? "norm, output" : dialect.unit_prefix + unit.label());
    }
  }

  WrittenRank tell() {
    result_.text.name_process(kPid, "python");
    std::size_t first = 0;
    for (std::size_t s = 0; s < trace_.steps.size(); ++s) {
      const trace::StepWindow& window = trace_.steps[s];
      step_ = trace_.records[first].step;
      const schedule::Schedule& schedule = run_.setup.schedules.of_step(static_cast<std::size_t>(step_));
      shift_ns_ -= dialect_.loader_ns;
      if (dialect_.loader_ns > 0) {
        host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", kMainThread,
             window.begin_ns - dialect_.loader_ns + 1000, window.begin_ns - 1000);
      }
      if (dialect_.steps) {
        host("user_annotation", fmt::format("ProfilerStep#{}", step_), kMainThread,
             window.begin_ns - dialect_.loader_ns, std::max(window.issued_ns, window.end_ns));
      }
      for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const trace::Record& record = trace_.records[first + i];
        const std::int64_t next = i + 1 < schedule.ops.size() ? trace_.records[first + i + 1].issued_ns
                                                              : std::max(window.issued_ns, record.issued_ns + 1000);
        tell_op(schedule.ops, i, record, next);
      }
      close_ranges(0);
      first += schedule.ops.size();
      host("cuda_runtime", call("DeviceSynchronize"), kMainThread, std::max(last_host_ns_, window.issued_ns),
           std::max(last_host_ns_ + 1000, window.end_ns),
           fmt::format("\"cbid\": 165, \"correlation\": {}", ++correlation_));
    }
    std::ranges::sort(result_.collectives, {},
                      [](const CollectiveTruth& c) { return std::pair(c.begin_ns, c.stream); });
    return std::move(result_);
  }

 private:
  KinetoText::Facts facts() const {
    KinetoText::Facts facts;
    facts.rank = trace_.rank;
    facts.world = run_.setup.plan.groups.ranks();
    facts.device_model = dialect_.vendor == Vendor::amd ? "AMD Instinct MI300X" : "NVIDIA H100 80GB HBM3";
    std::vector<int> all;
    for (int rank = 0; rank < facts.world; ++rank) all.push_back(rank);
    facts.groups.push_back({"0", "default_pg", all});
    for (std::size_t g = 1; g < plan::kGroupCount; ++g) {
      const auto group = static_cast<plan::Group>(g);
      if (!run_.setup.plan.groups.exists(group)) continue;
      const std::vector<int> ranks = run_.setup.plan.groups.members(group, trace_.rank).ranks();
      if (group == plan::Group::shard && ranks == all) continue;
      facts.groups.push_back({fmt::format("{}", 10 * g), description(group), ranks});
    }
    return facts;
  }

  std::string description(plan::Group group) const {
    if (dialect_.framework != Framework::fsdp2) return "undefined";
    switch (group) {
      case plan::Group::shard: return "mesh_dp_shard";
      case plan::Group::replicate: return "mesh_dp_replicate";
      case plan::Group::shard_separate: return "fsdp_reduce_scatter";
      case plan::Group::expert: return "mesh_ep";
      case plan::Group::expert_shard: return "mesh_efsdp";
      default: return "undefined";
    }
  }

  std::string call(std::string_view what) const {
    return fmt::format("{}{}", dialect_.vendor == Vendor::amd ? "hip" : "cuda", what);
  }

  std::int64_t stream_of(const Op& op) const {
    if (!op.is_collective()) {
      constexpr std::array<std::int64_t, kLaneCount> kLanes{kComputeStream, 21, 23, 25, 19, 27};
      return kLanes[index_of(op.lane)];
    }
    if (op.lane == Lane::compute) return dialect_.one_queue ? 38 : kComputeStream;
    const bool separate = op.group() == plan::Group::shard_separate;
    if (dialect_.one_stream) return separate ? 36 : op.group() == plan::Group::replicate ? 34 : 32;
    constexpr std::array<std::int64_t, kLaneCount> kOwn{kComputeStream, 24, 28, 30, 19, 26};
    return kOwn[index_of(op.lane)];
  }

  void host(std::string_view category, std::string_view name, std::int64_t thread, std::int64_t begin, std::int64_t end,
            std::string_view args = {}) {
    const bool is_op = category == "cpu_op" || category == "user_annotation";
    if (is_op && !dialect_.host_ops && !name.starts_with("ProfilerStep")) return;
    if (is_op) ++external_;
    const std::string own = is_op ? fmt::format("\"External id\": {}, \"Record function id\": 0, \"Ev Idx\": {}{}{}",
                                                external_, external_, args.empty() ? "" : ", ", args)
                                  : std::string(args);
    result_.text.slice(category, name, kPid, thread, begin - shift_ns_, end - shift_ns_, own);
    last_host_ns_ = std::max(last_host_ns_, begin);
    if (dialect_.stacks && category == "user_annotation") {
      result_.text.slice("python_function", "torch/autograd/profiler.py(793): __enter__", kPid, thread,
                         begin - shift_ns_, end - shift_ns_,
                         fmt::format("\"Python id\": {}, \"Python parent id\": 1", external_));
    }
  }

  /// A range of the host that is going on, and what of it ran where on the device.
  struct Open {
    Range range;
    std::int64_t begin_ns = 0;
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> streams;  // first begin, last end
  };

  void close_ranges(std::size_t keep) {
    while (open_.size() > keep) {
      const Open& open = open_.back();
      host(open.range.op ? "cpu_op" : "user_annotation", open.range.name, thread_, open.begin_ns,
           std::max(open.begin_ns + 1, range_end_ - static_cast<std::int64_t>(open_.size())));
      if (dialect_.device_ranges && dialect_.host_ops && !open.range.op) {
        for (const auto& [stream, time] : open.streams) {
          result_.text.slice("gpu_user_annotation", open.range.name, kDevice, stream, time.first - shift_ns_,
                             time.second - shift_ns_, fmt::format("\"External id\": {}", external_));
        }
      }
      open_.pop_back();
    }
  }

  void enter(const std::vector<Range>& path, std::int64_t thread, std::int64_t begin) {
    std::size_t same = 0;
    if (thread == thread_) {
      while (same < path.size() && same < open_.size() && open_[same].range == path[same]) ++same;
    }
    close_ranges(same);
    thread_ = thread;
    for (std::size_t i = same; i < path.size(); ++i) {
      open_.push_back({path[i], begin + static_cast<std::int64_t>(i) * 20, {}});
    }
  }

  void tell_op(const std::vector<Op>& ops, std::size_t index, const trace::Record& record, std::int64_t next) {
    const Op& op = ops[index];
    const std::int64_t thread = op.phase == Phase::backward ? kAutogradThread : kMainThread;
    const std::int64_t begin = record.issued_ns;
    const std::int64_t longest = std::max<std::int64_t>(
        2000, static_cast<std::int64_t>((run_.config.simulate.host_issue_us + run_.config.inject.host_delay_us) * 1e3));
    const std::int64_t end = std::max(begin + 1, std::min(next, op.is_host() ? record.end_ns : begin + longest));
    if (op.is_host() && end - begin < 500) return;  // there was nothing to wait for
    enter(ranges_of(dialect_, ops, index, labels_), thread, begin);
    range_end_ = end;
    const std::int64_t inside = begin + static_cast<std::int64_t>(open_.size()) * 20;
    if (op.is_host()) {
      host("cuda_runtime", call(op.kind == OpKind::host_wait ? "EventSynchronize" : "DeviceSynchronize"), thread,
           inside, std::max(inside + 1, end - 20), fmt::format("\"cbid\": 173, \"correlation\": {}", ++correlation_));
    } else if (record.end_ns > 0 && op.is_collective()) {
      collective(op, record, thread, inside, end - 20);
    } else if (record.end_ns > 0) {
      kernels(op, record, thread, inside, end - 20);
    }
    if (dialect_.sync_rows) {
      for (const schedule::Wait& wait : op.waits) {
        if (wait.event == schedule::kNoEvent || op.is_host()) continue;
        result_.text.slice(
            "cuda_sync", "Stream Wait Event", kDevice, -1, begin - shift_ns_, begin - shift_ns_,
            fmt::format("\"cuda_sync_kind\": \"Stream Wait Event\", \"stream\": {}, \"wait_on_stream\": {}, "
                        "\"correlation\": {}, \"device\": 0",
                        stream_of(op), stream_of_event(ops, index, wait.event), ++correlation_));
      }
    }
    if (dialect_.memory && !op.allocates.empty()) {
      const PoolStatistics& memory = run_.setup.memory;
      result_.text.instant("cpu_instant_event", "[memory]", kPid, thread, begin - shift_ns_,
                           fmt::format("\"Total Reserved\": {}, \"Total Allocated\": {}, \"Bytes\": 512, \"Addr\": 1, "
                                       "\"Device Id\": 0, \"Device Type\": 1",
                                       memory.reserved, memory.reserved / 2));
    }
  }

  std::int64_t stream_of_event(const std::vector<Op>& ops, std::size_t index, schedule::EventId event) const {
    for (std::size_t i = index; i-- > 0;) {
      if (ops[i].record == event) return stream_of(ops[i]);
    }
    return -1;
  }

  /// A call of the runtime that launches what the device runs from `begin` to `end`.
  void launch(std::string_view name, std::string_view category, std::string_view device_name, std::int64_t thread,
              std::int64_t call_begin, std::int64_t call_end, std::int64_t stream, std::int64_t begin, std::int64_t end,
              std::string_view args) {
    const std::int64_t id = ++correlation_;
    host("cuda_runtime", name, thread, call_begin, call_end,
         fmt::format("\"External id\": {}, \"cbid\": 211, \"correlation\": {}", external_, id));
    if (dialect_.arrows) {
      result_.text.arrow(id, kPid, thread, call_begin - shift_ns_, kDevice, stream, begin - shift_ns_);
    }
    result_.text.slice(
        category, device_name, kDevice, stream, begin - shift_ns_, end - shift_ns_,
        fmt::format("\"External id\": {}, \"device\": 0, \"context\": 1, \"stream\": {}, \"correlation\": {}{}{}",
                    external_, stream, id, args.empty() ? "" : ", ", args));
    for (Open& open : open_) {
      const auto [range, fresh] = open.streams.try_emplace(stream, begin, end);
      if (!fresh) range->second.second = std::max(range->second.second, end);
    }
  }

  void kernels(const Op& op, const trace::Record& record, std::int64_t thread, std::int64_t begin, std::int64_t end) {
    const plan::ModuleWork* work =
        op.module >= 0 && static_cast<std::size_t>(op.module) < work_.size() ? &work_[op.module] : nullptr;
    const std::vector<Kernel> list = kernels_of(dialect_, op, work, run_.setup.plan.param_dtype == DType::bf16);
    double all = 0;
    for (const Kernel& kernel : list) all += kernel.weight;
    std::int64_t from = record.begin_ns, call_at = begin;
    double done = 0;
    for (std::size_t k = 0; k < list.size(); ++k) {
      const Kernel& kernel = list[k];
      done += kernel.weight;
      const auto length = static_cast<double>(record.end_ns - record.begin_ns);
      const std::int64_t until =
          k + 1 == list.size() ? record.end_ns
          : dialect_.slower_beside > 1
              ? when_done({record.begin_ns, record.end_ns}, communicating_, dialect_.slower_beside, done / all)
              : record.begin_ns + static_cast<std::int64_t>(length * (done / all));
      const std::int64_t share = std::max<std::int64_t>(60, (end - begin) / static_cast<std::int64_t>(list.size()));
      call_at = std::min(call_at, from - 40);
      const std::int64_t op_end = call_at + share - 10;
      if (!kernel.backward.empty()) {
        host("cpu_op", "autograd::engine::evaluate_function: " + kernel.backward, thread, call_at, op_end);
        host("cpu_op", kernel.backward, thread, call_at + 4, op_end - 4);
      }
      host("cpu_op", kernel.op, thread, call_at + 8, op_end - 8);
      if (random_() % 3 == 0) host("cpu_op", "aten::empty_strided", thread, call_at + 9, call_at + 11);
      const bool copies = kernel.category == "gpu_memcpy";
      launch(copies                           ? call("MemcpyAsync")
             : dialect_.vendor == Vendor::amd ? "hipExtModuleLaunchKernel"
                                              : "cudaLaunchKernel",
             kernel.category, kernel.name, thread, call_at + 12, op_end - 12, stream_of(op), from, until,
             copies ? "\"bytes\": 65536, \"memory bandwidth (GB/s)\": 20.5"
                    : "\"grid\": [132, 1, 1], \"block\": [256, 1, 1]");
      from = until;
      call_at += share;
    }
  }

  void collective(const Op& op, const trace::Record& record, std::int64_t thread, std::int64_t begin,
                  std::int64_t end) {
    const schedule::Collective& c = *op.collective();
    const plan::Groups& groups = run_.setup.plan.groups;
    const int size = groups.size(c.group);
    const bool exchange = op.exchanges_rows();
    const bool scatters = exchange || op.kind == OpKind::reduce_scatter;
    const bool gathers = exchange || op.kind == OpKind::all_gather || op.kind == OpKind::gather_norm;
    const auto members = groups.members(c.group, trace_.rank).ranks();
    const bool world = members.size() == static_cast<std::size_t>(groups.ranks());
    const std::string group =
        world && c.group == plan::Group::shard ? "0" : fmt::format("{}", 10 * static_cast<int>(c.group));
    const std::string fields = fmt::format(
        "\"Collective name\": \"{}\", \"In msg nelems\": {}, \"Out msg nelems\": {}, \"Group size\": {}, \"dtype\": "
        "\"{}\", \"In split size\": \"[]\", \"Out split size\": \"[]\", \"Process Group Name\": \"{}\", \"Process "
        "Group "
        "Description\": \"{}\", \"Process Group Ranks\": \"[{}]\", \"Seq\": {}",
        op.kind == OpKind::reduce_scatter ? "_reduce_scatter_base"
        : op.kind == OpKind::all_reduce   ? "allreduce"
        : exchange                        ? "all_to_allv"
                                          : "_allgather_base",
        c.count * (scatters ? size : 1), c.count * (gathers ? size : 1), size, trace::torch_name(c.dtype), group,
        group == "0" ? "default_pg" : description(c.group), fmt::join(members, ", "),
        sequence_[static_cast<std::size_t>(c.group)]++);
    const bool told = dialect_.collective_fields && dialect_.vendor != Vendor::nvidia_old;
    const std::int64_t latest = std::max(begin + 200, std::min(end, record.begin_ns - 40));
    host("cpu_op", collective_op(dialect_, op.kind), thread, begin, latest);
    host("cpu_op", "record_param_comms", thread, begin + 20, latest - 20, told ? fields : "");
    host("user_annotation",
         op.kind == OpKind::reduce_scatter ? "nccl:_reduce_scatter_base"
         : op.kind == OpKind::all_reduce   ? "nccl:all_reduce"
         : exchange                        ? "nccl:all_to_all"
                                           : "nccl:_all_gather_base",
         thread, begin + 30, latest - 30);
    CollectiveTruth truth;
    truth.begin_ns = record.begin_ns - shift_ns_;
    truth.stream = stream_of(op);
    truth.step = step_;
    truth.kind = op.kind;
    truth.phase = op.phase;
    truth.unit = op.unit;
    truth.others = op.others;
    truth.prefetch = op.prefetch;
    result_.collectives.push_back(truth);
    launch(dialect_.vendor == Vendor::amd ? "hipExtLaunchKernel" : "cudaLaunchKernelExC", "kernel",
           collective_kernel(dialect_, op.kind, c.dtype), thread, begin + 40, latest - 40, stream_of(op),
           record.begin_ns, record.end_ns, told ? fields : "");
  }

  const testing::SimulatedRun& run_;
  const trace::RankTrace& trace_;
  const Dialect& dialect_;
  std::mt19937_64 random_;
  std::int64_t shift_ns_;
  std::vector<plan::ModuleWork> work_;
  std::vector<std::string> labels_;  // of units
  IntervalSet communicating_;        // filled where computation is slower then
  std::array<std::int64_t, plan::kGroupCount> sequence_{};
  std::int64_t correlation_ = 1000, external_ = 0;
  std::int32_t step_ = 0;
  std::vector<Open> open_;  // the innermost last
  std::int64_t thread_ = kMainThread;
  std::int64_t range_end_ = 0, last_host_ns_ = 0;
  WrittenRank result_;
};

}  // namespace

WrittenRank write_rank(const testing::SimulatedRun& run, std::size_t place, const Dialect& dialect, std::uint64_t seed,
                       std::int64_t shift_ns) {
  return RankStory(run, place, dialect, seed, shift_ns).tell();
}

}  // namespace fsdpbench::foreign::corpus
