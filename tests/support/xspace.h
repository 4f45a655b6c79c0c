#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fsdpbench::testing {

// Messages of protobuf, written field by field.
inline std::string wire_number(std::uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7U) bytes += static_cast<char>((value & 127U) | 128U);
  return bytes + static_cast<char>(value);
}
inline std::string wire(std::uint32_t field, std::uint64_t value) {
  return wire_number(field << 3U) + wire_number(value);
}
inline std::string wire(std::uint32_t field, const std::string& bytes) {
  return wire_number(field << 3U | 2U) + wire_number(bytes.size()) + bytes;
}

/// An xplane.pb as jax.profiler writes it, a row at a time.
class XSpace {
 public:
  using Stats = std::vector<std::pair<std::string, std::variant<std::string, std::int64_t>>>;

  XSpace& row(const std::string& plane, const std::string& line, const std::string& name, std::int64_t begin_ns,
              std::int64_t length_ns, const Stats& stats = {}) {
    Plane& own = planes_[plane];
    constexpr std::uint64_t kPico = 1000;
    std::string event = wire(1, number(own.events, name)) + wire(2, static_cast<std::uint64_t>(begin_ns) * kPico) +
                        wire(3, static_cast<std::uint64_t>(length_ns) * kPico);
    for (const auto& [key, value] : stats) {
      const auto* text = std::get_if<std::string>(&value);
      event +=
          wire(4, wire(1, number(own.stats, key)) +
                      (text != nullptr ? wire(5, *text) : wire(4, static_cast<std::uint64_t>(std::get<1>(value)))));
    }
    own.lines[line] += wire(4, event);
    return *this;
  }
  /// An HloModuleProto that ran.
  XSpace& module(const std::string& name, const std::string& proto) {
    Plane& own = planes_["/host:metadata"];
    own.extra +=
        wire(4, wire(1, 7) + wire(2, wire(1, 7) + wire(2, name) +
                                         wire(5, wire(1, number(own.stats, "Hlo Proto")) + wire(6, wire(1, proto)))));
    return *this;
  }

  XSpace& stat(const std::string& plane, const std::string& key, const std::string& value) {
    Plane& own = planes_[plane];
    own.extra += wire(6, wire(1, number(own.stats, key)) + wire(5, value));
    return *this;
  }

  std::string bytes() const {
    std::string space;
    for (const auto& [name, plane] : planes_) {
      std::string text = wire(2, name) + plane.extra;
      for (const auto& [line, events] : plane.lines) text += wire(3, wire(2, line) + events);
      for (const auto& [event, id] : plane.events) text += wire(4, wire(1, id) + wire(2, wire(1, id) + wire(2, event)));
      for (const auto& [stat, id] : plane.stats) text += wire(5, wire(1, id) + wire(2, wire(1, id) + wire(2, stat)));
      space += wire(1, text);
    }
    return space;
  }

 private:
  struct Plane {
    std::map<std::string, std::string> lines;
    std::map<std::string, std::uint64_t> events, stats;
    std::string extra;
  };
  static std::uint64_t number(std::map<std::string, std::uint64_t>& names, const std::string& name) {
    return names.try_emplace(name, names.size() + 1).first->second;
  }
  std::map<std::string, Plane> planes_;
};

/// A training step on a GPU: a gather and a reduction of a weight of 4096 x 4096 on `stream`, products on stream 7.
inline XSpace gpu_step(const std::string& stream, int steps = 3) {
  XSpace space;
  const std::string gpu = "/device:GPU:0", host = "/host:CPU";
  std::int64_t correlation = 0, at = 10'000;
  for (int step = 0; step < steps; ++step) {
    const auto kernel = [&](const std::string& line, const std::string& name, const std::string& op,
                            const std::string& path, std::int64_t begin, std::int64_t length) {
      ++correlation;
      space.row(host, "Host Threads/7", "cuLaunchKernelEx", at + 10 * correlation % 90, 5,
                {{"correlation_id", correlation}});
      space.row(gpu, line, name, at + begin, length,
                {{"correlation_id", correlation}, {"hlo_op", op}, {"hlo_module", "jit_train"}, {"name", path}});
    };
    space.row(host, "python", "train", at - 50, 30, {{"step_num", std::int64_t{40 + step}}});
    kernel("Stream #" + stream + "(Compute)", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
           "all-gather-start.4", "jit(train)/jvp()/dot_general", 100, 300);
    kernel("Stream #7(Compute)", "gemm_fusion_dot_1", "gemm_fusion_dot.1", "jit(train)/jvp()/dot_general", 400, 500);
    kernel("Stream #7(Compute)", "gemm_fusion_dot_2", "gemm_fusion_dot.2", "jit(train)/transpose(jvp())/dot_general",
           900, 800);
    kernel("Stream #" + stream + "(Compute)",
           "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce-scatter-start",
           "jit(train)/transpose(jvp())/dot_general", 1700, 200);
    kernel("Stream #7(Compute)", "loop_add_fusion", "loop_add_fusion.3", "jit(train)/sub", 1900, 50);
    at += 2000;
  }
  return space;
}

