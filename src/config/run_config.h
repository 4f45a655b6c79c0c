#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/enum_table.h"
#include "base/lane.h"
#include "base/link_model.h"

/// A user's configuration, as plain data. Defaults are the quickstart's. Nothing here checks anything: spelling and
/// range of each key are a line of fields.cpp, rules about several keys are in validate.cpp. The TOML key of a field is
/// `section.field`.
namespace fsdpbench::config {

/// The spellings of an enum, in the order of its enumerators; each enum has its own beside it.
template <class Enum>
inline constexpr std::nullptr_t kNames{};

enum class ModelKind : std::uint8_t { decoder, mlp };
template <>
inline constexpr EnumNames<ModelKind> kNames<ModelKind>{"decoder", "mlp"};
/// The feed-forward half of a decoder block.
enum class FeedForward : std::uint8_t {
  gated,  ///< w_down(silu(w_gate x) * w_up x), Llama
  plain,  ///< w_down(gelu(w_up x)), GPT
};
template <>
inline constexpr EnumNames<FeedForward> kNames<FeedForward>{"gated", "plain"};
enum class Norm : std::uint8_t {
  rms,    ///< a weight
  layer,  ///< a weight and a bias
};
template <>
inline constexpr EnumNames<Norm> kNames<Norm>{"rms", "layer"};
enum class Optimizer : std::uint8_t { sgd, adamw };
template <>
inline constexpr EnumNames<Optimizer> kNames<Optimizer>{"sgd", "adamw"};
enum class Strategy : std::uint8_t { no_shard, shard_grad_op, full_shard, hybrid_shard, hybrid_shard_grad_op };
template <>
inline constexpr EnumNames<Strategy> kNames<Strategy>{"no_shard", "shard_grad_op", "full_shard", "hybrid_shard",
                                                      "hybrid_shard_grad_op"};
enum class Layout : std::uint8_t { flat, per_param };
template <>
inline constexpr EnumNames<Layout> kNames<Layout>{"flat", "per_param"};
/// Moment at which gradients of accumulated microbatches are reduced.
enum class AccumulateMode : std::uint8_t {
  reduce_each,          ///< reduce every microbatch, add up the shards
  no_sync,              ///< add up unsharded gradients, reduce once at the last microbatch
  reduce_scatter_only,  ///< hybrid: reduce-scatter each microbatch, all-reduce across replicas once
};
template <>
inline constexpr EnumNames<AccumulateMode> kNames<AccumulateMode>{"reduce_each", "no_sync", "reduce_scatter_only"};
enum class GradientScaling : std::uint8_t {
  average,          ///< the collective averages (FSDP2)
  sum,              ///< the collective sums, the shard is divided after it (FSDP2 force_sum_reduction)
  pre_post_divide,  ///< divided by a power of two before and by the rest after (FSDP1)
};
template <>
inline constexpr EnumNames<GradientScaling> kNames<GradientScaling>{"average", "sum", "pre_post_divide"};
/// Outputs of a block's operators that its recomputation need not compute again.
enum class CheckpointKeeps : std::uint8_t {
  nothing,               ///< only the block's input is kept
  attention,             ///< attention's output and the logarithms of its sums
  every_second_product,  ///< that, and the 1st, 3rd, 5th, ... product's output (torchtitan's selective "op")
  products,              ///< attention's and all products' outputs (PyTorch's list of compute-intensive operators)
  all_but_feed_forward,  ///< all but what the feed-forward saves: it alone is computed again, experts with the
                         ///< exchanges of rows (Megatron's recompute modules mlp and moe)
  all_but_attention,     ///< all but attention's sums: it alone is computed again (Megatron's core_attn)
};
template <>
inline constexpr EnumNames<CheckpointKeeps> kNames<CheckpointKeeps>{
    "nothing", "attention", "every_second_product", "products", "all_but_feed_forward", "all_but_attention"};

/// One module of the block is checkpointed, and the others save what they save without.
constexpr bool checkpoints_a_module(CheckpointKeeps keeps) {
  return keeps == CheckpointKeeps::all_but_feed_forward || keeps == CheckpointKeeps::all_but_attention;
}

/// Rows that ranks which split experts send for a token.
enum class ExpertRows : std::uint8_t {
  each_expert,  ///< one to each expert that it visits: an all-to-all, as torchtitan's
  each_rank,    ///< one to each rank that has any of them, put in order there by one kernel (DeepEP)
  one_rank,     ///< the same, and all experts of a token are of one rank
};
template <>
inline constexpr EnumNames<ExpertRows> kNames<ExpertRows>{"each_expert", "each_rank", "one_rank"};

/// Scaling of operands of fp8 products.
enum class Fp8Recipe : std::uint8_t {
  delayed,     ///< the whole tensor, by steps before: one pass casts, also transposed
  tensorwise,  ///< the whole tensor as it is: a pass for the largest, one to cast
  rowwise,     ///< each row, and again each column where it is used transposed
  mx,          ///< 32 neighbours, along rows and along columns in one pass (MXFP8)
};
template <>
inline constexpr EnumNames<Fp8Recipe> kNames<Fp8Recipe>{"delayed", "tensorwise", "rowwise", "mx"};

/// The collective that a gradient's shard comes from.
enum class ReduceBy : std::uint8_t {
  reduce_scatter,
  all_reduce,  ///< of the whole gradient; each rank keeps its slice (DeepSpeed's ZeRO-1 and 2)
};
template <>
inline constexpr EnumNames<ReduceBy> kNames<ReduceBy>{"reduce_scatter", "all_reduce"};
/// Lane that reduces gradients.
enum class ReduceLane : std::uint8_t {
  reduce_scatter,  ///< a lane of its own
  all_gather,      ///< the gathers', in the order of issue
  compute,         ///< computation's: nothing overlaps
};
template <>
inline constexpr EnumNames<ReduceLane> kNames<ReduceLane>{"reduce_scatter", "all_gather", "compute"};
/// FSDP unit of a block's experts, where ranks split them (mesh.expert).
enum class ExpertUnit : std::uint8_t {
  group,           ///< a second parameter group of the block's module: gathered, freed and reduced at the block's hooks
  bucket,          ///< the same, but reduced as soon as its own gradients are complete (hooks on gradients)
  module,          ///< a module of their own inside the block's, with hooks of its own (fully_shard on both)
  ordered_module,  ///< the same, around their computation alone; prefetches count blocks and experts one by one
};
template <>
inline constexpr EnumNames<ExpertUnit> kNames<ExpertUnit>{"group", "bucket", "module", "ordered_module"};
/// Lane that frees gathered parameters.
enum class FreeLane : std::uint8_t {
  compute,     ///< after what used them
  all_gather,  ///< the gathers' lane waits for what used them: no later gather begins before
};
template <>
inline constexpr EnumNames<FreeLane> kNames<FreeLane>{"compute", "all_gather"};

/// Parts of the model whose parameters train; what they are in a block, model.lora_rank says.
struct Trainable {
  enum class Mode : std::uint8_t {
    all,
    blocks,  ///< those from `first` to `last` (mlp: linear layers); all else is frozen
  };
  Mode mode = Mode::all;
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool has_block(std::int64_t index) const { return mode == Mode::all || (first <= index && index <= last); }
  bool operator==(const Trainable&) const = default;
};

struct Model {
  std::string preset = "quickstart";  ///< a file stem under profiles/models, whose values are the defaults below
  ModelKind kind = ModelKind::decoder;
  std::int64_t layers = 4;          ///< decoder blocks, or linear layers of the mlp
  std::int64_t width = 128;         ///< decoder: residual width; mlp: hidden width
  std::int64_t heads = 4;           ///< decoder: query heads
  std::int64_t kv_heads = 2;        ///< decoder: key/value heads, divides heads
  std::int64_t ffn_width = 352;     ///< decoder: inner width of the feed-forward, or of each expert
  std::int64_t vocab = 256;         ///< decoder: 256 for byte-level tokens
  bool tied_head = false;           ///< decoder: output head shares the embedding's weight
  bool fused_projections = false;   ///< decoder: queries, keys and values have one weight, gate and up another
  double rope_theta = 10000.0;      ///< decoder: rotary base
  double norm_epsilon = 1e-5;       ///< decoder: epsilon of the norms
  std::int64_t in_features = 64;    ///< mlp: inputs a sample
  std::int64_t out_features = 64;   ///< mlp: outputs a sample
  std::int64_t experts = 0;         ///< decoder: feed-forwards a block, chosen token by token; 0: one, no choice
  std::int64_t active_experts = 0;  ///< decoder: experts that a token visits
  std::int64_t shared_experts = 0;  ///< decoder: experts that every token visits, as one of so many times the width
  Trainable trainable;
  std::int64_t lora_rank = 0;  ///< decoder: inner size of the adapters beside a block's products; 0: none
  double lora_alpha = 16;      ///< what they add is times lora_alpha / lora_rank
  // Decoders other than Llama: there are no kernels for these, so they are simulated, not trained.
  std::int64_t head_dim = 0;  ///< size of a head; 0: width / heads
  FeedForward feed_forward = FeedForward::gated;
  Norm norm = Norm::rms;
  bool bias = false;                      ///< of the linear maps in blocks
  std::int64_t learned_positions = 0;     ///< rows of a learned table of positions; 0: rotary
  bool qk_norm = false;                   ///< queries and keys are normed, each head
  bool attention_sinks = false;           ///< a learned logit a head beside its scores
  std::int64_t attention_window = 0;      ///< tokens back that a token attends to, itself included; 0: all
  std::int64_t full_attention_every = 0;  ///< every so many-th block has no window; 0: all have it
  /// Inner width of the shared expert; 0: there is none.
  std::int64_t shared_width() const { return shared_experts * ffn_width; }
  /// Some parameters are frozen: they have no gradients. With adapters nothing but these trains.
  bool freezes() const { return lora_rank > 0 || trainable.mode != Trainable::Mode::all; }
  /// No gradient goes below this block (mlp: linear layer).
  std::int64_t first_trained() const { return trainable.mode == Trainable::Mode::all ? 0 : trainable.first; }
  /// Block `index` has adapters, and is the first one that trains: nobody wants the gradient of its input.
  bool input_is_frozen(std::int64_t index) const { return lora_rank > 0 && index == first_trained(); }
  /// Inner size of the adapters of block `index`; 0: it has none.
  std::int64_t adapter_rank(std::int64_t index) const { return trainable.has_block(index) ? lora_rank : 0; }
  /// Block `index` trains whole.
  bool trains_weights(std::int64_t index) const { return lora_rank == 0 && trainable.has_block(index); }
  /// Size of one head.
  std::int64_t head_size() const { return head_dim > 0 ? head_dim : width / heads; }
  /// Tokens back that block `layer` attends to at most; 0: all.
  std::int64_t window_of(std::int64_t layer) const {
    return full_attention_every > 0 && (layer + 1) % full_attention_every == 0 ? 0 : attention_window;
  }
  bool operator==(const Model&) const = default;
};

struct Data {
  std::string path;  ///< file or folder read as bytes; empty: this project's own sources and docs, or where they are
                     ///< not installed, its profiles
  bool operator==(const Data&) const = default;
};

struct Mesh {
  std::int64_t ranks = 4;
  std::int64_t shard = 0;          ///< ranks that split a unit; 0: all (hybrid: must be given, or replicate)
  std::int64_t replicate = 0;      ///< groups that hold equal shards; 0: ranks / shard / tensor
  std::int64_t tensor = 1;         ///< ranks that split each layer; neighbours. They see the same samples
  bool sequence_parallel = false;  ///< they split the tokens, too, of what lies between their parts of layers
  std::int64_t context = 1;        ///< neighbours of a shard group that split the sequences of their samples
  std::int64_t expert = 1;         ///< neighbours of a shard group that split the experts of each block
  double expert_imbalance = 1;     ///< rows of the busiest of them over the mean
  bool expert_sync = true;         ///< the host waits for the counts of rows before it exchanges them
  ExpertRows expert_rows = ExpertRows::each_expert;

