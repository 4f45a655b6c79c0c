#include "config/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/lane.h"
#include "config/presets.h"

namespace fsdpbench::config {
namespace {

/// Checks of a single value, whatever the other keys say.
template <class T>
struct Valid {
  std::string text;
  std::function<bool(const T&)> accepts;
};

template <class T>
Valid<T> anything(std::string text) {
  return {std::move(text), [](const T&) { return true; }};
}

Valid<bool> boolean() { return anything<bool>("true or false"); }

template <class T = std::int64_t>
Valid<T> integer(std::int64_t low, std::int64_t high) {
  return {fmt::format("an integer from {} to {}", low, high),
          [=](const T& v) { return std::cmp_greater_equal(v, low) && std::cmp_less_equal(v, high); }};
}

Valid<double> number(double low, double high) {
  return {fmt::format("a number from {} to {}", low, high), [=](const double& v) { return v >= low && v <= high; }};
}

Valid<double> fraction() {
  return {"a number from 0 to below 1", [](const double& v) { return v >= 0 && v < 1; }};
}

Valid<std::optional<double>> number_or_none(double low, double high) {
  const Valid<double> given = number(low, high);
  return {given.text + ", or \"none\"", [=](const std::optional<double>& v) { return !v || given.accepts(*v); }};
}

// A value far beyond any machine is a slip of the keyboard; one that a float cannot hold would be another number in the
// kernels; and with these bounds no time of one op overflows (base/clock.h).
constexpr double kMost_us = 1e9;  // a quarter of an hour
constexpr double kMostFactor = 1e6;
constexpr double kLeastRate = 1e-6, kMostRate = 1e6;  // GB/s and TFLOP/s
constexpr double kLeastFloat = 1e-30, kMostFloat = 1e38;
constexpr int kMostUnits = 1 << 16;  // more than a model has
constexpr std::int64_t kMostElements = std::int64_t{1} << 60;

template <NamedEnum Enum>
Valid<Enum> one_of() {
  return anything<Enum>(fmt::format("\"{}\"", fmt::join(kNames<Enum>, "\", \"")));
}

/// The modes of both directions, and those of one of them, by name.
Valid<Prefetch> prefetch(std::string_view own_names, std::vector<Prefetch::Mode> modes) {
  using Mode = Prefetch::Mode;
  constexpr std::string_view kNames =
      "a depth from 1 to 65536 (2 or \"explicit:2\"), \"ahead:1\", "
      "\"window:500000000\" or \"rate:50000000\" (elements)";
  modes.insert(modes.end(), {Mode::none, Mode::explicit_, Mode::ahead, Mode::window, Mode::rate});
  return {fmt::format("\"none\", {}, {}", own_names, kNames), [modes](const Prefetch& v) {
            return std::ranges::count(modes, v.mode) > 0 && v.depth <= kMostUnits && v.elements <= kMostElements;
          }};
}

/// Which frameworks are known is a matter of the cluster: efficiency_used() (config/accuracy.h) checks it.
Valid<Efficiency> efficiency() {
  const Valid<double> given = number(1e-3, 2);
  return {given.text + R"(, "auto", "measured", or a framework of docs/published.md, as "torchtitan")",
          [=](const Efficiency& v) {
            const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
            return v.of.empty() ? given.accepts(v.value) : std::ranges::all_of(v.of, in_name);
          }};
}

/// The fields of one table of the configuration.
template <class Section>
class Table {
 public:
  Table(std::vector<Field>& all, std::string name, Section RunConfig::*section)
      : all_(all), name_(std::move(name)), section_(section) {}

  template <class T>
  void operator()(std::string key, T Section::*member, Valid<T> valid, std::string meaning) {
    const auto section = section_;
    auto read = [=, takes = std::move(valid.accepts)](RunConfig& config, const Value& value) {
      T decoded{};
      if (!decode(value, decoded) || !takes(decoded)) return false;
      config.*section.*member = std::move(decoded);
      return true;
    };
    auto write = [=](const RunConfig& config) { return encode(config.*section.*member); };
    all_.push_back({name_, std::move(key), std::move(valid.text), std::move(meaning), read, write});
  }

