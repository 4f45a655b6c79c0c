#include "foreign/other_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace fsdpbench::foreign::corpus {
namespace {

constexpr std::int64_t kOtherPid = 991, kThread = 991, kAutogradThread = 1044, kCompute = 7, kExchange = 26,
                       kReduce = 28;
constexpr int kSteps = 3;

/// Kernels one after another on streams, each launched by a host that runs ahead.
class Program {
 public:
  Program(const CaseSpec& spec, int rank)
      : spec_(spec), random_(spec.seed + static_cast<std::uint64_t>(rank)), text_(facts(spec, rank)) {
    text_.name_process(kOtherPid, "python");
  }

  void begin_step(int number) {
    host_ns_ = std::max(host_ns_, device_ns_) + 20'000;
    step_ = number;
    step_begin_ns_ = host_ns_;
  }
  void end_step() {
    if (spec_.dialect.steps) row("user_annotation", fmt::format("ProfilerStep#{}", step_), step_begin_ns_, device_ns_);
  }
  void range(std::string_view name, std::int64_t begin_ns) { row("user_annotation", name, begin_ns, host_ns_); }
  std::int64_t now() const { return host_ns_; }
  void on_thread(std::int64_t thread) { thread_ = thread; }

  void kernel(std::string_view op, std::string_view name, double us, std::int64_t stream = kCompute,
              std::string_view fields = {}) {
    const std::int64_t begin = host_ns_;
    host_ns_ += 6'000;
    row("cpu_op", op, begin, host_ns_ - 500);
    const std::int64_t id = ++correlation_;
    const bool amd = spec_.dialect.vendor == Vendor::amd;
    text_.slice("cuda_runtime", amd ? "hipExtModuleLaunchKernel" : "cudaLaunchKernel", kOtherPid, thread_,
                begin + 1'000, begin + 4'000, fmt::format("\"External id\": {}, \"correlation\": {}", external_, id));
    const double noise = 1 + 0.02 * static_cast<double>(random_() % 100) / 100;
    const std::int64_t from = std::max(device_ns_, begin + 8'000);
    device_ns_ = from + static_cast<std::int64_t>(us * noise * 1e3);
    text_.arrow(id, kOtherPid, thread_, begin + 1'000, 0, stream, from);
    text_.slice("kernel", name, 0, stream, from, device_ns_,
                fmt::format("\"External id\": {}, \"device\": 0, \"stream\": {}, \"correlation\": {}{}{}", external_,
                            stream, id, fields.empty() ? "" : ", ", fields));
  }

  void product(double us) {
    kernel("aten::mm",
           spec_.dialect.vendor == Vendor::amd ? "Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1_SN"
                                               : "nvjet_hsh_128x128_64x4_1x2_h_bz_coopA_TNT",
           us);
  }

  void collective(std::string_view call, std::string_view name, std::string_view kernel_name, std::int64_t in,
                  std::int64_t out, double us, std::int64_t stream) {
    const std::string fields = fmt::format(
        "\"Collective name\": \"{}\", \"In msg nelems\": {}, \"Out msg nelems\": {}, \"Group size\": {}, \"dtype\": "
        "\"BFloat16\", \"Process Group Name\": \"0\", \"Process Group Description\": \"default_pg\", \"Seq\": {}",
        name, in, out, spec_.config.mesh.ranks, sequence_++);
    const std::int64_t begin = host_ns_;
    row("cpu_op", "record_param_comms", begin + 100, begin + 5'400, spec_.dialect.collective_fields ? fields : "");
    kernel(
        call,
        spec_.dialect.vendor == Vendor::amd ? "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)" : kernel_name,
        us, stream, spec_.dialect.collective_fields ? fields : "");
  }

  KinetoText take() { return std::move(text_); }

 private:
  static KinetoText::Facts facts(const CaseSpec& spec, int rank) {
    KinetoText::Facts facts;
    facts.rank = rank;
    facts.world = static_cast<int>(spec.config.mesh.ranks);
    facts.device_model = spec.dialect.vendor == Vendor::amd ? "AMD Instinct MI300X" : "NVIDIA H200";
    std::vector<int> all;
    for (int r = 0; r < facts.world; ++r) all.push_back(r);
    facts.groups = {{"0", "default_pg", all}};
    return facts;
  }
  void row(std::string_view category, std::string_view name, std::int64_t begin, std::int64_t end,
           std::string_view args = {}) {
    ++external_;
    text_.slice(category, name, kOtherPid, thread_, begin, end,
                fmt::format("\"External id\": {}{}{}", external_, args.empty() ? "" : ", ", args));
  }

  const CaseSpec& spec_;
  std::mt19937_64 random_;
  KinetoText text_;
  std::int64_t host_ns_ = 1'000'000, device_ns_ = 1'000'000, step_begin_ns_ = 0, thread_ = kThread;
  std::int64_t correlation_ = 50, external_ = 0, sequence_ = 0;
  int step_ = 0;
};

constexpr std::string_view kNorm =
    "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, float, int, int)";
constexpr std::string_view kSendReceive = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";

}  // namespace

KinetoText write_inference(const CaseSpec& spec, int rank) {
  Program program(spec, rank);
  const bool large = spec.seed % 2 == 0;
  for (int step = 0; step < kSteps; ++step) {
    program.begin_step(step);
    const std::int64_t begin = program.now();
    for (std::int64_t layer = 0; layer < spec.config.model.layers; ++layer) {
      for (const bool attention : {true, false}) {
        program.kernel("_C::fused_add_rms_norm", kNorm, 6);
        program.product(35);
        if (attention) {
          program.kernel(
              "vllm::unified_attention_with_output",
              "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4> >(Flash_fwd_params)", 22);
        }
        program.product(30);
        if (large) {
          program.collective("c10d::allreduce_", "allreduce",
                             "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1 << 22,
                             1 << 22, 40, kExchange);
        } else {
          program.kernel(
              "_C_custom_ar::all_reduce",
              "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, int)", 9);
        }
      }
    }
    program.range("execute_model", begin);
    program.end_step();
  }
  return program.take();
}

KinetoText write_experts(const CaseSpec& spec, int rank) {
  Program program(spec, rank);
  constexpr std::int64_t kTokens = 4096 * 1024;
  const auto exchange = [&] {
    program.collective("c10d::alltoall_base_", "all_to_allv", kSendReceive, kTokens, kTokens, 180, kExchange);
  };
  for (int step = 0; step < kSteps; ++step) {
    program.begin_step(step);
    const std::int64_t begin = program.now();
    program.on_thread(kThread);
    for (std::int64_t layer = 0; layer < spec.config.model.layers; ++layer) {
      program.product(120);
      program.kernel("aten::topk", "void at::native::sbtopk::gatherTopK<c10::BFloat16, unsigned int, 2, false>(float)",
                     12);
      exchange();
      program.product(260);
      exchange();
    }
    program.range("DistributedDataParallel.forward", begin);
    program.on_thread(kAutogradThread);
    for (std::int64_t layer = spec.config.model.layers; layer-- > 0;) {
      exchange();
      program.product(500);
      exchange();
      program.product(240);
      program.collective("c10d::allreduce_", "allreduce",
                         "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 25 << 18,
                         25 << 18, 150, kReduce);
    }
    program.on_thread(kThread);
    program.kernel(
        "aten::_fused_adamw_",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4> >(int)", 90);
    program.end_step();
  }
  return program.take();
}

}  // namespace fsdpbench::foreign::corpus