  /// Ranks that see different tokens, and among which parameters are sharded or replicated.
  std::int64_t data_ranks() const { return ranks / tensor; }
  /// Groups of ranks that see different samples.
  std::int64_t sample_groups() const { return data_ranks() / context; }
  bool operator==(const Mesh&) const = default;
};

struct Train {
  std::int64_t steps = 10;          ///< measured steps, after the warm-up
  std::int64_t warmup = 2;          ///< steps left out of the timing (they train all the same)
  std::int64_t seq_len = 128;       ///< tokens a sequence (decoder only)
  std::int64_t batch_per_rank = 2;  ///< sequences (mlp: samples) a rank and microbatch
  std::int64_t batch_global = 0;    ///< of all ranks and microbatches; batch_per_rank follows. 0: batch_per_rank counts
  std::int64_t accumulate = 1;      ///< microbatches an optimizer step
  AccumulateMode accumulate_mode = AccumulateMode::reduce_each;
  std::uint64_t seed = 1;  ///< of the initial parameters
  Optimizer optimizer = Optimizer::adamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double clip_norm = 0.0;     ///< global gradient norm limit; 0: no clipping
  bool params_digest = true;  ///< rank 0 gets all final parameters and hashes them
  bool operator==(const Train&) const = default;
};

/// forward_prefetch and backward_prefetch.
struct Prefetch {
  enum class Mode : std::uint8_t {
    none,       ///< forward: the next gather starts after this unit's computation; backward: after its reduction
    implicit,   ///< forward only: gathers are issued in order of use and the host runs ahead
    post,       ///< backward only: next gather issued after this unit's computation, before its reduction
    pre,        ///< backward only: next gather issued before this unit's computation
    explicit_,  ///< issued `depth` units ahead, before this unit's computation
    ahead,      ///< the same, but before this unit's own gather is waited for (compiled FSDP)
    window,     ///< units ahead until they hold `elements`, those already gathered included (Megatron-FSDP)
    rate,       ///< each hook gathers the next missing units of the learned order until they hold `elements`
  };
  Mode mode = Mode::none;
  int depth = 1;
  std::int64_t elements = 0;
  bool operator==(const Prefetch&) const = default;
};

struct AllGatherLimit {
  enum class Mode : std::uint8_t {
    unlimited,
    fsdp1_queue,  ///< host pops a free-event queue of length `count` before each unshard (FSDP1 limit_all_gathers)
    fsdp2_event,  ///< gathers wait on the device for the copy-out before last: two buffers (FSDP2)
    strict,       ///< at most `count` units gathered at a time, host waits
    bytes,        ///< at most `bytes` gathered at a time (one unit always may), host waits
    buffers,      ///< at most `count` units gathered at a time, gathers wait on the device (Megatron's double buffer)
    fetched,      ///< the host waits for the oldest of more than `count` gathers that were waited for (DeepSpeed)
  };
  Mode mode = Mode::fsdp2_event;
  int count = 2;
  std::int64_t bytes = 0;
  bool operator==(const AllGatherLimit&) const = default;
};

struct ReshardAfterForward {
  enum class Mode : std::uint8_t {
    automatic,  ///< strategy's rule, root kept
    always,     ///< root too
    never,
    group,  ///< reshard to groups of `group` consecutive ranks
  };
  Mode mode = Mode::automatic;
  int group = 0;
  bool operator==(const ReshardAfterForward&) const = default;
};

/// Modules that make a unit. Embedding, final norm and head belong to the root unless `model`.
struct Wrap {
  enum class Mode : std::uint8_t {
    block,     ///< one unit a block (mlp: a linear layer)
    blocks,    ///< one unit per `blocks` consecutive blocks
    min_size,  ///< consecutive blocks until at least `parameters` parameters
    model,     ///< everything in the root
  };
  Mode mode = Mode::block;
  std::int64_t blocks = 1;
  std::int64_t parameters = 0;
  bool operator==(const Wrap&) const = default;
};

/// Part of the sharded state that is kept in host memory; parameters that are replicated stay on the device.
enum class CpuOffload : std::uint8_t {
  none,
  optimizer,  ///< masters, moments and gradients, and the update: the device keeps shards in param_dtype (ZeRO-Offload)
  all,        ///< shards too: each is copied to the device before its gather (CPUOffloadPolicy, CPUOffload)
};
template <>
inline constexpr EnumNames<CpuOffload> kNames<CpuOffload>{"none", "optimizer", "all"};

struct Fsdp {
  std::string preset =
      "fsdp2";  ///< a name of config/presets.h: the defaults of all knobs below as that engine has them
  Strategy strategy = Strategy::full_shard;
  Layout layout = Layout::per_param;
  ReshardAfterForward reshard_after_forward;
  bool reshard_after_backward = true;  ///< false: keep units gathered between accumulated microbatches
  bool keep_unreduced = false;         ///< so after a microbatch without reductions, if forward frees nothing either
  bool wait_each_backward = true;      ///< false: a microbatch's reductions may go on during the next
  bool gradients_after_views = false;  ///< complete when backward is past what was computed since the gather's issue
  Prefetch forward_prefetch{Prefetch::Mode::implicit, 1};
  bool learn_execution_order =
      false;  ///< the first step learns the order of units: explicit forward prefetch starts after it
  Prefetch backward_prefetch{Prefetch::Mode::pre, 1};
  AllGatherLimit all_gather_limit;
  int reduce_scatter_buffers = 1;             ///< reduce-scatter inputs alive; 0: no limit
  bool separate_reduce_scatter_comm = false;  ///< own communicator for reduce-scatter
  Wrap wrap;
  DType param_dtype = DType::f32;   ///< of gathers and computation
  DType reduce_dtype = DType::f32;  ///< of gradient reductions
  DType state_dtype = DType::f32;   ///< simulated unless f32: of masters, moments and reduced gradients
  GradientScaling gradient_scaling = GradientScaling::average;
  bool activation_checkpointing = false;  ///< keep only each block's input, recompute in backward
  std::int64_t checkpoint_every = 1;      ///< with it: only every so many-th block
  double recompute_share = 1.0;           ///< with it, simulated: part of a block that is recomputed, the rest is kept
  CheckpointKeeps checkpoint_keeps = CheckpointKeeps::nothing;  ///< with it, simulated: outputs that are kept
  bool checkpoint_reentrant = false;  ///< with it: a recomputation runs the unit's hooks of forward again (FSDP2)
  ExpertUnit expert_unit = ExpertUnit::group;
  bool recompute_frees = false;  ///< experts as a module: the hook after forward frees in a recomputation, too
  bool fp8_products = false;     ///< simulated: matrix products of blocks in fp8, gathers in param_dtype
  Fp8Recipe fp8_recipe = Fp8Recipe::delayed;  ///< with it
  std::int64_t shard_threshold = 0;           ///< parameters of fewer elements stay replicated