 private:
  std::vector<Field>& all_;
  std::string name_;
  Section RunConfig::*section_;
};

// clang-format off
std::vector<Field> make_fields() {
  using P = Prefetch::Mode;
  std::vector<Field> all;

  Table<Model> model(all, "model", &RunConfig::model);
  model("preset", &Model::preset, anything<std::string>("a file stem under profiles/models, or a path that ends in .toml"), "the model file whose keys are the defaults of this table");
  model("kind", &Model::kind, one_of<ModelKind>(), "decoder: Llama-style transformer; mlp: linear layers with a squared error");
  model("layers", &Model::layers, integer(1, 4096), "decoder blocks, or linear layers of the mlp");
  model("width", &Model::width, integer(1, 1 << 20), "decoder: residual width; mlp: hidden width");
  model("heads", &Model::heads, integer(1, 4096), "decoder: query heads");
  model("kv_heads", &Model::kv_heads, integer(1, 4096), "decoder: key/value heads; divides heads");
  model("ffn_width", &Model::ffn_width, integer(1, 1 << 22), "decoder: inner width of the feed-forward, or of each expert");
  model("vocab", &Model::vocab, integer(2, 1 << 24), "decoder: tokens; 256 or more, since the data are bytes");
  model("tied_head", &Model::tied_head, boolean(), "decoder: the output head shares the embedding's weight");
  model("fused_projections", &Model::fused_projections, boolean(), "decoder: queries, keys and values are one parameter and one matrix product, gate and up another (Phi-3, Megatron, vLLM); simulated only");
  model("rope_theta", &Model::rope_theta, number(1e-3, 1e12), "decoder: base of the rotary embedding");
  model("norm_epsilon", &Model::norm_epsilon, number(kLeastFloat, 1), "decoder: epsilon of the norms");
  model("in_features", &Model::in_features, integer(1, 1 << 20), "mlp: inputs per sample");
  model("out_features", &Model::out_features, integer(1, 1 << 20), "mlp: outputs per sample");
  model("head_dim", &Model::head_dim, integer(0, 4096), "decoder: size of a head; 0: width / heads; others are simulated only");
  model("feed_forward", &Model::feed_forward, one_of<FeedForward>(), "decoder: gated: SwiGLU; plain: two matrices with a GELU between them, simulated only");
  model("norm", &Model::norm, one_of<Norm>(), "decoder: rms: RMSNorm; layer: LayerNorm with bias, simulated only");
  model("bias", &Model::bias, boolean(), "decoder: linear maps of blocks have biases, simulated only");
  model("learned_positions", &Model::learned_positions, integer(0, 1 << 24), "decoder: rows of a learned table of positions, simulated only; 0: rotary");
  model("qk_norm", &Model::qk_norm, boolean(), "decoder: queries and keys are normed head by head (Qwen3), simulated only");
  model("attention_sinks", &Model::attention_sinks, boolean(), "decoder: a learned logit per head beside its scores (GPT-OSS), simulated only");
  model("attention_window", &Model::attention_window, integer(0, 1 << 24), "decoder: tokens that a token attends to, itself and those before it, simulated only; 0: all");
  model("full_attention_every", &Model::full_attention_every, integer(0, 4096), "decoder: every Nth block attends to all tokens in spite of attention_window; 0: none does");
  model("experts", &Model::experts, integer(0, 4096), "decoder: experts per block, simulated only; 0: one feed-forward for all tokens");
  model("active_experts", &Model::active_experts, integer(0, 4096), "decoder: experts that each token visits");
  model("shared_experts", &Model::shared_experts, integer(0, 256), "model.experts: experts that every token visits besides, as one of so many times their width (DeepSeek-V3, Llama 4); 0: none");

  model("trainable", &Model::trainable, anything<Trainable>("\"all\", or \"blocks:FIRST-LAST\""), "whose parameters train: all; or those of these blocks (mlp: linear layers), counted from 0: then all others, embedding and head are frozen");
  model("lora_rank", &Model::lora_rank, integer(0, 1 << 16), "decoder: low-rank adapters of this rank (LoRA) beside every matrix product of the trainable blocks: only these train; 0: no adapters");
  model("lora_alpha", &Model::lora_alpha, number(kLeastFloat, 1e6), "model.lora_rank: what an adapter adds is multiplied by lora_alpha / lora_rank");

  Table<Data> data(all, "data", &RunConfig::data);
  data("path", &Data::path, anything<std::string>("the path of a file or folder as a string"), "text to train on, read as bytes; empty: this project's own sources and docs, or where they are not installed, its profiles");

  Table<Mesh> mesh(all, "mesh", &RunConfig::mesh);
  mesh("ranks", &Mesh::ranks, integer(1, 1 << 20), "number of ranks");
  mesh("shard", &Mesh::shard, integer(0, 1 << 20), "ranks that split one unit; 0: follows from the strategy");
  mesh("replicate", &Mesh::replicate, integer(0, 1 << 20), "groups that hold equal shards; 0: ranks / shard / tensor");
  mesh("tensor", &Mesh::tensor, integer(1, 4096), "decoder: neighbouring ranks that split each layer (tensor parallelism), by heads, feed-forward width and vocabulary");
  mesh("sequence_parallel", &Mesh::sequence_parallel, boolean(), "mesh.tensor above 1: each of these ranks has a part of the tokens in norms, residuals and kept activations (Megatron's sequence parallelism)");
  mesh("context", &Mesh::context, integer(1, 4096), "decoder: neighbours of a shard group that split the sequences of their samples (context parallelism), and exchange keys and values for attention; simulated only");
  mesh("expert", &Mesh::expert, integer(1, 4096), "decoder: neighbours of a shard group that split the experts of each block (expert parallelism); each expert's parameters are then sharded over mesh.shard / mesh.expert ranks");
  mesh("expert_imbalance", &Mesh::expert_imbalance, number(1, 4096), "mesh.expert above 1: rows that come to the busiest of these ranks, over the mean; every rank is taken to be as busy as that one");
  mesh("expert_sync", &Mesh::expert_sync, boolean(), "mesh.expert above 1: the host waits until it knows how many rows go to each rank, as torchtitan does; false: the device knows, or room is fixed (DeepEP)");
  mesh("expert_rows", &Mesh::expert_rows, one_of<ExpertRows>(), "mesh.expert above 1: rows that are sent for a token: one to each expert that it visits (an all-to-all); one to each rank that has any of them, where one kernel puts them in order (DeepEP), by routers that choose experts independently; the same where all experts of a token are on one rank (balanced stand-ins for routers)");

  Table<Train> train(all, "train", &RunConfig::train);
  train("steps", &Train::steps, integer(1, 1'000'000), "measured optimizer steps, after the warm-up");
  train("warmup", &Train::warmup, integer(0, 1'000'000), "steps that train but are left out of the timing");
  train("seq_len", &Train::seq_len, integer(1, 1 << 24), "decoder: tokens per sequence");
  train("batch_per_rank", &Train::batch_per_rank, integer(1, 1 << 20), "sequences (mlp: samples) per rank and microbatch");
  train("batch_global", &Train::batch_global, integer(0, std::int64_t{1} << 40), "sequences (mlp: samples) per optimizer step over all ranks and microbatches; batch_per_rank follows from it; 0: batch_per_rank counts");
  train("accumulate", &Train::accumulate, integer(1, 1 << 16), "microbatches per optimizer step");
  train("accumulate_mode", &Train::accumulate_mode, one_of<AccumulateMode>(), "when the gradients of microbatches are reduced; reduce_scatter_only is for hybrid");
  train("seed", &Train::seed, integer<std::uint64_t>(0, std::numeric_limits<std::int64_t>::max()), "seed of the initial parameters");
  train("optimizer", &Train::optimizer, one_of<Optimizer>(), "the optimizer; its state is sharded like the parameters");
  train("learning_rate", &Train::learning_rate, number(kLeastFloat, kMostFloat), "learning rate, constant over the run");
  train("beta1", &Train::beta1, fraction(), "adamw: decay of the first moment");
  train("beta2", &Train::beta2, fraction(), "adamw: decay of the second moment");
  train("epsilon", &Train::epsilon, number(kLeastFloat, kMostFloat), "adamw: added to the root of the second moment");
  train("weight_decay", &Train::weight_decay, number(0, kMostFloat), "weight decay; adamw: decoupled from the gradient");
  train("clip_norm", &Train::clip_norm, number(0, kMostFloat), "limit of the global gradient norm; 0: no clipping");
  train("params_digest", &Train::params_digest, boolean(), "rank 0 gathers and hashes the final parameters; false: no hash, for runs that are only timed");

  Table<Fsdp> fsdp(all, "fsdp", &RunConfig::fsdp);
  fsdp("preset", &Fsdp::preset, {fmt::format("\"{}\"", fmt::join(fsdp_preset_names(), "\", \"")), [](const std::string& v) { return std::ranges::count(fsdp_preset_names(), v) > 0; }}, "the engine whose settings are the defaults of this table (docs/engines.md)");
  fsdp("strategy", &Fsdp::strategy, one_of<Strategy>(), "what is sharded, and when it is gathered");
  fsdp("layout", &Fsdp::layout, one_of<Layout>(), "flat: a unit's parameters concatenated (FSDP1); per_param: rows of each (FSDP2)");
  fsdp("reshard_after_forward", &Fsdp::reshard_after_forward, anything<ReshardAfterForward>("\"auto\", true, false, or an integer that divides the shard group"), "free gathered units after forward; auto: the strategy's rule, root kept; an integer: keep them split over groups of N ranks");
  fsdp("reshard_after_backward", &Fsdp::reshard_after_backward, boolean(), "false: units stay gathered between accumulated microbatches");
  fsdp("keep_unreduced", &Fsdp::keep_unreduced, boolean(), "true: units that are not freed after forward stay gathered after a microbatch that reduces nothing (FSDP1's no_sync); false: reshard_after_backward alone decides");
  fsdp("wait_each_backward", &Fsdp::wait_each_backward, boolean(), "true: computation waits for all reductions at the end of each microbatch's backward; false: only at the end of the step (FSDP2's set_is_last_backward)");
  fsdp("gradients_after_views", &Fsdp::gradients_after_views, boolean(), "true: a unit is freed and reduced when backward is past everything computed since its gather was issued in forward, so a prefetched unit later (FSDP1, whose gather makes the views that autograd differentiates); false: after its own backward");
  fsdp("forward_prefetch", &Fsdp::forward_prefetch, prefetch("\"implicit\"", {P::implicit}), "when the next unit's all-gather is issued in forward (docs/prefetch-depth.md)");
  fsdp("learn_execution_order", &Fsdp::learn_execution_order, boolean(), "true: the first step learns the order of units, so forward prefetching to a depth starts with the second (FSDP1); false: the order is given (FSDP2)");
  fsdp("backward_prefetch", &Fsdp::backward_prefetch, prefetch("\"post\", \"pre\"", {P::post, P::pre}), "when the next unit's all-gather is issued in backward (docs/prefetch-depth.md)");
  fsdp("all_gather_limit", &Fsdp::all_gather_limit, {"\"unlimited\", \"fsdp1_queue:L\" (L up to 1024), \"fsdp2_event\", an integer N or \"strict:N\" (N up to 65536), \"bytes:64MiB\", \"buffers:N\", or \"fetched:N\"", [](const AllGatherLimit& v) { return v.count <= (v.mode == AllGatherLimit::Mode::fsdp1_queue ? 1024 : kMostUnits); }}, "how far gathers may run ahead of computation");
  fsdp("reduce_scatter_buffers", &Fsdp::reduce_scatter_buffers, integer<int>(0, 1 << 16), "reduce-scatter inputs alive at a time; 0: no limit");
  fsdp("separate_reduce_scatter_comm", &Fsdp::separate_reduce_scatter_comm, boolean(), "own communicator for reduce-scatter, so that it need not queue behind all-gathers");
  fsdp("wrap", &Fsdp::wrap, {"\"block\", \"blocks:K\" (K up to 65536), \"size:PARAMETERS\" (up to 2^60), or \"model\"", [](const Wrap& v) { return v.blocks <= kMostUnits && v.parameters <= kMostElements; }}, "which modules make a unit");
  fsdp("param_dtype", &Fsdp::param_dtype, one_of<DType>(), "dtype of gathers and computation");
  fsdp("reduce_dtype", &Fsdp::reduce_dtype, one_of<DType>(), "dtype of gradient reductions on the wire; sums are in state_dtype");
  fsdp("state_dtype", &Fsdp::state_dtype, one_of<DType>(), "dtype of master parameters, optimizer moments and reduced gradients; simulated only unless fp32 (bf16: pure bf16 training)");
  fsdp("gradient_scaling", &Fsdp::gradient_scaling, one_of<GradientScaling>(), "how a sum over ranks becomes the mean");
  fsdp("activation_checkpointing", &Fsdp::activation_checkpointing, boolean(), "keep only each block's input, recompute the rest in backward");
  fsdp("checkpoint_every", &Fsdp::checkpoint_every, integer(1, 4096), "activation_checkpointing: only of every Nth block, from the first");
  fsdp("recompute_share", &Fsdp::recompute_share, number(1e-3, 1), "activation_checkpointing: share of a block's forward that is recomputed; the rest of its activations is kept (selective checkpointing); below 1 simulated only");
  fsdp("checkpoint_keeps", &Fsdp::checkpoint_keeps, one_of<CheckpointKeeps>(), "activation_checkpointing: outputs that are not computed again (selective checkpointing by operator): attention's; those and of every second matrix product, from the first (torchtitan's op); those and of all products, but none of experts and routers; or all but what the feed-forward saves, or attention: these alone are computed again (Megatron's recompute modules mlp and moe, core_attn); simulated only unless nothing");
  fsdp("checkpoint_reentrant", &Fsdp::checkpoint_reentrant, boolean(), "activation_checkpointing: a recomputation runs the hooks of forward again, which gather what fsdp.forward_prefetch = N names although it has been used (FSDP2 in torch.utils.checkpoint with use_reentrant=True, around the wrapped block)");
  fsdp("expert_unit", &Fsdp::expert_unit, one_of<ExpertUnit>(), "mesh.expert above 1: the experts of a block are: group: a second parameter group of the block's module (torchtitan); bucket: the same, reduced as soon as their own gradients are complete (Megatron-FSDP, DeepSpeed); module: a module inside it, gathered and freed at hooks around the exchanges of rows; ordered_module: a module with hooks around its computation alone, which prefetches count like a block (Megatron-FSDP's rewrite)");
  fsdp("recompute_frees", &Fsdp::recompute_frees, boolean(), "expert_unit = module with activation_checkpointing: experts are freed and noted as used once more when their recomputation is over, as in PyTorch before pytorch#164009; their backward gathers them again");
  fsdp("fp8_products", &Fsdp::fp8_products, boolean(), "matrix products of blocks in fp8 with scaling, everything else in param_dtype; simulated only");
  fsdp("fp8_recipe", &Fsdp::fp8_recipe, one_of<Fp8Recipe>(), "fp8_products: what a scale is of: the tensor, known from steps before; the tensor, after a pass for its largest number (torchao's tensorwise); each row (rowwise); 32 neighbours (MXFP8)");
  fsdp("shard_threshold", &Fsdp::shard_threshold, integer(0, kMostElements), "parameters of fewer elements stay replicated");
  fsdp("max_live_parameters", &Fsdp::max_live_parameters, integer(0, kMostElements), "with \"rate\" prefetching: none is begun while so many elements are gathered; 0: no limit");
  fsdp("max_reuse_distance", &Fsdp::max_reuse_distance, integer(0, kMostElements), "a unit is kept if it is used again before units of this many elements are used");
  fsdp("persistence_threshold", &Fsdp::persistence_threshold, integer(0, kMostElements), "units of fewer elements stay gathered; after the optimizer one gather brings them all");
  fsdp("gathers_ascend", &Fsdp::gathers_ascend, boolean(), "what one hook gathers is issued from the first unit to the last, in backward too");
  fsdp("gathers_follow_compute", &Fsdp::gathers_follow_compute, boolean(), "a gather starts after all computation that was issued before it");
  fsdp("root_prefetches_forward", &Fsdp::root_prefetches_forward, boolean(), "false: the root has no list of modules to prefetch in forward, so the first unit is gathered on demand; says something where forward_prefetch is a depth");
  fsdp("root_prefetches_backward", &Fsdp::root_prefetches_backward, boolean(), "false: the first gather of backward is on demand");
  fsdp("free_lane", &Fsdp::free_lane, one_of<FreeLane>(), "the lane on which gathered parameters are freed; all_gather: no later gather starts before their use is over");
  fsdp("reduce_bucket", &Fsdp::reduce_bucket, integer(0, kMostElements), "gradients of so many elements are reduced together, as soon as the next does not fit; 0: unit by unit");
  fsdp("reduce_by", &Fsdp::reduce_by, one_of<ReduceBy>(), "all_reduce: the whole gradient is reduced on all ranks, and each keeps its part");
  fsdp("reduce_lane", &Fsdp::reduce_lane, one_of<ReduceLane>(), "where gradients are reduced: beside everything, in line with gathers, or in line with computation");
  fsdp("reduce_lag", &Fsdp::reduce_lag, integer<int>(0, kMostUnits), "a unit's reduction is issued N units later, after their gathers; 65536: after backward");
  fsdp("reductions_in_flight", &Fsdp::reductions_in_flight, integer<int>(0, kMostUnits), "reduce_bucket: the host waits for the oldest of more reductions; 0: it never does");
  fsdp("reduce_scatter_elements", &Fsdp::reduce_scatter_elements, integer(0, kMostElements), "elements of reduce-scatter inputs alive at a time, at least two mean units; 0: as reduce_scatter_buffers says");
  fsdp("gradient_copy_in", &Fsdp::gradient_copy_in, boolean(), "layout flat: gradients are copied to the reduce-scatter's input rather than reduced in place");
  fsdp("head_unit", &Fsdp::head_unit, boolean(), "final norm and head are the last unit instead of parts of the root");
  fsdp("gradient_divide_factor", &Fsdp::gradient_divide_factor, number(0, kMostFactor), "what sums of gradients over ranks are divided by; 0: the number of ranks, which gives the mean");
  fsdp("host_sync_at_group_shard", &Fsdp::host_sync_at_group_shard, boolean(), "reshard_after_forward = n: the host waits until the group's part is kept, before the unit is freed");
  fsdp("keep_group_shard", &Fsdp::keep_group_shard, boolean(), "reshard_after_forward = n: the group's part is kept to the end of the step, so that later microbatches need not copy it again; false: until the unit's backward");
  fsdp("cpu_offload", &Fsdp::cpu_offload, one_of<CpuOffload>(), "which sharded state is in host memory: optimizer: masters, moments, gradients and the update (ZeRO-Offload); all: shards too, copied to the device before each gather (CPUOffloadPolicy)");
  fsdp("cast_in_optimizer", &Fsdp::cast_in_optimizer, boolean(), "the optimizer's update also writes the shard in param_dtype, which stays in memory: gathers read it and cast nothing");
  fsdp("fp32_gradients", &Fsdp::fp32_gradients, boolean(), "backward writes parameters' gradients in fp32 rather than in param_dtype, so that nothing is rounded before it is added or reduced (Megatron's main gradients)");

  Table<Device> device(all, "device", &RunConfig::device);
  device("backend", &Device::backend, one_of<BackendKind>(), "where ranks run: cpu: threads or processes; cuda: NVIDIA GPUs with NCCL; virtual: nowhere, on a computed clock (simulate)");
  device("timer", &Device::timer, one_of<Timer>(), "cuda: the source of op times; auto: CUPTI where it can be used, otherwise events");
  device("deterministic", &Device::deterministic, boolean(), "cuda: the same bits in every run, and therefore a digest of the parameters; false, as in PyTorch: attention's backward adds in any order, which is faster");
  device("monitor", &Device::monitor, boolean(), "cuda: NVML samples each GPU's clocks, power and errors every 20 ms; false: they are not sampled");

  Table<Nccl> nccl(all, "nccl", &RunConfig::nccl);
  nccl("register_buffers", &Nccl::register_buffers, one_of<NcclRegister>(), "cuda: none; local: ncclCommRegister; window: ncclMemAlloc and symmetric windows");
  nccl("cta_policy", &Nccl::cta_policy, one_of<CtaPolicy>(), "cuda: NCCL's CTA policy; zero asks for copy engines instead of SMs, where NCCL can, and needs register_buffers = window");
  nccl("max_ctas", &Nccl::max_ctas, integer<int>(0, 64), "cuda: most CTAs of an NCCL kernel; 0: NCCL's choice");
  nccl("blocking", &Nccl::blocking, boolean(), "cuda: NCCL's calls return when they are done, without a thread of NCCL's own for each; a rank that waits inside one for a peer that has failed can then only be ended");
  nccl("timeout_s", &Nccl::timeout_s, number(1e-3, 1e6), "cuda: seconds; an op that takes longer ends the run on all ranks");

  Table<Emulate> emulate(all, "emulate", &RunConfig::emulate);
  emulate("link_gb_per_s", &Emulate::link_gb_per_s, number_or_none(kLeastRate, kMostRate), "bandwidth of a modelled link in 1e9 bytes/s per rank; none: the real transfer time");
  emulate("link_latency_us", &Emulate::link_latency_us, number(0, kMost_us), "latency per hop of the modelled link");
  emulate("compute_tflops", &Emulate::compute_tflops, number_or_none(kLeastRate, kMostRate), "modelled compute in 1e12 FLOP/s per rank, nothing is computed; none: kernels compute");
  emulate("pcie_gb_per_s", &Emulate::pcie_gb_per_s, number_or_none(kLeastRate, kMostRate), "fsdp.cpu_offload: bandwidth of a modelled PCIe in 1e9 bytes/s per rank and direction; none: the real copy time");
  emulate("pcie_latency_us", &Emulate::pcie_latency_us, number(0, kMost_us), "latency of a copy over the modelled PCIe");

  Table<Simulate> simulate(all, "simulate", &RunConfig::simulate);
  simulate("cluster", &Simulate::cluster, anything<std::string>("a file stem under profiles/clusters, or a path that ends in .toml; \":SITE\" behind it names one of the file's sites"), "the machine that is simulated; empty: link and compute of [emulate]");
  simulate("calibration", &Simulate::calibration, anything<std::string>("the path of a file that `fsdpbench calibrate` wrote"), "measured op times of a machine, used instead of simulate.cluster and [emulate]; empty: none");
  simulate("placement", &Simulate::placement, one_of<Simulate::Placement>(), "packed: neighbouring ranks share a node; spread: they never do");
  simulate("collectives", &Simulate::collectives, one_of<Simulate::Collectives>(), "the algorithm of collectives; auto: as NCCL would choose");
  simulate("compiled", &Simulate::compiled, boolean(), "neighbouring memory-bound kernels are one (torch.compile)");
  simulate("framework", &Simulate::framework, one_of<Simulate::Framework>(), "whose modules compute, which decides what they keep for backward: own: this engine's; pytorch: autograd with fused norms; transformers: with norms written out; nanotron: as pytorch, and products of ranks that split layers run beside their exchanges; auto: on a cluster PyTorch's, otherwise this engine's");
  simulate("loss", &Simulate::loss, one_of<Simulate::Loss>(), "what the loss holds of the logits: eager: PyTorch's F.cross_entropy on fp32 logits without torch.compile (12 bytes a logit at the peak); referenced: the same while the training loop still holds the model's output (14); referenced_fp32: that output is in fp32 (16); chunked: head and loss by eighths of the tokens; fused: one kernel in place; auto: fused if simulate.compiled or this engine's, otherwise eager");
  simulate("fused_optimizer", &Simulate::fused_optimizer, boolean(), "one kernel per update; false: one per operation, with 2.5 times the bytes");
  simulate("attention", &Simulate::attention, one_of<Simulate::Attention>(), "generation of the fused attention kernel");
  simulate("host", &Simulate::host, one_of<Simulate::Host>(), "whose host issues the ops: framework: of PyTorch, DeepSpeed or JAX, as fsdp.preset says (profiles/systems); own: this program's");
  simulate("expandable_segments", &Simulate::expandable_segments, boolean(), "memory under PyTorch's allocator is as with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  simulate("collective_checks", &Simulate::collective_checks, boolean(), "before each collective its ranks check it one after the other, as with TORCH_DISTRIBUTED_DEBUG=DETAIL");
  simulate("efficiency", &Simulate::efficiency, efficiency(), "efficiency of matrix products and attention beyond the model of shapes and kernels: a number, what published trainings of a framework reach on this GPU, auto: of any framework, or measured: what its kernels were measured at, where the cluster's file says it; 0.8 is the median of all (docs/published.md)");
  simulate("host_issue_us", &Simulate::host_issue_us, number(0, kMost_us), "time of the host to issue an op");
  simulate("launch_us", &Simulate::launch_us, number(0, kMost_us), "time from the issue of an op until an idle lane begins it");
  simulate("wake_us", &Simulate::wake_us, number(0, kMost_us), "time from an event until an op on another lane that waited for it begins");
  simulate("jitter_pct", &Simulate::jitter_pct, number(0, 100), "standard deviation of an op's time, lognormal, drawn anew for each op, step and rank");
  simulate("measured_jitter", &Simulate::measured_jitter, boolean(), "jitter is drawn from the runs that simulate.calibration was made of, instead of jitter_pct");
  simulate("rank_jitter_pct", &Simulate::rank_jitter_pct, number(0, 100), "the same for a rank's computation, drawn once per rank");
  simulate("pause_chance", &Simulate::pause_chance, number(0, 0.5), "probability that an op of the compute lane is delayed by pause_us");
  simulate("pause_us", &Simulate::pause_us, number(0, kMost_us), "how long a pause lasts");
  simulate("seed", &Simulate::seed, integer<std::uint64_t>(0, std::int64_t{1} << 53), "seed of all random numbers: the same seed gives the same bytes");

  Table<Inject> inject(all, "inject", &RunConfig::inject);
  inject("slow_rank", &Inject::slow_rank, integer(-1, 1 << 20), "rank that computes slow_rank_factor times slower; -1: none");
  inject("slow_rank_factor", &Inject::slow_rank_factor, number(1, kMostFactor), "how much slower it computes");
  inject("slow_link_rank", &Inject::slow_link_rank, integer(-1, 1 << 20), "rank whose modelled link is slow_link_factor times slower; -1: none");
  inject("slow_link_factor", &Inject::slow_link_factor, number(1, kMostFactor), "how much slower its link is");
  inject("jitter_us", &Inject::jitter_us, number(0, kMost_us), "every op of every lane starts later, by 0 to this many us (seeded)");
  inject("host_sync_after_layer", &Inject::host_sync_after_layer, integer(-1, 4096), "the host waits for the device after this block's forward; -1: never");
  inject("host_delay_us", &Inject::host_delay_us, number(0, kMost_us), "how much longer the host takes to issue each op");
  inject("delay_lane", &Inject::delay_lane, {"\"\" or the name of a lane: \"compute\", \"all_gather\", \"reduce_scatter\", \"all_reduce\", \"copy\", \"tensor\", \"host_to_device\", \"device_to_host\", \"host_compute\"", [](const std::string& v) { return v.empty() || std::ranges::any_of(kLanes, [&](Lane lane) { return v == to_string(lane); }); }}, "lane whose every op takes delay_us longer; empty: none");
  inject("delay_rank", &Inject::delay_rank, integer(-1, 1 << 20), "the delayed lane of this rank only; -1: of all ranks");
  inject("delay_us", &Inject::delay_us, number(0, kMost_us), "how much longer each op of delay_lane takes");
  inject("poison_freed_memory", &Inject::poison_freed_memory, boolean(), "fill freed memory with NaN, so that a use after free shows");

  Table<Trace> trace(all, "trace", &RunConfig::trace);
  trace("ranks", &Trace::ranks, integer(0, 1 << 20), "ranks in trace.json: the first, the slowest, the one to blame, then others in order; 0: all");

  Table<Checkpointing> checkpoint(all, "checkpoint", &RunConfig::checkpoint);
  checkpoint("folder", &Checkpointing::folder, anything<std::string>("the path of a folder as a string"), "where the training is saved, so that `run --resume` can continue it; empty: nowhere");
  checkpoint("every", &Checkpointing::every, integer(0, 1'000'000), "optimizer steps from one checkpoint to the next; 0: only one, after the last step");
  checkpoint("keep", &Checkpointing::keep, integer(1, 1 << 20), "how many checkpoints are kept; older ones are removed once the newest is complete");
  checkpoint("resume", &Checkpointing::resume, anything<std::string>("the path of a checkpoint, or of a folder with some, as a string"), "the training resumes from this checkpoint, or from the newest one in that folder; empty: it begins");
  return all;
}
// clang-format on

}  // namespace

std::span<const Field> fields() {
  static const std::vector<Field> kFields = make_fields();
  return kFields;
}

const Field* find_field(std::string_view name) {
  const auto found = std::ranges::find_if(fields(), [&](const Field& field) { return field.name() == name; });
  return found == fields().end() ? nullptr : &*found;
}

}  // namespace fsdpbench::config