/// A step of 16.28 ms on the stream of products, 2.15 of them collectives that `jaxlib` made synchronous; another
/// gather has a stream of its own. Its module says what they move.
inline XSpace synchronous_step(const std::string& jaxlib) {
  constexpr std::uint64_t kBf16 = 16, kTuple = 13;
  const auto shape = [&](std::uint64_t rows) { return wire(2, kBf16) + wire(3, rows) + wire(3, 4096); };
  const auto instruction = [](std::uint64_t id, const std::string& name, const std::string& opcode,
                              const std::string& of, std::uint64_t operand, const std::string& more = {}) {
    return wire(2, wire(1, name) + wire(2, opcode) + wire(3, of) + wire(35, id) +
                       (operand > 0 ? wire(36, operand) : "") + more);
  };
  const std::string groups = wire(92, wire(1, 1) + wire(2, 8) + wire(3, 8));
  const std::string sync = wire(43, std::string("{\"collective_backend_config\":{\"is_sync\":true}}"));
  const auto tuple = [&](std::uint64_t from, std::uint64_t to) {
    return wire(2, kTuple) + wire(4, shape(from)) + wire(4, shape(to));
  };
  const std::string module =
      wire(1, std::string("jit_train")) + wire(6, 1) +
      wire(3, wire(1, std::string("wrapped")) + wire(5, 2) + wire(6, 21) +
                  instruction(20, "whole", "parameter", shape(4096), 0) +
                  instruction(21, "reduce-scatter.7", "reduce-scatter", shape(512), 20, groups)) +
      wire(3, wire(1, std::string("main")) + wire(5, 1) + wire(6, 16) +
                  instruction(10, "norm", "parameter", shape(64), 0) +
                  instruction(11, "up", "parameter", shape(512), 0) +
                  instruction(12, "all-gather-start.4", "all-gather-start", tuple(64, 512), 10, groups + sync) +
                  instruction(13, "all-gather-done.4", "all-gather-done", shape(512), 12) +
                  instruction(14, "all-gather-start.5", "all-gather-start", tuple(512, 4096), 11, groups) +
                  instruction(15, "all-gather-done.5", "all-gather-done", shape(4096), 14) +
                  instruction(16, "reduce-scatter-start", "async-start", tuple(4096, 512), 15, wire(38, 2) + sync));
  XSpace space;
  space.module("jit_train", module);
  if (!jaxlib.empty()) space.stat("/host:metadata", "jaxlib_version", jaxlib);
  std::int64_t correlation = 0, at = 1'000'000;
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto kernel = [&](const std::string& stream, const std::string& name, const std::string& op,
                            const std::string& path, std::int64_t begin, std::int64_t length) {
      ++correlation;
      space.row("/host:CPU", "Host Threads/7", "cuLaunchKernelEx", at - 300'000 + 10'000 * (correlation - 5 * step),
                5'000, {{"correlation_id", correlation}});
      space.row(
          "/device:GPU:0", "Stream #" + stream + "(Compute)", name, at + begin, length,
          {{"correlation_id", correlation}, {"hlo_op", op}, {"hlo_module", std::string("jit_train")}, {"name", path}});
    };
    const std::string forward = "jit(train)/jvp()/while/body/dot_general";
    const std::string backward = "jit(train)/transpose(jvp())/while/body/dot_general";
    const std::string gather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    space.row("/host:CPU", "python", "train", at - 400'000, 80'000, {{"step_num", 40 + step}});
    kernel("7", gather, "all-gather-start.4", forward, 0, 1'450'000);
    kernel("20", gather, "all-gather-start.5", forward, 1'500'000, 910'000);
    kernel("7", "gemm_fusion_dot_1", "gemm_fusion_dot.1", forward, 1'450'000, 4'700'000);
    kernel("7", "gemm_fusion_dot_2", "gemm_fusion_dot.2", backward, 6'150'000, 9'430'000);
    kernel("7", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
           "reduce-scatter-start", backward, 15'580'000, 700'000);
    at += 16'720'000;
  }
  return space;
}

}  // namespace fsdpbench::testing