  // Settings of engines other than PyTorch's; elements are those of unsharded units.
  std::int64_t max_live_parameters = 0;    ///< no rate prefetch while so many are gathered; 0: no limit
  std::int64_t max_reuse_distance = 0;     ///< a unit used again within so many elements of uses is not freed
  std::int64_t persistence_threshold = 0;  ///< smaller units stay gathered: one gather of them after the optimizer
  bool gathers_ascend = false;             ///< gathers of one hook are issued from the first unit to the last
  bool gathers_follow_compute = false;     ///< a gather starts after all computation issued before it
  bool root_prefetches_forward = true;     ///< the root's hook gathers the first unit, where units are listed
  bool root_prefetches_backward = true;    ///< the root's hook prefetches in backward
  FreeLane free_lane = FreeLane::compute;
  std::int64_t reduce_bucket = 0;  ///< gradients reduced together hold at most so many elements; 0: unit by unit
  ReduceBy reduce_by = ReduceBy::reduce_scatter;
  ReduceLane reduce_lane = ReduceLane::reduce_scatter;
  int reduce_lag = 0;                        ///< a unit's reduction is issued so many units later, after their gathers
  int reductions_in_flight = 0;              ///< the host waits for the oldest of more buckets; 0: it never does
  std::int64_t reduce_scatter_elements = 0;  ///< as reduce_scatter_buffers, in elements, two mean units at least
  bool gradient_copy_in = false;             ///< flat: gradients are copied to the reduce-scatter's input
  bool head_unit = false;                    ///< final norm and head are a unit of their own
  double gradient_divide_factor = 0;         ///< what sums of gradients are divided by; 0: the number of ranks
  bool host_sync_at_group_shard = false;     ///< the host waits where a part is kept for the group's gather
  bool keep_group_shard = false;             ///< that part lives until the step's end; false: until backward is over
  CpuOffload cpu_offload = CpuOffload::none;
  bool cast_in_optimizer =
      false;                    ///< shards stay in param_dtype, too: the update writes both, and gathers cast nothing
  bool fp32_gradients = false;  ///< backward writes parameters' gradients in fp32, not in param_dtype

