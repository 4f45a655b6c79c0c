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

}  // namespace fsdpbench::testing
