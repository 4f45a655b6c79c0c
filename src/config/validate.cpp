#include "config/validate.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/check_experts.h"
#include "config/fields.h"
#include "config/spelling.h"

namespace fsdpbench::config {
namespace {

using Notes = std::vector<std::string>;

/// Configurations made by code have not passed load_profile; a value is fine if it could have been read.
void check_each_key(const RunConfig& config) {
  RunConfig scratch = config;
  for (const Field& field : fields()) {
    const Value value = field.write(config);
    require(field.read(scratch, value), "{} = {} is not valid; expected {}.", field.name(), to_toml(value),
            field.valid);
  }
}

void check_model(const Model& model, Notes& notes) {
  if (model.kind != ModelKind::decoder) return;
  require(model.head_dim > 0 || model.width % model.heads == 0,
          "model.width = {} is not a multiple of model.heads = {}.", model.width, model.heads);
  const std::int64_t head = model.head_size();
  require(model.learned_positions > 0 || head % 2 == 0,
          "{} = {} is odd; rotary embedding turns pairs, so it must be even.",
          model.head_dim > 0 ? "model.head_dim" : "model.width / model.heads", head);
  require(model.heads % model.kv_heads == 0, "model.heads = {} is not a multiple of model.kv_heads = {}.", model.heads,
          model.kv_heads);
  require(model.vocab >= 256, "model.vocab = {} is too small: the data are bytes, so at least 256 are needed.",
          model.vocab);
  check_routing(model);
  without_effect(notes, model.attention_window == 0 && model.full_attention_every > 0, "model.full_attention_every",
                 "model.attention_window is 0");
}

/// Tensor parallelism splits what can be split evenly; what then needs more sums than a Llama block's is left out.
void check_tensor(const RunConfig& config) {
  const std::int64_t tensor = config.mesh.tensor;
  if (tensor == 1) return;
  const Model& model = config.model;
  require(model.kind == ModelKind::decoder, "mesh.tensor = {} splits the layers of a decoder: model.kind is \"{}\".",
          tensor, to_string(model.kind));
  require(config.mesh.ranks % tensor == 0, "mesh.tensor = {} does not divide mesh.ranks = {}.", tensor,
          config.mesh.ranks);
  const auto splits = [&](const char* key, std::int64_t size) {
    require(size % tensor == 0, "mesh.tensor = {} does not divide {} = {}.", tensor, key, size);
  };
  splits("model.heads", model.heads);
  splits("model.kv_heads", model.kv_heads);
  splits("model.ffn_width", model.ffn_width);
  splits("model.vocab", model.vocab);
  require(!model.qk_norm,
          "mesh.tensor = {} does not go with model.qk_norm: its gradient is not summed over the heads of other ranks.",
          tensor);
  require(model.experts == 0, "mesh.tensor = {} does not go with model.experts = {}: experts are not split.", tensor,
          model.experts);
}

/// Context parallelism splits sequences evenly: of 2C pieces, rank i has the i-th from the begin and from the end.
void check_context(const RunConfig& config) {
  const std::int64_t context = config.mesh.context;
  if (context == 1) return;
  const Model& model = config.model;
  const Train& train = config.train;
  const Mesh& mesh = config.mesh;
  const Fsdp& fsdp = config.fsdp;
  require(model.kind == ModelKind::decoder,
          "mesh.context = {} splits the sequences of a decoder: model.kind is \"{}\".", context, to_string(model.kind));
  require(mesh.shard % context == 0, "mesh.context = {} does not divide the shard group of {} ranks.", context,
          mesh.shard);
  require(train.seq_len % (2 * context) == 0,
          "mesh.context = {} gives each rank two of {} equal pieces of a sequence, and {} does not divide "
          "train.seq_len = {}.",
          context, 2 * context, 2 * context, train.seq_len);
  const auto without = [&](bool given, const char* key, std::string_view expected) {
    require(!given, "mesh.context = {} does not go with {}; expected {}.", context, key, expected);
  };
  without(mesh.tensor > 1, "mesh.tensor", "1");
  without(mesh.expert > 1, "mesh.expert", "1");
  without(model.freezes(), "model.trainable or model.lora_rank", "that all parameters train");
  without(model.attention_window > 0, "model.attention_window", "0: every rank gathers all keys and values");
  without(fsdp.activation_checkpointing && fsdp.checkpoint_keeps != CheckpointKeeps::nothing, "fsdp.checkpoint_keeps",
          "\"nothing\"");
}

/// Frozen parameters. What is refused has no order recorded in PyTorch.
void check_frozen(const RunConfig& config, Notes& notes) {
  const Model& model = config.model;
  const Fsdp& fsdp = config.fsdp;
  if (!model.freezes()) return;
  const bool decoder = model.kind == ModelKind::decoder;
  require(model.trainable.last < model.layers,
          "model.trainable = {} names a block that is not there; expected up to {}.", to_toml(encode(model.trainable)),
          model.layers - 1);
  require(decoder || model.lora_rank == 0, "model.lora_rank = {} needs model.kind = \"decoder\": it is \"{}\".",
          model.lora_rank, to_string(model.kind));
  require(model.experts == 0 || model.lora_rank == 0,
          "model.lora_rank = {} does not go with model.experts = {}: experts have no adapters here.", model.lora_rank,
          model.experts);
  const char* const key = model.lora_rank > 0 ? "model.lora_rank" : "model.trainable";
  const auto without = [&](bool given, const char* other, const auto& value, std::string_view expected) {
    require(!given, "{} freezes parameters, which does not go with {} = {}; expected {}.", key, other,
            to_toml(encode(value)), expected);
  };
  without(config.mesh.tensor > 1, "mesh.tensor", config.mesh.tensor, "1");
  without(config.mesh.expert > 1, "mesh.expert", config.mesh.expert, "1");
  const auto of_other_engines = [](const Prefetch& p) {
    return p.mode == Prefetch::Mode::ahead || p.mode == Prefetch::Mode::window || p.mode == Prefetch::Mode::rate;
  };
  without(of_other_engines(fsdp.forward_prefetch), "fsdp.forward_prefetch", fsdp.forward_prefetch,
          "\"implicit\", \"none\" or a depth");
  without(of_other_engines(fsdp.backward_prefetch), "fsdp.backward_prefetch", fsdp.backward_prefetch,
          "\"pre\", \"post\", \"none\" or a depth");
  without(fsdp.backward_prefetch.mode == Prefetch::Mode::post && !fsdp.gradients_after_views, "fsdp.backward_prefetch",
          fsdp.backward_prefetch, "another than FSDP1's, as fsdp.gradients_after_views is off");
  // Whether such a limit lets a gather through that is never used, the closed form of the bytes sent cannot tell.
  const AllGatherLimit::Mode limit = fsdp.all_gather_limit.mode;
  const bool counts = limit == AllGatherLimit::Mode::strict || limit == AllGatherLimit::Mode::bytes ||
                      limit == AllGatherLimit::Mode::buffers;
  without(counts && !fsdp.gradients_after_views, "fsdp.all_gather_limit", fsdp.all_gather_limit,
          "\"unlimited\", \"fsdp1_queue:N\" or \"fsdp2_event\"");
  without(fsdp.reduce_bucket > 0, "fsdp.reduce_bucket", fsdp.reduce_bucket, "0");
  without(fsdp.reduce_by == ReduceBy::all_reduce, "fsdp.reduce_by", fsdp.reduce_by, "\"reduce_scatter\"");
  without(fsdp.reduce_lag > 0, "fsdp.reduce_lag", fsdp.reduce_lag, "0");
  // One flat parameter has one gradient, of its frozen parts too, and parts of a rank's shard would have no moments.
  const bool mixes = model.lora_rank > 0 || fsdp.wrap.mode != Wrap::Mode::block;
  require(fsdp.layout == Layout::per_param || !mixes,
          "{} freezes parts of a unit, which needs fsdp.layout = \"per_param\" (FSDP2): in one flat parameter all or "
          "nothing trains.",
          key);
  without_effect(notes, model.lora_rank == 0 && model.lora_alpha != Model().lora_alpha, "model.lora_alpha",
                 "model.lora_rank is 0");
}

/// Tokens of a microbatch are split evenly, too. After the batch is settled.
void check_sequence_parallel(RunConfig& config, Notes& notes) {
  Mesh& mesh = config.mesh;
  if (!mesh.sequence_parallel) return;
  if (mesh.tensor == 1) {
    notes.push_back("mesh.sequence_parallel has no effect: mesh.tensor is 1.");
    mesh.sequence_parallel = false;  // else the model would leave buffers to ranks that there are not
    return;
  }
  const Train& train = config.train;  // a product below 2^45
  require(train.batch_per_rank * train.seq_len % mesh.tensor == 0,
          "mesh.sequence_parallel splits the tokens of a microbatch, and mesh.tensor = {} does not divide "
          "train.batch_per_rank * train.seq_len = {} * {}.",
          mesh.tensor, train.batch_per_rank, train.seq_len);
}

void check_sequence(const RunConfig& config) {
  const Model& model = config.model;
  require(model.kind != ModelKind::decoder || model.learned_positions == 0 ||
              config.train.seq_len <= model.learned_positions,
          "train.seq_len = {} is longer than the table of model.learned_positions = {}.", config.train.seq_len,
          model.learned_positions);
}

/// Checkpoints around FSDP2's hooks. What is refused has no order recorded in PyTorch, or another closed form of bytes.
void check_reentrant(const RunConfig& config) {
  const Fsdp& fsdp = config.fsdp;
  if (!fsdp.checkpoint_reentrant) return;
  const auto without = [&](bool given, const char* other, const auto& value, std::string_view expected) {
    require(!given, "fsdp.checkpoint_reentrant does not go with {} = {}; expected {}.", other, to_toml(encode(value)),
            expected);
  };
  const auto of_other_engines = [](const Prefetch& p) {
    return p.mode == Prefetch::Mode::ahead || p.mode == Prefetch::Mode::window || p.mode == Prefetch::Mode::rate ||
           p.mode == Prefetch::Mode::post;
  };
  const AllGatherLimit::Mode limit = fsdp.all_gather_limit.mode;
  const bool counts = limit != AllGatherLimit::Mode::fsdp2_event && limit != AllGatherLimit::Mode::unlimited;
  without(fsdp.gradients_after_views, "fsdp.gradients_after_views", fsdp.gradients_after_views, "false (FSDP2)");
  without(fsdp.wrap.mode != Wrap::Mode::block, "fsdp.wrap", fsdp.wrap, "\"block\"");
  without(of_other_engines(fsdp.forward_prefetch), "fsdp.forward_prefetch", fsdp.forward_prefetch,
          "\"implicit\", \"none\" or a depth");
  without(of_other_engines(fsdp.backward_prefetch), "fsdp.backward_prefetch", fsdp.backward_prefetch,
          "\"pre\", \"none\" or a depth");
  without(counts, "fsdp.all_gather_limit", fsdp.all_gather_limit, "\"fsdp2_event\" or \"unlimited\"");
  without(fsdp.learn_execution_order, "fsdp.learn_execution_order", fsdp.learn_execution_order, "false");
  without(fsdp.max_reuse_distance > 0, "fsdp.max_reuse_distance", fsdp.max_reuse_distance, "0");
  without(fsdp.persistence_threshold > 0, "fsdp.persistence_threshold", fsdp.persistence_threshold, "0");
  without(fsdp.reduce_bucket > 0, "fsdp.reduce_bucket", fsdp.reduce_bucket, "0");
  without(fsdp.reduce_lag > 0, "fsdp.reduce_lag", fsdp.reduce_lag, "0");
  without(fsdp.keep_group_shard, "fsdp.keep_group_shard", fsdp.keep_group_shard, "false");
  without(!fsdp.wait_each_backward && config.train.accumulate > 1, "fsdp.wait_each_backward", fsdp.wait_each_backward,
          "true with train.accumulate above 1");
  without(config.mesh.tensor > 1, "mesh.tensor", config.mesh.tensor, "1");
  without(config.mesh.context > 1, "mesh.context", config.mesh.context, "1");
  without(config.mesh.expert > 1, "mesh.expert", config.mesh.expert, "1");
  without(config.model.trainable.mode != Trainable::Mode::all, "model.trainable", config.model.trainable, "\"all\"");
  without(config.model.lora_rank > 0, "model.lora_rank", config.model.lora_rank, "0");
}

void check_checkpointing(const RunConfig& config, Notes& notes) {
  const Fsdp& fsdp = config.fsdp;
  if (fsdp.activation_checkpointing) {
    check_reentrant(config);
    if (fsdp.checkpoint_keeps != CheckpointKeeps::nothing) {
      const std::string_view keeps = to_string(fsdp.checkpoint_keeps);
      require(
          fsdp.recompute_share == 1.0,
          "fsdp.checkpoint_keeps = \"{}\" does not go with fsdp.recompute_share = {}: each says what is recomputed; "
          "expected 1.0.",
          keeps, fsdp.recompute_share);
      require(config.mesh.tensor == 1,
              "fsdp.checkpoint_keeps = \"{}\" does not go with mesh.tensor = {}: which exchanges a recomputation then "
              "repeats is not modelled; expected 1.",
              keeps, config.mesh.tensor);
      require(
          config.mesh.expert == 1 || fsdp.expert_unit == ExpertUnit::group || fsdp.expert_unit == ExpertUnit::bucket,
          "fsdp.checkpoint_keeps = \"{}\" does not go with fsdp.expert_unit = \"{}\": which hooks of the experts a "
          "recomputation then calls is not modelled; expected \"group\" or \"bucket\".",
          keeps, to_string(fsdp.expert_unit));
    }
    without_effect(notes, config.model.kind == ModelKind::mlp, "fsdp.activation_checkpointing",
                   "layers of model.kind = \"mlp\" keep nothing but their input");
    return;
  }
  without_effect(notes, fsdp.checkpoint_keeps != CheckpointKeeps::nothing, "fsdp.checkpoint_keeps",
                 "fsdp.activation_checkpointing is false");
  without_effect(notes, fsdp.checkpoint_reentrant, "fsdp.checkpoint_reentrant",
                 "fsdp.activation_checkpointing is false");
  without_effect(notes, fsdp.checkpoint_every != 1, "fsdp.checkpoint_every", "fsdp.activation_checkpointing is false");
  without_effect(notes, fsdp.recompute_share != 1.0, "fsdp.recompute_share", "fsdp.activation_checkpointing is false");
}

/// Name in messages for what mesh.shard and mesh.replicate divide among themselves.
std::string_view data_ranks_key(const Mesh& mesh) {
  return mesh.tensor == 1 ? "mesh.ranks" : "mesh.ranks / mesh.tensor";
}

/// One rank has nobody to share with. FSDP1 makes it no_shard, whatever was asked; FSDP2 copies its units and frees
/// them as if there were others.
void settle_single_rank(RunConfig& config, Notes& notes) {
  require(config.mesh.shard <= 1 && config.mesh.replicate <= 1,
          "mesh.shard = {} and mesh.replicate = {} do not fit {} = 1; leave them out.", config.mesh.shard,
          config.mesh.replicate, data_ranks_key(config.mesh));
  config.mesh.shard = config.mesh.replicate = 1;
  if (config.fsdp.reshard_after_forward.mode == ReshardAfterForward::Mode::group)
    config.fsdp.reshard_after_forward = {};
  if (config.fsdp.layout == Layout::per_param && config.fsdp.strategy != Strategy::no_shard) {
    notes.push_back(fmt::format(
        "{} = 1: {}, but units are copied and freed as fully_shard does; "
        "fsdp.strategy = \"no_shard\" leaves them where they are.",
        data_ranks_key(config.mesh), config.mesh.tensor == 1 ? "nothing is communicated" : "nothing is sharded"));
    return;
  }
  if (config.fsdp.strategy != Strategy::no_shard) {
    notes.push_back(
        fmt::format("{} = 1: fsdp.strategy = \"{}\" behaves as \"no_shard\"; there is nobody to communicate with.",
                    data_ranks_key(config.mesh), to_string(config.fsdp.strategy)));
  }
  config.fsdp.strategy = Strategy::no_shard;
  config.fsdp.reshard_after_forward = {};
}

void settle_hybrid(RunConfig& config, Notes& notes) {
  Mesh& mesh = config.mesh;
  const std::string_view strategy = to_string(config.fsdp.strategy), key = data_ranks_key(mesh);
  const std::int64_t ranks = mesh.data_ranks();
  require(
      mesh.shard > 0 || mesh.replicate > 0,
      "fsdp.strategy = \"{}\" needs mesh.shard (ranks that split a unit) or mesh.replicate (groups with equal shards); "
      "mesh.shard * mesh.replicate = {} = {}.",
      strategy, key, ranks);
  if (mesh.shard == 0) {
    require(ranks % mesh.replicate == 0, "mesh.replicate = {} does not divide {} = {}.", mesh.replicate, key, ranks);
    mesh.shard = ranks / mesh.replicate;
  }
  require(ranks % mesh.shard == 0, "mesh.shard = {} does not divide {} = {}.", mesh.shard, key, ranks);
  if (mesh.replicate == 0) mesh.replicate = ranks / mesh.shard;
  require(mesh.shard * mesh.replicate == ranks, "mesh.shard * mesh.replicate = {} * {} = {} is not {} = {}.",
          mesh.shard, mesh.replicate, mesh.shard * mesh.replicate, key, ranks);
  require(mesh.shard > 1 || config.fsdp.layout == Layout::per_param,
          "fsdp.strategy = \"{}\" with mesh.shard = 1 shards nothing; use \"no_shard\", mesh.shard above 1, or "
          "fsdp.layout = \"per_param\", which copies and frees as fully_shard does.",
          strategy);
  if (mesh.shard == 1) {
    notes.push_back(fmt::format(
        "mesh.shard = 1: fsdp.strategy = \"{}\" shards nothing, but copies and frees units as fully_shard does.",
        strategy));
  }
  if (mesh.replicate == 1) {
    notes.push_back(
        fmt::format("mesh.replicate = 1: fsdp.strategy = \"{}\" has no replicas to reduce across.", strategy));
  }
}

void settle_mesh(RunConfig& config, Notes& notes) {
  Mesh& mesh = config.mesh;
  const std::int64_t ranks = mesh.data_ranks();
  const std::string_view key = data_ranks_key(mesh);
  if (ranks == 1) return settle_single_rank(config, notes);
  if (is_hybrid(config.fsdp.strategy)) return settle_hybrid(config, notes);
  const bool none = config.fsdp.strategy == Strategy::no_shard;
  const std::int64_t shard = none ? 1 : ranks;
  const std::int64_t replicate = none ? ranks : 1;
  const char* instead = none ? "" : "; for fewer ranks a shard group use hybrid_shard or hybrid_shard_grad_op";
  require(mesh.shard == 0 || mesh.shard == shard,
          "mesh.shard = {} does not fit fsdp.strategy = \"{}\" with {} = {}; expected {} (or leave it out){}.",
          mesh.shard, to_string(config.fsdp.strategy), key, ranks, shard, instead);
  require(mesh.replicate == 0 || mesh.replicate == replicate,
          "mesh.replicate = {} does not fit fsdp.strategy = \"{}\" with {} = {}; expected {} (or leave it out){}.",
          mesh.replicate, to_string(config.fsdp.strategy), key, ranks, replicate, instead);
  mesh.shard = shard;
  mesh.replicate = replicate;
}

void check_reshard(RunConfig& config, Notes& notes) {
  ReshardAfterForward& reshard = config.fsdp.reshard_after_forward;
  if (reshard.mode == ReshardAfterForward::Mode::group) {
    require(config.mesh.shard % reshard.group == 0,
            "fsdp.reshard_after_forward = {} does not divide the shard group of {} ranks.", reshard.group,
            config.mesh.shard);
  }
  const bool copies = config.fsdp.layout == Layout::per_param && config.fsdp.strategy != Strategy::no_shard;
  without_effect(notes, config.mesh.shard == 1 && !copies && reshard.mode == ReshardAfterForward::Mode::always,
                 "fsdp.reshard_after_forward", "no unit is sharded");
  if (!config.fsdp.reshard_after_backward && config.train.accumulate == 1) {
    notes.push_back("fsdp.reshard_after_backward = false has no effect with train.accumulate = 1.");
  }
  if (!config.fsdp.wait_each_backward && config.train.accumulate == 1) {
    notes.push_back("fsdp.wait_each_backward = false has no effect with train.accumulate = 1.");
  }
}

void check_accumulate(RunConfig& config, Notes& notes) {
  if (config.train.accumulate_mode != AccumulateMode::reduce_scatter_only || is_hybrid(config.fsdp.strategy)) return;
  notes.push_back(
      fmt::format("train.accumulate_mode = \"reduce_scatter_only\" behaves as \"reduce_each\": "
                  "fsdp.strategy = \"{}\" has no replicas beside its shards.",
                  to_string(config.fsdp.strategy)));
  config.train.accumulate_mode = AccumulateMode::reduce_each;
}

/// The global batch stays when the number of ranks changes. After the mesh is settled.
void settle_batch(RunConfig& config, Notes& notes) {
  Train& train = config.train;
  if (train.batch_global == 0) return;
  const std::int64_t parts = config.mesh.sample_groups() * train.accumulate;  // below 2^37
  require(train.batch_global % parts == 0,
          "train.batch_global = {} cannot be split evenly over {} ranks and train.accumulate = {}; expected a multiple "
          "of {}, or other ranks.",
          train.batch_global, config.mesh.data_ranks(), train.accumulate, parts);
  const std::int64_t given = train.batch_per_rank, follows = train.batch_global / parts;
  const Field& per_rank = *find_field("train.batch_per_rank");
  require(per_rank.read(config, follows),
          "train.batch_global = {} makes train.batch_per_rank = {}; expected {}: raise train.accumulate.",
          train.batch_global, follows, per_rank.valid);
  if (follows == given) return;
  notes.push_back(fmt::format("train.batch_per_rank = {} follows from train.batch_global = {}; {} is not used.",
                              follows, train.batch_global, given));
}

/// Words of engines other than PyTorch's that need one another.
void check_engines(const RunConfig& config, Notes& notes) {
  const Fsdp& fsdp = config.fsdp;
  const bool rate = fsdp.forward_prefetch.mode == Prefetch::Mode::rate;
  require(rate == (fsdp.backward_prefetch.mode == Prefetch::Mode::rate),
          "fsdp.forward_prefetch = {} and fsdp.backward_prefetch = {}: \"rate\" follows one order through forward and "
          "backward, so both must be.",
          to_toml(encode(fsdp.forward_prefetch)), to_toml(encode(fsdp.backward_prefetch)));
  const bool learns = fsdp.learn_execution_order && (rate || fsdp.max_reuse_distance > 0);
  require(config.train.warmup > 0 || config.mesh.data_ranks() == 1 || (!learns && fsdp.persistence_threshold == 0),
          "train.warmup = 0 is too little: the first step {}, which later ones do not; expected at least 1.",
          rate     ? "learns the order of units and gathers on demand"
          : learns ? "learns the order of units and keeps none gathered for its next use"
                   : "gathers what stays gathered");
  require(fsdp.reduce_bucket == 0 || config.train.accumulate_mode != AccumulateMode::reduce_scatter_only,
          "fsdp.reduce_bucket = {} does not go with train.accumulate_mode = \"reduce_scatter_only\"; expected 0.",
          fsdp.reduce_bucket);
  require(
      !fsdp.head_unit || !config.model.tied_head,
      "fsdp.head_unit = true needs a head of its own: model.tied_head is true, and a parameter is in one unit alone.");
  const bool flat = fsdp.layout == Layout::flat;
  without_effect(notes, !rate && fsdp.max_live_parameters > 0, "fsdp.max_live_parameters",
                 "nothing is prefetched at a \"rate\"");
  without_effect(notes, !flat && fsdp.gradient_copy_in, "fsdp.gradient_copy_in",
                 "fsdp.layout is \"per_param\", which copies anyway");
  without_effect(notes, fsdp.reduce_bucket == 0 && fsdp.reductions_in_flight > 0, "fsdp.reductions_in_flight",
                 "fsdp.reduce_bucket is 0");
  without_effect(notes, fsdp.fp32_gradients && fsdp.param_dtype == DType::f32, "fsdp.fp32_gradients",
                 "fsdp.param_dtype is \"fp32\"");
}

/// Products in fewer bits, and parts of units that a smaller group keeps.
void check_products(const RunConfig& config, Notes& notes) {
  const Fsdp& fsdp = config.fsdp;
  without_effect(notes, !fsdp.fp8_products && fsdp.fp8_recipe != Fsdp().fp8_recipe, "fsdp.fp8_recipe",
                 "fsdp.fp8_products is false");
  without_effect(notes, fsdp.keep_group_shard && fsdp.reshard_after_forward.mode != ReshardAfterForward::Mode::group,
                 "fsdp.keep_group_shard", "fsdp.reshard_after_forward is no number of ranks");
}

/// State in host memory, and the way there.
void check_offload(const RunConfig& config, Notes& notes) {
  const Emulate& emulate = config.emulate;
  const std::string_view offload = to_string(config.fsdp.cpu_offload);
  const bool offloads = config.fsdp.cpu_offload != CpuOffload::none;
  require(config.fsdp.state_dtype == DType::f32 || !offloads,
          "fsdp.state_dtype = \"{}\" needs fsdp.cpu_offload = \"none\": the host updates in fp32.",
          to_string(config.fsdp.state_dtype));
  require(!offloads || !config.fsdp.cast_in_optimizer,
          "fsdp.cast_in_optimizer = true needs fsdp.cpu_offload = \"none\", and it is \"{}\": there the host updates.",
          offload);
  without_effect(notes, config.fsdp.cast_in_optimizer && config.fsdp.param_dtype == DType::f32,
                 "fsdp.cast_in_optimizer", "fsdp.param_dtype is \"fp32\", as the masters are");
  require(emulate.pcie_gb_per_s || emulate.pcie_latency_us == 0,
          "emulate.pcie_latency_us = {} is the latency of the modelled PCIe, and there is none: set "
          "emulate.pcie_gb_per_s.",
          emulate.pcie_latency_us);
  if (!offloads && emulate.pcie_gb_per_s) {
    notes.push_back("emulate.pcie_gb_per_s has no effect without fsdp.cpu_offload.");
  }
  const bool named = emulate.pcie_gb_per_s || !config.simulate.cluster.empty() || !config.simulate.calibration.empty();
  require(!offloads || config.device.backend != BackendKind::virtual_ || named,
          "fsdp.cpu_offload = \"{}\" copies over PCIe, and device.backend = \"virtual\" moves no bytes: name a machine "
          "(simulate.cluster) or a bandwidth (emulate.pcie_gb_per_s).",
          offload);
}

void check_rank(const char* key, std::int64_t rank, std::int64_t ranks) {
  require(rank < ranks, "{} = {} is no rank: mesh.ranks = {}, so expected -1 (none) or 0 to {}.", key, rank, ranks,
          ranks - 1);
}

void check_inject(const RunConfig& config, Notes& notes) {
  const Inject& inject = config.inject;
  check_rank("inject.slow_rank", inject.slow_rank, config.mesh.ranks);
  check_rank("inject.slow_link_rank", inject.slow_link_rank, config.mesh.ranks);
  check_rank("inject.delay_rank", inject.delay_rank, config.mesh.ranks);
  require(inject.slow_rank < 0 || inject.slow_rank_factor > 1,
          "inject.slow_rank = {} needs inject.slow_rank_factor: how many times slower it is, more than 1.",
          inject.slow_rank);
  require(inject.slow_link_rank < 0 || inject.slow_link_factor > 1,
          "inject.slow_link_rank = {} needs inject.slow_link_factor: how many times slower it is, more than 1.",
          inject.slow_link_rank);
  require(inject.slow_link_rank < 0 || config.emulate.link_gb_per_s || !config.simulate.cluster.empty(),
          "inject.slow_link_rank = {} needs a modelled link to slow down: set emulate.link_gb_per_s.",
          inject.slow_link_rank);
  require(inject.host_sync_after_layer < config.model.layers,
          "inject.host_sync_after_layer = {} is no layer: model.layers = {}, so expected -1 (never) or 0 to {}.",
          inject.host_sync_after_layer, config.model.layers, config.model.layers - 1);
  require(inject.delay_us == 0 || !inject.delay_lane.empty(),
          "inject.delay_us = {} needs inject.delay_lane: the lane to delay.", inject.delay_us);
  without_effect(notes, !inject.delay_lane.empty() && inject.delay_us == 0, "inject.delay_lane",
                 "inject.delay_us is 0");
}

/// The schedule of a step lists every layer of every microbatch: beyond this it takes gigabytes and minutes.
void check_schedule_size(const RunConfig& config) {
  constexpr std::int64_t kMostPasses = 1 << 15;
  const std::int64_t passes = config.model.layers * config.train.accumulate;
  require(
      passes <= kMostPasses,
      "model.layers = {} times train.accumulate = {} is {}; expected at most {}, since the schedule of a step lists "
      "every layer of every microbatch.",
      config.model.layers, config.train.accumulate, passes, kMostPasses);
}

void check_emulate(const Emulate& emulate) {
  require(
      emulate.link_gb_per_s || emulate.link_latency_us == 0,
      "emulate.link_latency_us = {} is the latency of the modelled link, and there is none: set emulate.link_gb_per_s.",
      emulate.link_latency_us);
}

/// A simulated rank computes at a rate that somebody names, and communicates over a link that somebody names.
void check_simulate(const RunConfig& config, Notes& notes) {
  const Simulate& simulate = config.simulate;
  if (config.device.backend != BackendKind::virtual_) {
    Simulate idle = simulate;  // a GPU's profile says for its simulations what its kernels are
    if (config.device.backend == BackendKind::cuda) {
      const Simulate defaults;
      idle.compiled = defaults.compiled;
      idle.framework = defaults.framework;
      idle.loss = defaults.loss;
      idle.host = defaults.host;
      idle.attention = defaults.attention;
      idle.efficiency = defaults.efficiency;
    }
    if (idle != Simulate{}) {
      notes.push_back(fmt::format(
          "{} has no effect: device.backend = \"{}\" measures this machine; `fsdpbench simulate` computes another.",
          idle.cluster.empty() ? "[simulate]" : "simulate.cluster", to_string(config.device.backend)));
    }
    return;
  }
  without_effect(notes, simulate.loss != Simulate::Loss::automatic && config.model.kind == ModelKind::mlp,
                 "simulate.loss", "the loss of model.kind = \"mlp\" has no logits");
  require(simulate.pause_chance == 0 || simulate.pause_us > 0,
          "simulate.pause_chance = {} needs simulate.pause_us: how long a pause lasts.", simulate.pause_chance);
  require(!simulate.measured_jitter || !simulate.calibration.empty(),
          "simulate.measured_jitter = true needs simulate.calibration: a file of `fsdpbench calibrate`, which says how "
          "ops scattered.");
  require(!simulate.measured_jitter || simulate.jitter_pct == 0,
          "simulate.measured_jitter = true and simulate.jitter_pct = {} both say how ops scatter; leave one out.",
          simulate.jitter_pct);
  // Only a cluster's simulation asks for these, and no profile of a GPU says them of its kernels.
  for (const char* key : {"simulate.placement", "simulate.collectives", "simulate.fused_optimizer",
                          "simulate.expandable_segments", "simulate.collective_checks"}) {
    const Field& field = *find_field(key);
    without_effect(notes, simulate.cluster.empty() && field.write(config) != field.write(RunConfig()), key,
                   "no simulate.cluster names a machine");
  }
  if (simulate.cluster.empty() && !simulate.efficiency.of.empty()) {
    notes.push_back(
        fmt::format("simulate.efficiency = \"{}\" has no effect: it is of a GPU, and no simulate.cluster names one.",
                    simulate.efficiency.of));
  }
  if (!simulate.calibration.empty()) {
    require(simulate.cluster.empty(),
            "simulate.calibration = \"{}\" and simulate.cluster = \"{}\" both say what ops take; leave one out.",
            simulate.calibration, simulate.cluster);
    if (config.emulate != Emulate{})
      notes.push_back("[emulate] has no effect: simulate.calibration says what ops take.");
    return;
  }
  require(
      !simulate.cluster.empty() || config.emulate.compute_tflops,
      "device.backend = \"virtual\" computes nothing: name a machine (simulate.cluster, a file of profiles/clusters) "
      "or a rate (emulate.compute_tflops, with emulate.link_gb_per_s).");
  require(
      !simulate.cluster.empty() || config.mesh.ranks == 1 || config.emulate.link_gb_per_s,
      "device.backend = \"virtual\" moves no bytes: name a machine (simulate.cluster, a file of profiles/clusters) or "
      "a bandwidth (emulate.link_gb_per_s).");
  require(simulate.cluster.empty() ||
              (!config.emulate.compute_tflops && !config.emulate.link_gb_per_s && !config.emulate.pcie_gb_per_s),
          "simulate.cluster = \"{}\" and emulate.* both say how fast ranks are; leave one out "
          "(--set emulate.compute_tflops=none --set emulate.link_gb_per_s=none --set emulate.pcie_gb_per_s=none).",
          simulate.cluster);
}

void check_saving(RunConfig& config, Notes& notes) {
  const bool simulated = config.device.backend == BackendKind::virtual_;
  if (!simulated && !config.emulate.compute_tflops) {
    without_effect(notes, config.checkpoint.folder.empty() && config.checkpoint.every > 0, "checkpoint.every",
                   "checkpoint.folder is empty");
    return;
  }
  if (config.checkpoint.folder.empty() && config.checkpoint.resume.empty()) return;
  notes.push_back(fmt::format("[checkpoint] has no effect: {}, so there is no training to save or to go on with.",
                              simulated ? "device.backend is \"virtual\"" : "emulate.compute_tflops computes nothing"));
  config.checkpoint = {};
}

/// A GPU runs what it runs: modelled links, modelled compute and slowed ranks exist on CPUs, and where nothing runs.
void check_device(const RunConfig& config, Notes& notes) {
  const bool cuda = config.device.backend == BackendKind::cuda;
  if (!cuda) {
    const std::string_view backend = to_string(config.device.backend);
    if (config.device.timer != Timer::automatic) {
      notes.push_back(fmt::format("device.timer has no effect: device.backend is \"{}\".", backend));
    }
    if (config.device.deterministic) {
      notes.push_back(fmt::format(
          "device.deterministic has no effect: device.backend is \"{}\", which gives the same bits always.", backend));
    }
    // A cluster's collectives are simulated over what is registered.
    const bool window = config.device.backend == BackendKind::virtual_ && !config.simulate.cluster.empty() &&
                        config.nccl.register_buffers == NcclRegister::window;
    Nccl idle = config.nccl;
    if (window) idle.register_buffers = NcclRegister::none;
    if (idle != Nccl{}) {
      notes.push_back(fmt::format("[nccl] has no effect{}: device.backend is \"{}\".",
                                  window ? " but for register_buffers" : "", backend));
    }
    return;
  }
  require(
      !config.emulate.link_gb_per_s && !config.emulate.compute_tflops && !config.emulate.pcie_gb_per_s,
      "emulate.link_gb_per_s, emulate.compute_tflops and emulate.pcie_gb_per_s need device.backend = \"cpu\": a GPU "
      "cannot emulate.");
  require(config.inject.slow_rank < 0,
          "inject.slow_rank = {} needs device.backend = \"cpu\"; on GPUs use inject.delay_lane with inject.delay_rank.",
          config.inject.slow_rank);
  require(
      config.nccl.cta_policy != CtaPolicy::zero || config.nccl.register_buffers == NcclRegister::window,
      "nccl.cta_policy = \"zero\" needs nccl.register_buffers = \"window\": copy engines move nothing else, and NCCL "
      "would use CTAs without a word.");
}

}  // namespace

bool is_hybrid(Strategy strategy) {
  return strategy == Strategy::hybrid_shard || strategy == Strategy::hybrid_shard_grad_op;
}

std::vector<std::string> validate(RunConfig& config) {
  Notes notes;
  check_each_key(config);
  check_model(config.model, notes);
  check_tensor(config);
  check_sequence(config);
  check_checkpointing(config, notes);
  settle_mesh(config, notes);
  check_expert_mesh(config, notes);
  check_context(config);
  check_frozen(config, notes);
  check_reshard(config, notes);
  check_accumulate(config, notes);
  settle_batch(config, notes);
  check_sequence_parallel(config, notes);
  check_engines(config, notes);
  check_products(config, notes);
  check_offload(config, notes);
  check_schedule_size(config);
  check_emulate(config.emulate);
  check_device(config, notes);
  check_simulate(config, notes);
  check_saving(config, notes);
  check_inject(config, notes);
  return notes;
}

}  // namespace fsdpbench::config