  /// The dtype of unsharded gradients as backward writes them.
  DType gradient_dtype() const { return fp32_gradients ? DType::f32 : param_dtype; }
  bool operator==(const Fsdp&) const = default;
};

struct Emulate {
  std::optional<double> link_gb_per_s;   ///< 1e9 bytes a second; absent: no modelled link
  double link_latency_us = 0.0;          ///< a hop, added to the modelled link
  std::optional<double> compute_tflops;  ///< 1e12 FLOP/s a rank; absent: kernels compute
  std::optional<double>
      pcie_gb_per_s{};           ///< 1e9 bytes a second, rank and direction; absent: copies take what they take
  double pcie_latency_us = 0.0;  ///< a copy, added to the modelled PCIe

  /// The two keys of the link in bytes and seconds; absent for a real link.
  std::optional<LinkModel> link() const {
    if (!link_gb_per_s) return std::nullopt;
    return LinkModel{*link_gb_per_s * 1e9, link_latency_us * 1e-6};
  }
  /// The two keys of PCIe likewise.
  std::optional<LinkModel> pcie() const {
    if (!pcie_gb_per_s) return std::nullopt;
    return LinkModel{*pcie_gb_per_s * 1e9, pcie_latency_us * 1e-6};
  }
  bool operator==(const Emulate&) const = default;
};

enum class BackendKind : std::uint8_t {
  cpu,
  cuda,
  virtual_,  ///< no device: a computed clock ("virtual" in files)
};
template <>
inline constexpr EnumNames<BackendKind> kNames<BackendKind>{"cpu", "cuda", "virtual"};
/// Source of an op's begin and end on a GPU.
enum class Timer : std::uint8_t {
  automatic,  ///< cupti where it can be used, else events
  cupti,
  events,
};
template <>
inline constexpr EnumNames<Timer> kNames<Timer>{"auto", "cupti", "events"};

struct Device {
  BackendKind backend = BackendKind::cpu;
  Timer timer = Timer::automatic;
  bool deterministic = false;  ///< a GPU gives the same bits in every run
  bool monitor = true;         ///< a GPU's clocks, power and errors are sampled

  /// Whether two runs of the same end with the same bits, so that their parameters have a digest.
  bool repeats() const { return backend != BackendKind::cuda || deterministic; }
  bool operator==(const Device&) const = default;
};

enum class NcclRegister : std::uint8_t {
  none,
  local,   ///< ncclCommRegister
  window,  ///< ncclMemAlloc and symmetric windows
};
template <>
inline constexpr EnumNames<NcclRegister> kNames<NcclRegister>{"none", "local", "window"};
enum class CtaPolicy : std::uint8_t { library, efficiency, zero };
template <>
inline constexpr EnumNames<CtaPolicy> kNames<CtaPolicy>{"default", "efficiency", "zero"};

/// Settings of NCCL on GPUs.
struct Nccl {
  NcclRegister register_buffers = NcclRegister::none;
  CtaPolicy cta_policy = CtaPolicy::library;  ///< "default" in files
  int max_ctas = 0;                           ///< 0: NCCL's choice
  bool blocking = false;                      ///< NCCL's calls return when they are done
  double timeout_s = 60.0;                    ///< an op that takes longer ends the run
  bool operator==(const Nccl&) const = default;
};

/// Share that a training reaches of the rates of the compute model: a number, or whose.
struct Efficiency {
  double value = 0.8;
  std::string of;  ///< "auto", "measured", or a framework of profiles/published, whose trainings say it; empty: `value`
  bool operator==(const Efficiency&) const = default;
};

/// Facts of a simulated training beside its configuration (device.backend = "virtual").
struct Simulate {
  /// Which rank lies on which node: neighbours on the same (packed) or never (spread).
  enum class Placement : std::uint8_t { packed, spread };
  /// Algorithm of collectives; automatic: as NCCL would choose.
  enum class Collectives : std::uint8_t { ring, tree, hierarchical, pat, nvls, nvls_tree, direct, automatic };
  /// Generation of the fused attention kernel.
  enum class Attention : std::uint8_t { flash1, flash2, current };
  /// Whose host issues the ops: that of the framework whose preset it is, or this program's.
  enum class Host : std::uint8_t { framework, own };
  /// Program whose modules compute: it decides what they keep from forward to backward.
  enum class Framework : std::uint8_t {
    automatic,     ///< on a cluster pytorch, else own
    own,           ///< this engine's
    pytorch,       ///< autograd, with fused norms
    transformers,  ///< autograd, with norms written out
    nanotron,      ///< autograd, with fused norms; products of ranks that split layers beside their exchanges
  };
  /// Number of copies of the logits that the loss holds.
  enum class Loss : std::uint8_t {
    automatic,        ///< fused if compiled or this engine's, else eager
    eager,            ///< F.cross_entropy on an fp32 copy
    referenced,       ///< the same, and the training loop still holds the model's output
    referenced_fp32,  ///< the same, and that output is fp32
    chunked,          ///< head and loss by eighths of the tokens, forward and backward at once
    fused,            ///< one kernel that leaves the gradient where the logits were
  };

  std::string cluster;      ///< a file stem under profiles/clusters, or a path; empty: link and compute of [emulate]
  std::string calibration;  ///< a file of `calibrate`; empty: none
  Placement placement = Placement::packed;
  Collectives collectives = Collectives::automatic;
  bool compiled = false;  ///< neighbouring memory-bound kernels are one (torch.compile)
  Framework framework = Framework::automatic;
  Loss loss = Loss::automatic;
  bool fused_optimizer = true;  ///< one kernel an update; else one an operation, with 2.5 times the bytes
  Attention attention = Attention::flash2;
  Host host = Host::framework;
  bool expandable_segments = false;  ///< of PyTorch's allocator: a segment grows by pages
  bool collective_checks = false;    ///< TORCH_DISTRIBUTED_DEBUG=DETAIL: ranks agree on each collective first
  Efficiency efficiency;     ///< of products and attention, beside what shapes and kernels say: docs/published.md
  double host_issue_us = 0;  ///< the host takes to issue an op
  double launch_us = 0;      ///< from the issue of an op until its lane, if idle, begins it
  double wake_us = 0;        ///< from an event until what waited for it on another lane goes on
  double jitter_pct = 0;     ///< standard deviation of an op's time, lognormal, drawn anew for each op, step and rank
  bool measured_jitter = false;  ///< ops scatter as those did that the calibration was made of
  double rank_jitter_pct = 0;    ///< the same of a rank's computation, drawn once for the run
  double pause_chance = 0;       ///< that an op of the compute lane is held up
  double pause_us = 0;           ///< for so long
  std::uint64_t seed = 1;        ///< of all that is drawn
  bool operator==(const Simulate&) const = default;
};

/// Trouble for study. Everything off by default.
struct Inject {
  std::int64_t slow_rank = -1;  ///< this rank computes slow_rank_factor times slower
  double slow_rank_factor = 1.0;
  std::int64_t slow_link_rank = -1;  ///< this rank's modelled link is slow_link_factor times slower
  double slow_link_factor = 1.0;
  double jitter_us = 0.0;                   ///< every op on every lane starts 0..jitter later (seeded)
  std::int64_t host_sync_after_layer = -1;  ///< host waits for the device after this block's forward
  double host_delay_us = 0.0;               ///< the host takes so much longer to issue each op
  std::string delay_lane;                   ///< lane whose every op takes delay_us longer; empty: none
  std::int64_t delay_rank = -1;             ///< only on this rank; -1: on all
  double delay_us = 0.0;
  bool poison_freed_memory = false;  ///< fill freed memory with NaN
  bool operator==(const Inject&) const = default;
};

/// Contents of the timeline of all ranks.
struct Trace {
  std::int64_t ranks = 8;  ///< in trace.json: the first, the slowest, the one to blame, then in order; 0: all
  bool operator==(const Trace&) const = default;
};

/// Checkpoints of a training.
struct Checkpointing {
  std::string folder;      ///< where checkpoints are; empty: none are saved
  std::int64_t every = 0;  ///< steps between them; 0: only one, at the end
  std::int64_t keep = 2;   ///< how many stay, the newest
  std::string resume;      ///< the checkpoint that the training goes on with; empty: from the beginning
  bool operator==(const Checkpointing&) const = default;
};

struct RunConfig {
  Model model;
  Data data;
  Mesh mesh;
  Train train;
  Fsdp fsdp;
  Device device;
  Nccl nccl;
  Emulate emulate;
  Simulate simulate;
  Inject inject;
  Trace trace;
  Checkpointing checkpoint;

  /// Whose modules compute, and what its loss holds: simulate's keys with their defaults filled in.
  Simulate::Framework framework() const {
    using Framework = Simulate::Framework;
    if (device.backend != BackendKind::virtual_ || model.kind != ModelKind::decoder) return Framework::own;
    if (simulate.framework != Framework::automatic) return simulate.framework;
    return simulate.cluster.empty() || !simulate.calibration.empty() ? Framework::own : Framework::pytorch;
  }
  Simulate::Loss loss() const {
    using Loss = Simulate::Loss;
    if (device.backend != BackendKind::virtual_ || model.kind != ModelKind::decoder) return Loss::fused;
    if (simulate.loss != Loss::automatic) return simulate.loss;
    return simulate.compiled || framework() == Simulate::Framework::own ? Loss::fused : Loss::eager;
  }
  bool operator==(const RunConfig&) const = default;
};

}  // namespace fsdpbench::config
