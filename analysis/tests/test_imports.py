"""Settings of other systems as keys, and that what export writes comes back."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, List, Optional

from support import FolderTest

from fsdpbench.imports.command import profile_of, settle
from fsdpbench.imports.settings import Refused, tomllib
from fsdpbench.imports.source import IMPORTERS, Import, make_import

LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
         "torch_dtype": "bfloat16", "bos_token_id": 1, "attention_bias": False}
SMALL = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 "


def read(*texts: str, ranks: Optional[int] = None, path: str = "file") -> Import:
    return make_import([(text, path) for text in texts], ranks)


def unread(found: Import) -> List[str]:
    return found.matters + found.rest


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([os.environ["FSDPBENCH_PROGRAM"], *arguments], capture_output=True, text=True,
                          env={**os.environ, "FSDPBENCH_PYTHON": sys.executable})


class ImportTest(unittest.TestCase):
    def refusal(self, *texts: str, **more: Any) -> str:
        with self.assertRaises(Refused) as caught:
            read(*texts, **more)
        return str(caught.exception)

    def check(self, found: Import, **keys: Any) -> None:
        """mesh__ranks=8 for mesh.ranks; None: not set."""
        for name, value in keys.items():
            self.assertEqual(found.keys.get(name.replace("__", ".")), value, name)

    def says(self, found: Import, *parts: str) -> None:
        for part in parts:
            self.assertTrue(any(part in sentence for sentence in [*unread(found), *found.missing.values()]), f"{part}: {unread(found)}")


class MissingPackageTest(unittest.TestCase):
    def test_it_is_named(self) -> None:
        without = "import sys; sys.modules['yaml'] = None; from fsdpbench.analysis.__main__ import main; sys.exit(main(['import']))"
        done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, cwd=Path(__file__).parent.parent)
        self.assertEqual((done.returncode, done.stderr.strip()),
                         (1, "error: Python's package yaml is missing; `make analysis` installs it."))


class ModelTest(ImportTest):
    def test_a_model_and_deepspeeds_settings_are_one_profile(self) -> None:
        found = read(json.dumps(LLAMA), json.dumps({
            "train_micro_batch_size_per_gpu": "auto", "train_batch_size": 64, "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7, "offload_optimizer": {"device": "cpu"},
                                  "round_robin_gradients": True}}), ranks=16)
        self.check(found, model__layers=32, model__ffn_width=14336, model__kv_heads=8, model__vocab=128256, fsdp__preset="deepspeed-z3",
                   fsdp__forward_prefetch="rate:50000000", fsdp__cpu_offload="optimizer", fsdp__reduce_dtype="bf16", mesh__ranks=16)
        self.says(found, "train_micro_batch_size_per_gpu = auto", "zero_optimization.round_robin_gradients = true", "a global batch of 64")
        self.assertEqual(len(unread(found)), 3, unread(found))

    def test_deepspeed_completes_the_batch(self) -> None:
        for more, local, accumulate in (({}, 4, 1), ({"gradient_accumulation_steps": 2}, 2, 2), ({"train_micro_batch_size_per_gpu": 1}, 1, 4)):
            found = read(json.dumps({"train_batch_size": 64, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}, **more}), ranks=16)
            self.check(found, train__batch_per_rank=local, train__accumulate=accumulate)
        for batch, micro, steps, fits in ((48, 4, None, "1, 2, 3, 4, 6, 12"), (64, 4, 2, "8"), (63, 4, None, "no number of"), (24, None, None, "1, 2, 3, 4, 6, 8, 12, 24")):
            said = {"train_batch_size": batch, "train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps, "zero_optimization": {"stage": 1}}
            self.assertIn(f"which it is on {fits} ranks", self.refusal(json.dumps({key: value for key, value in said.items() if value}), ranks=16))

    def test_experts_of_transformers_and_their_routers(self) -> None:
        def model(**more: Any) -> Import:
            return read(json.dumps({"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 32, "vocab_size": 99, **more}))
        qwen = model(model_type="qwen3_moe", moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2, norm_topk_prob=False,
                     decoder_sparse_step=1, router_aux_loss_coef=0.5, output_router_logits=True)
        self.check(qwen, model__experts=8, model__active_experts=2)
        self.assertEqual([*unread(qwen), *qwen.missing.values()], ["the number of ranks: --ranks"])
        deepseek = model(model_type="deepseek_v3", moe_intermediate_size=16, n_routed_experts=8, num_experts_per_tok=2, scoring_func="sigmoid",
                         n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=8, v_head_dim=4, num_key_value_heads=32)
        self.check(deepseek, model__kv_heads=2, model__head_dim=4, model__shared_experts=1)
        self.says(deepseek, "first_k_dense_replace = 1", "kv_lora_rank = 8: latent attention")
        qwen2 = model(model_type="qwen2_moe", moe_intermediate_size=1408, num_experts=60, num_experts_per_tok=4,
                      shared_expert_intermediate_size=5632)
        self.check(qwen2, model__shared_experts=4)
        self.says(qwen2, "shared_expert_gate")

    def test_the_text_of_a_model_of_images_is_read(self) -> None:
        found = read(json.dumps({"model_type": "llama4", "vision_config": {"hidden_size": 7}, "text_config": {
            "model_type": "llama4_text", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "num_local_experts": 8,
            "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}}))
        self.check(found, model__layers=3, model__shared_experts=1)
        self.says(found, "interleave_moe_layer_step = 2", "text_config")

    def test_names_of_models_are_taken_only_where_their_sizes_are_known(self) -> None:
        for name, preset in (("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3-8b"), ("NousResearch/Llama-3.2-1B", "llama3.2-1b"),
                             ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"), ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
                             ("Qwen/Qwen2.5-7B", None), ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", None), ("Qwen/Qwen3-0.6B", None)):
            self.check(read(f"base_model: {name}\nmicro_batch_size: 1\nbf16: true\n"), model__preset=preset)


class MegatronTest(ImportTest):
    def test_experts_of_torchtitan_and_megatron(self) -> None:
        parallelism = "[parallelism]\ndata_parallel_shard_degree = 8\nexpert_parallel_degree = "
        self.check(read(parallelism + "4\n"), mesh__expert=4, fsdp__preset="torchtitan-moe")
        self.check(read(parallelism + "1\n"), fsdp__preset="fsdp2")
        found = read(SMALL + "--num-experts 8 --moe-router-topk 2 --moe-router-score-function sigmoid --expert-model-parallel-size 4 "
                     "--moe-ffn-hidden-size 16 --moe-shared-expert-intermediate-size 32 --moe-shared-expert-overlap "
                     "--moe-router-bias-update-rate 0.001")
        self.check(found, mesh__expert=4, model__shared_experts=2)
        self.says(found, "moe-shared-expert-overlap")
        self.says(found, "moe-router-bias-update-rate = 0.001")
        experts = SMALL + "--num-experts 8 "
        limited = read(experts + "--moe-expert-capacity-factor 1.25 --moe-token-drop-policy position --moe-pad-expert-input-to-capacity")
        self.says(limited, "--moe-expert-capacity-factor 1.25: experts take all rows here", "moe-pad-expert-input-to-capacity")
        for none in ("--moe-expert-capacity-factor -1", "--moe-token-drop-policy probs"):
            self.assertFalse([sentence for sentence in unread(read(experts + none)) if "moe-" in sentence], none)
        self.says(read(experts + "--expert-model-parallel-size 4 --overlap-moe-expert-parallel-comm"), "beside the backward of another")

    def test_context_parallelism_of_torchtitan_and_megatron(self) -> None:
        common = SMALL + ("--global-batch-size 8 --micro-batch-size 1 --context-parallel-size 4 "
                          "--data-parallel-sharding-strategy optim_grads_params ")
        def megatron(more: str) -> Import:
            return read(common + more, ranks=8)
        self.check(megatron(""), mesh__context=4, train__accumulate=4)
        self.says(megatron(""), "--cp-comm-type p2p: all_gather stands for it")
        for kind in ("p2p", "a2a", "a2a+p2p", "all_gather a2a"):
            self.says(megatron(f"--cp-comm-type {kind}"), f"--cp-comm-type {kind}: all_gather stands for it")
        self.assertFalse([sentence for sentence in unread(megatron("--cp-comm-type all_gather")) if "cp-comm-type" in sentence])
        self.says(read("--num-layers 2 --context-parallel-size 4"),
                  "context-parallel-size = 4: mesh.context does not go with fsdp.strategy = no_shard")
        both = megatron("--tensor-model-parallel-size 2")
        self.check(both, mesh__context=None)
        self.says(both, "context-parallel-size = 4: mesh.context does not go with mesh.tensor")
        parallelism = "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\ncontext_parallel_degree = 2\n"
        self.check(read(parallelism), mesh__context=2, mesh__ranks=16, mesh__shard=8)
        rotates = read(parallelism + 'context_parallel_rotate_method = "alltoall"\n')
        self.says(rotates, "nothing goes around a ring")

    def test_megatron_recomputes_modules_of_a_layer(self) -> None:
        def megatron(flags: str) -> Import:
            return read("--num-layers 4 --hidden-size 256 --num-attention-heads 8 --use-megatron-fsdp "
                        f"--data-parallel-sharding-strategy optim_grads_params --bf16 {flags}\n", ranks=8)
        def selective(modules: str) -> Import:
            return megatron("--recompute-granularity selective " + modules)
        experts = " --num-experts 8 --moe-router-topk 2"
        self.check(selective(""), fsdp__checkpoint_keeps="all_but_attention")
        self.check(megatron("--recompute-activations"), fsdp__checkpoint_keeps="all_but_attention")
        self.check(selective("--recompute-modules mlp"), fsdp__checkpoint_keeps="all_but_feed_forward")
        self.check(selective("--recompute-modules moe" + experts), fsdp__checkpoint_keeps="all_but_feed_forward",
                   fsdp__activation_checkpointing=True)
        self.check(megatron("--recompute-granularity full --recompute-method uniform"), fsdp__checkpoint_keeps=None,
                   fsdp__activation_checkpointing=True)
        two = selective("--recompute-modules layernorm moe" + experts)
        self.check(two, fsdp__checkpoint_keeps="all_but_feed_forward")
        self.says(two, "--recompute-modules layernorm: what it saves is kept here")
        others = selective("--recompute-modules moe_act layernorm" + experts)
        self.check(others, fsdp__activation_checkpointing=None)
        self.says(others, "--recompute-modules moe_act layernorm: what they save is kept here")
        split = selective("--tensor-model-parallel-size 2 --recompute-modules mlp")
        self.check(split, fsdp__activation_checkpointing=True)
        self.says(split, "--recompute-modules mlp: with mesh.tensor whole layers stand for it")
        self.says(selective("--tensor-model-parallel-size 2"),
                  "--recompute-modules core_attn: with mesh.tensor nothing is recomputed for it")

    def test_megatrons_arguments_have_a_model(self) -> None:
        found = read("ARGS=(\n --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32\n"
                     " --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear\n"
                     " --untie-embeddings-and-output-weights --position-embedding-type rope --max-position-embeddings 8192\n"
                     " --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --bf16\n"
                     " --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --pipeline-model-parallel-size 2\n)\n", ranks=64)
        self.check(found, model__kv_heads=8, model__bias=False, train__accumulate=4, fsdp__preset="megatron-v1", model__vocab=None)
        self.assertEqual(unread(found), ["pipeline-model-parallel-size = 2: the ranks of one stage, with all layers, are in the profile"])
        self.assertIn("model.vocab", found.missing)

    def test_a_vocabulary_is_the_tokenizers_or_asked_for(self) -> None:
        flags = SMALL + "--bf16 --use-megatron-fsdp "
        self.check(read(flags + "--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B"), model__vocab=128256)
        self.check(read(flags + "--tokenizer-type GPT2BPETokenizer"), model__vocab=50304)
        self.check(read(flags + "--vocab-size 1000 --tokenizer-type GPT2BPETokenizer"), model__vocab=1000)
        found = read(flags + "--tokenizer-model /data/mine.model", ranks=8)
        with self.assertRaisesRegex(Refused, r"vocabulary, which is the tokenizer's \(/data/mine.model\): --set model.vocab"):
            settle(found)
        settle(read(flags, ranks=8), ["model.vocab=512"])

    def test_a_script_is_read_as_its_shell_would(self) -> None:
        found = read("#!/bin/bash\nTP=${TP:-2}\nGPUS=8\nNODES=${2:-4}\nSEQ=$((1024 * 4))\nDTYPE=fp8\n"
                     "MODEL=(\n  --num-layers 4  # few\n  --hidden-size ${HIDDEN:-256}\n  --num-attention-heads 8\n  --seq-length $SEQ\n)\n"
                     "if [[ \"$DTYPE\" == \"fp8\" ]]; then\n  MODEL+=(\"--fp8-format hybrid\")\nelse\n  MODEL+=(--micro-batch-size 7)\nfi\n"
                     "case $DTYPE in\n  bf16) MODEL+=(--micro-batch-size 8) ;;\n  fp*) MODEL+=(--micro-batch-size 3) ;;\nesac\n"
                     "OPTIONS=\" \\\n  --bf16 \\\n  --tensor-model-parallel-size $TP\"\n"
                     "torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py \\\n  \"${MODEL[@]}\" ${OPTIONS} \\\n"
                     "  --vocab-size 512 --save $SOMEWHERE\n", path="train.sh")
        self.check(found, model__layers=4, model__width=256, train__seq_len=4096, mesh__tensor=2, mesh__ranks=32, fsdp__param_dtype="bf16",
                   train__batch_per_rank=3, fsdp__fp8_products=True, model__vocab=512)

    def test_a_distributed_optimizer_shards_it(self) -> None:
        self.check(read(SMALL + "--use-distributed-optimizer --bf16"), fsdp__strategy="shard_grad_op", train__accumulate_mode="no_sync")
        self.check(read(SMALL + "--bf16"), fsdp__strategy="no_shard")

    def test_what_only_a_run_knows_is_asked_for_where_it_decides(self) -> None:
        script = "#!/bin/bash\nTP=${1}\n: \"${LAYERS:=4}\"\nif [ $2 = bf16 ]; then\n  P=--bf16\nfi\n"
        script += "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size ${TP} --num-layers $LAYERS --lr $3 $P "
        script += "--hidden-size 64 --num-attention-heads 4 --vocab-size 512 --seq-length 128 --micro-batch-size 1\n"
        found = read(script, path="train.sh")
        self.check(found, model__layers=4)
        self.says(found, "lr = $3")
        with self.assertRaisesRegex(Refused, r"tensor-model-parallel-size = \$\{1\}, which only a run of the script knows"):
            settle(found)
        settle(read(script.replace("${1}", "2"), path="train.sh"))

    def test_ranks_of_a_pipeline_are_one_stages(self) -> None:
        found = read(SMALL + "--pipeline-model-parallel-size 4 --tensor-model-parallel-size 2 --global-batch-size 8 --micro-batch-size 1", ranks=32)
        self.check(found, mesh__ranks=8, mesh__tensor=2, train__accumulate=2)

    def test_a_word_that_is_no_dtype_is_asked_for(self) -> None:
        found = read("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nmixed_precision: bf61\nnum_processes: 8\n")
        self.check(found, fsdp__param_dtype=None)
        self.assertIn("bf61 is no dtype that is known", found.missing["fsdp.param_dtype"])

    def test_primus(self) -> None:
        def primus(framework: str, model: str, overrides: str) -> str:
            return f"modules:\n  pre_trainer:\n    framework: {framework}\n    config: pre_trainer.yaml\n    model: {model}\n    overrides:\n{overrides}"
        found = read(primus("megatron", "llama3.1_8B.yaml", "      micro_batch_size: 2\n      global_batch_size: 128\n      seq_length: 8192\n"
                            "      tensor_model_parallel_size: 1\n      use_torch_fsdp2: true\n      sequence_parallel: 1\n      load: null\n"
                            "      recompute_granularity: full\n"), ranks=8)
        self.check(found, model__preset="llama3-8b", fsdp__preset="fsdp2", fsdp__strategy="full_shard", train__batch_per_rank=2,
                   train__accumulate=8, fsdp__param_dtype="bf16", fsdp__activation_checkpointing=True)
        titan = read(primus("torchtitan", "llama3.1_70B.yaml", "      training:\n        local_batch_size: 3\n        seq_len: 8192\n"
                            "      activation_checkpoint:\n        mode: full\n"), ranks=8)
        self.check(titan, model__preset="llama3-70b", train__batch_per_rank=3, fsdp__activation_checkpointing=True, mesh__ranks=8)
        self.assertIn("megatron and torchtitan can be imported", self.refusal(primus("maxtext", "llama2_7B.yaml", "      a: 1\n")))
        # Its model's file has more sizes than are changed here: they are not mixed with Megatron-LM's defaults.
        experts = read(primus("megatron", "mixtral_8x7B_v0.1.yaml", "      num_layers: 4\n      expert_model_parallel_size: 8\n"), ranks=8)
        self.check(experts, model__preset="mixtral-8x7b", model__layers=None, model__feed_forward=None, mesh__expert=8)
        self.says(experts, "num-layers = 4: the sizes of the named model are taken")

    def test_nanotron(self) -> None:
        found = read("model:\n  dtype: bfloat16\n  model_config:\n    is_llama_config: true\n    hidden_size: 64\n    intermediate_size: 128\n"
                     "    num_attention_heads: 4\n    num_hidden_layers: 2\n    num_key_value_heads: 2\n    vocab_size: 512\n"
                     "    tie_word_embeddings: true\noptimizer:\n  accumulate_grad_in_fp32: true\n  clip_grad: 1.0\n  zero_stage: 1\n"
                     "  optimizer_factory:\n    name: adamW\n    adam_beta1: 0.9\nparallelism:\n  dp: 4\n  tp: 2\n  pp: 2\n"
                     "  tp_mode: REDUCE_SCATTER\ntokens:\n  micro_batch_size: 3\n  sequence_length: 4096\n  batch_accumulation_per_replica: 5\n")
        self.check(found, model__layers=2, model__tied_head=True, fsdp__preset="deepspeed-z1", mesh__ranks=8, mesh__tensor=2,
                   mesh__sequence_parallel=True, train__batch_per_rank=3, train__seq_len=4096, train__accumulate=5, fsdp__param_dtype="bf16",
                   fsdp__reduce_dtype="fp32", fsdp__fp32_gradients=True)
        self.says(found, "parallelism.pp = 2")


class TorchtitanTest(ImportTest):
    def test_its_arguments_are_its_tomls(self) -> None:
        of_file = read("[training]\nlocal_batch_size = 2\nglobal_batch_size = 32\nseq_len = 8192\n[parallelism]\n"
                       "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n[activation_checkpoint]\nmode = \"full\"\n"
                       "[model]\nflavor = \"8B\"\n")
        of_arguments = read("--training.local_batch_size=2 --training.global_batch_size 32 \\\n--training.seq_len=8192\n"
                            "--parallelism.data-parallel-replicate-degree=2\n--parallelism.data_parallel_shard_degree=4\n--model.flavor=8B\n"
                            "activation_checkpoint:full\n")
        self.assertEqual((of_file.keys, unread(of_file)), (of_arguments.keys, unread(of_arguments)))
        self.assertEqual(unread(of_file), ["model.flavor = 8B"])
        self.check(of_file, fsdp__strategy="hybrid_shard", train__accumulate=2, mesh__ranks=8)
        named = '[model]\nname = "llama3"\nflavor = "8B"\nconverters = ["float8"]\n[training]\nseq_len = 128\n[float8]\nrecipe_name = "rowwise"\n'
        self.check(read(named), model__preset="llama3-8b", fsdp__fp8_products=True, fsdp__fp8_recipe="rowwise")

    def test_selective_checkpointing_keeps_every_second_product(self) -> None:
        def titan(option: str) -> Import:
            return read("[training]\nlocal_batch_size = 2\nseq_len = 8192\n[parallelism]\ndata_parallel_shard_degree = 4\n"
                        f"[activation_checkpoint]\nmode = \"selective\"\n{option}")
        self.check(titan('selective_ac_option = "op"\n'), fsdp__checkpoint_keeps="every_second_product")
        self.check(titan(""), fsdp__checkpoint_keeps="every_second_product")
        self.check(titan('selective_ac_option = "2"\n'), fsdp__checkpoint_every=2, fsdp__checkpoint_keeps=None)

    def test_degrees_of_torchtitan_0_1_stand_in_other_tables(self) -> None:
        found = read('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 2\nseq_len = 8192\n'
                     'data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 4\n'
                     '[experimental]\ncontext_parallel_degree = 1\n[activation_checkpoint]\nmode = "full"\n', ranks=64)
        self.check(found, mesh__tensor=4, mesh__replicate=2, mesh__ranks=64, fsdp__strategy="hybrid_shard")

    def test_selective_checkpointing_beside_split_products_is_of_whole_blocks(self) -> None:
        for degree, key in (("tensor_parallel_degree", "mesh.tensor"), ("context_parallel_degree", "mesh.context")):
            found = read('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 2\nseq_len = 8192\n[parallelism]\n'
                         f'{degree} = 2\n[activation_checkpoint]\nmode = "selective"\n', ranks=8)
            settle(found)
            self.check(found, fsdp__activation_checkpointing=True, fsdp__checkpoint_keeps=None, train__batch_per_rank=2)
            self.says(found, f"recomputation of every second product: with {key} whole blocks stand for it")

    def test_ranks_are_asked_for_where_groups_depend_on_them(self) -> None:
        found = read('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 8\n')
        with self.assertRaisesRegex(Refused, "before this is known: the number of ranks: --ranks"):
            settle(found)

    def test_ranks_that_the_groups_do_not_make_are_told(self) -> None:
        found = read('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n[parallelism]\n'
                     'data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n', ranks=16)
        self.check(found, mesh__ranks=8)
        self.says(found, "16 ranks: the groups in the file make 8")

    def test_the_loss_is_compiled_where_components_name_it(self) -> None:
        def titan(lines: str) -> Import:
            return read(f"[training]\nlocal_batch_size = 2\nseq_len = 8192\n{lines}[activation_checkpoint]\nmode = \"full\"\n", ranks=8)
        blocks = titan('[compile]\nenable = true\ncomponents = ["model"]\n')
        self.check(blocks, simulate__compiled=True, simulate__loss="eager")
        self.assertEqual(unread(blocks), [])
        for components in ("", 'components = ["model", "loss"]\n', 'components = "model,loss"\n'):
            self.check(titan("[compile]\nenable = true\n" + components), simulate__compiled=True, simulate__loss=None)
        self.check(titan('[compile]\nenable = true\ncomponents = ["loss"]\n'), simulate__compiled=None, simulate__loss="fused")
        self.check(titan("[compile]\nenable = false\n"), simulate__loss="eager")
        self.check(titan(""), simulate__loss=None)
        # Its loss is over parts of the logits.
        self.check(titan("[parallelism]\ntensor_parallel_degree = 2\n[compile]\nenable = false\n"), simulate__loss=None)
        old = titan("compile = true\n")
        self.check(old, simulate__compiled=True)
        self.assertRegex(" ".join(unread(old)), "from 2024-12-18 to 2025-04-02")

    def test_automodel(self) -> None:
        found = read("recipe: TrainFinetuneRecipeForNextTokenPrediction\nstep_scheduler:\n  global_batch_size: 32\n  local_batch_size: 2\n"
                     "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
                     "  pretrained_model_name_or_path: meta-llama/Llama-3.3-70B-Instruct\ndistributed:\n  strategy: fsdp2\n  dp_size: none\n"
                     "  tp_size: 4\n  cp_size: 1\n  sequence_parallel: true\n  activation_checkpointing: true\npacked_sequence:\n"
                     "  packed_sequence_size: 1024\noptimizer:\n  _target_: torch.optim.AdamW\n  betas: [0.9, 0.95]\n  lr: 1.0e-5\n", ranks=32)
        self.check(found, model__preset="llama3-70b", mesh__tensor=4, mesh__ranks=32, train__accumulate=2, train__seq_len=1024,
                   fsdp__param_dtype="bf16", fsdp__reduce_dtype="fp32", fsdp__activation_checkpointing=True, train__beta2=0.95,
                   mesh__sequence_parallel=True, fsdp__strategy="full_shard")

        self.assertIn("of no system", self.refusal("recipe: TrainBiEncoderRecipe\nstep_scheduler:\n  local_batch_size: 2\nmodel:\n  a: b\n"
                                                   "distributed:\n  strategy: fsdp2\n"))

    def test_torchruns_processes_are_torchtitans_ranks(self) -> None:
        found = read("torchrun --nproc_per_node=4 --nnodes 2 -m torchtitan.train --training.seq_len 128 --parallelism.tensor_parallel_degree 2\n")
        self.check(found, mesh__ranks=8, mesh__tensor=2)

    def test_prime_rl(self) -> None:
        sft = read('[model]\nname = "meta-llama/Llama-3.1-8B"\ncp = 2\n[model.ac]\nfreq = 2\n[data]\nseq_len = 1024\nbatch_size = 64\n'
                   "micro_batch_size = 1\n[optim]\nlr = 1e-5\n", ranks=8)
        self.check(sft, model__preset="llama3-8b", mesh__context=2, train__accumulate=16, fsdp__checkpoint_every=2, train__seq_len=1024,
                   train__learning_rate=1e-5)
        reinforced = read('seq_len = 8192\n[model]\nname = "Qwen/Qwen3-8B"\n[deployment]\nnum_train_gpus = 2\n[orchestrator]\nbatch_size = 512\n'
                          "[trainer.model]\nreshard_after_forward = false\n")
        self.check(reinforced, mesh__ranks=2, train__seq_len=8192, fsdp__strategy="shard_grad_op", model__preset="qwen3-8b")


class TrainerTest(ImportTest):
    def test_accelerates_yaml_with_quotes_lists_and_comments(self) -> None:
        found = read("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP # x\nfsdp_config:\n  fsdp_version: 1\n"
                     "  fsdp_sharding_strategy: 'HYBRID_SHARD'\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 1000\n"
                     "  fsdp_backward_prefetch: BACKWARD_POST\n  fsdp_new: 3\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"
                     "extra:\n- one\n")
        self.check(found, fsdp__strategy="hybrid_shard", mesh__shard=8, fsdp__wrap="size:1000", fsdp__backward_prefetch="post")
        self.assertEqual(sorted(unread(found)), ["extra.0 = one", "fsdp_config.fsdp_new = 3"])
        self.check(read("distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\n", ranks=16), mesh__ranks=16)  # --ranks wins

    def test_accelerates_parallelism(self) -> None:
        def mesh(ranks: Optional[int] = None, **sizes: int) -> Import:
            words = "".join(f"  parallelism_config_{name}_size: {size}\n" for name, size in sizes.items())
            return read("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
                        f"mixed_precision: bf16\nnum_processes: 8\nparallelism_config:\n{words}", ranks=ranks)
        self.check(mesh(dp_replicate=2, dp_shard=2, tp=2, cp=1), mesh__ranks=8, mesh__tensor=2, mesh__shard=2, mesh__replicate=2,
                   fsdp__strategy="hybrid_shard")
        self.check(mesh(dp_replicate=1, dp_shard=1, tp=1, cp=8), mesh__ranks=8, mesh__context=8, mesh__shard=None, fsdp__strategy="full_shard")
        self.check(mesh(dp_replicate=2, dp_shard=2, cp=2), mesh__context=2, mesh__shard=4, mesh__replicate=2)
        other = mesh(16, dp_replicate=2, dp_shard=2, tp=2, cp=1)
        self.check(other, mesh__ranks=8)
        self.says(other, "16 ranks: the groups in the file make 8, which are in the profile")

    def test_one_process_shards_nothing(self) -> None:
        for word in ("NO", '"NO"'):
            self.check(read(f"distributed_type: {word}\nmixed_precision: bf16\n"), mesh__ranks=1, fsdp__strategy="no_shard", fsdp__param_dtype="bf16")

    def test_a_precision_that_nobody_said_is_asked_for(self) -> None:
        auto = json.dumps({"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
                           "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})
        self.check(read(auto, json.dumps(LLAMA), ranks=8), fsdp__param_dtype="bf16", fsdp__reduce_dtype="bf16")
        found = read(auto, json.dumps({**LLAMA, "torch_dtype": None}), ranks=8)
        self.check(found, fsdp__param_dtype=None)
        with self.assertRaisesRegex(Refused, "bf16.enabled = auto .*--set fsdp.param_dtype=bf16"):
            settle(found)
        self.assertIn("fsdp.param_dtype", read("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 8\n").missing)

    def test_axolotl(self) -> None:
        common = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: auto\n"
        found = read(common + "dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config:\n"
                     "  offload_params: false\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  reshard_after_forward: true\n"
                     "gradient_checkpointing: true\n")
        self.check(found, model__preset="llama3-8b", train__seq_len=2048, train__accumulate=4, mesh__ranks=16, mesh__shard=4, mesh__replicate=2,
                   mesh__tensor=2, fsdp__preset="fsdp2", fsdp__param_dtype="bf16", fsdp__activation_checkpointing=True, fsdp__wrap="block")
        first = read(common + "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: true\n", ranks=8)
        self.check(first, fsdp__preset="fsdp1", fsdp__strategy="full_shard", fsdp__wrap="block", fsdp__cpu_offload="all")
        adapter = read(common + "adapter: qlora\nlora_r: 32\nlora_alpha: 16\nlora_target_linear: true\nload_in_4bit: true\n"
                       "deepspeed: deepspeed_configs/zero2.json\n", ranks=8)
        self.check(adapter, model__lora_rank=32, model__lora_alpha=16.0, fsdp__preset="deepspeed-z2")
        self.says(adapter, "load_in_4bit", "deepspeed_configs/zero2.json")

    def test_llama_factory(self) -> None:
        common = "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\ndo_train: true\ntemplate: llama3\nbf16: true\n"
        found = read(common + "finetuning_type: lora\nlora_rank: 16\nlora_target: all\ncutoff_len: 4096\nper_device_train_batch_size: 2\n"
                     "gradient_accumulation_steps: 8\ndeepspeed: examples/deepspeed/ds_z3_offload_config.json\n", ranks=8)
        self.check(found, model__preset="llama3-8b", model__lora_rank=16, model__lora_alpha=32.0, train__seq_len=4096, train__batch_per_rank=2,
                   fsdp__preset="deepspeed-z3", fsdp__cpu_offload="all", fsdp__activation_checkpointing=True, fsdp__param_dtype="bf16")
        self.check(read(common.replace("bf16", "pure_bf16")), fsdp__state_dtype="bf16")
        self.assertIn("trains nothing", self.refusal("model_name_or_path: a\ntemplate: llama3\n"))

    def test_llm_foundry(self) -> None:
        text = ("variables:\n  max_seq_len: 2048\nmax_seq_len: ${variables.max_seq_len}\nmodel:\n  name: mpt_causal_lm\n  d_model: 4096\n"
                "  n_heads: 32\n  n_layers: 32\n  expansion_ratio: 4\n  vocab_size: 50368\nglobal_train_batch_size: 1024\n"
                "device_train_microbatch_size: 8\nprecision: amp_bf16\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n  mixed_precision: PURE\n"
                "  activation_checkpointing: true\n  limit_all_gathers: true\noptimizer:\n  name: decoupled_adamw\n  lr: 1.2e-4\n"
                "algorithms:\n  gradient_clipping:\n    clipping_type: norm\n    clipping_threshold: 1.0\n")
        self.check(read(text, ranks=64), model__ffn_width=16384, model__learned_positions=2048, model__vocab=50368, train__seq_len=2048,
                   train__accumulate=2, train__batch_per_rank=8, fsdp__preset="fsdp1", fsdp__strategy="full_shard", fsdp__reduce_dtype="bf16",
                   fsdp__activation_checkpointing=True, train__clip_norm=1.0)
        self.assertIn("train.batch_per_rank", read(text.replace("size: 8\n", "size: auto\n"), ranks=64).missing)
        self.check(read(text.replace("PURE", "DEFAULT")), fsdp__param_dtype="bf16", fsdp__reduce_dtype="fp32")
        for other in ("mosaic_bert", "resnet50"):
            self.assertIn("of no system", self.refusal(text.replace("mpt_causal_lm", other)))

    def test_verl(self) -> None:
        found = read("set -x\nMODEL_PATH=Qwen/Qwen3-8B\nsp=2\npython3 -m verl.trainer.main_ppo \\\n    data.max_prompt_length=512 \\\n"
                     "    data.max_response_length=$((1024 * 1 + 512)) \\\n    actor_rollout_ref.model.path=$MODEL_PATH \\\n"
                     "    actor_rollout_ref.actor.strategy=fsdp2 \\\n    actor_rollout_ref.actor.ppo_mini_batch_size=64 \\\n"
                     "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\\n    actor_rollout_ref.rollout.n=4 \\\n"
                     "    actor_rollout_ref.actor.ulysses_sequence_parallel_size=$sp \\\n    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 \\\n"
                     "    actor_rollout_ref.model.enable_gradient_checkpointing=True \\\n    trainer.n_gpus_per_node=8 \\\n"
                     "    trainer.nnodes=2 $@\n", path="run.sh")
        self.check(found, model__preset="qwen3-8b", mesh__ranks=16, mesh__replicate=2, mesh__shard=8, mesh__context=2, train__seq_len=2048,
                   train__batch_per_rank=4, train__accumulate=8, fsdp__param_dtype="bf16", fsdp__reduce_dtype="fp32", fsdp__preset="fsdp2",
                   fsdp__activation_checkpointing=True)
        found = read("python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' \\\n"
                     "    actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2\n", ranks=8)
        self.check(found, fsdp__preset="megatron-v1", mesh__tensor=2)
        base = "defaults:\n  - ppo_megatron_trainer\n  - _self_\nactor_rollout_ref:\n  model:\n    path: Qwen/Qwen3-8B\n    lora:\n      rank: 8\n"
        self.check(read(base, ranks=8), fsdp__preset="megatron-v1", model__lora_rank=8, model__lora_alpha=16.0)


class RefusedTest(ImportTest):
    def test_files_that_are_of_no_system(self) -> None:
        self.assertIn("file: of no system that can be imported. Those are: Accelerate", self.refusal("{}"))
        self.assertIn("file: no JSON", self.refusal('{"model_type": '))
        self.assertIn("file: no num_hidden_layers", self.refusal('{"model_type": "clip", "hidden_size": 4}'))
        self.assertIn("of no system", self.refusal("[mesh]\nranks = 4\n"))
        self.assertIn("file:1: no TOML", self.refusal("[mesh\nranks = 4\n"))
        self.assertIn("list.json: of no system", self.refusal("[]", path="list.json"))
        self.assertNotIn("\n", self.refusal("a\0b"))
        self.assertIn("file:3: no YAML", self.refusal("distributed_type: FSDP\nnothing\n"))
        self.assertIn("import its JSON", self.refusal("distributed_type: DEEPSPEED\n"))
        self.assertIn("zero_optimization.stage = 4: 0, 1, 2 or 3", self.refusal('{"zero_optimization": {"stage": 4}}'))
        self.assertIn("of no system", self.refusal(""))
        self.assertIn("of no system", self.refusal("services:\n  web:\n    image: nginx\n"))
        self.assertIn("nested more than", self.refusal('{"a":' * 100 + "1" + "}" * 100))
        self.assertIn("nested more than", self.refusal("a: " + "[" * 5000))

    def test_aliases_of_yaml_do_not_explode(self) -> None:
        lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"] + [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
        self.assertRegex(self.refusal("\n".join(lines)), "settings|nested")

    def test_what_must_be_known_is_asked_for(self) -> None:
        with self.assertRaisesRegex(Refused, "the sizes of Qwen/Qwen2.5-7B are not known here: give its config.json"):
            settle(read("base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\nbf16: true\n"))
        with self.assertRaisesRegex(Refused, "no file has a model: .*--model NAME"):
            settle(read("distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n"))

    def test_settings_that_matter_come_first_and_the_rest_is_one_line(self) -> None:
        found = read("base_model: meta-llama/Llama-3.1-8B\nbf16: true\nmicro_batch_size: 1\nsequence_len: 128\nzz: 1\nxx: 2\n"
                     "some_parallel_size: 4\n", ranks=8)
        settle(found)
        lines = [line for line in profile_of(found).text.splitlines() if line.startswith("#")]
        self.assertIn("# Not in here: some_parallel_size = 4", lines)
        self.assertEqual(lines[-1], "# Not in here: what no key stands for: xx = 2, zz = 1")

    def test_each_importer_is_registered_once(self) -> None:
        self.assertGreater(len(IMPORTERS), 12)
        self.assertEqual(len({each.system for each in IMPORTERS}), len(IMPORTERS))


@unittest.skipUnless(os.environ.get("FSDPBENCH_PROGRAM"), "the program is not named")
class ProgramTest(FolderTest):
    def bodies(self, files: Path) -> Dict[str, Any]:
        """Files of an export without what is for people."""
        found: Dict[str, Any] = {}
        for name in ("accelerate.yaml", "deepspeed.json", "megatron_lm.sh", "torchtitan.toml", "torchtitan_0.3.args"):
            text = (files / name).read_text()
            value = json.loads(text) if name.endswith("json") else [line for line in text.splitlines() if not line.startswith("#")]
            if isinstance(value, dict):
                value.pop("_comment", None)
            found[name] = value
        return found

    def export(self, profile: str, name: str) -> Optional[Dict[str, Any]]:
        file, out = self.folder / f"{name}.toml", self.folder / name
        file.write_text(profile)
        shutil.rmtree(out, ignore_errors=True)
        done = program("export", str(file), "--to", "accelerate,deepspeed,megatron-fsdp,torchtitan", "--out", str(out))
        return None if done.returncode else self.bodies(out)

    def comes_back(self, head: str, ranks: int, layers: int, keys: Dict[str, Any]) -> bool:
        """Exports, imports, exports again. The model and the ranks are told, as these systems' files do not have them."""
        told = {"fsdp": {}, "train": {}, "mesh": {"ranks": ranks}}  # type: Dict[str, Dict[str, Any]]
        for key, value in keys.items():
            told[key.split(".")[0]][key.split(".")[1]] = value
        toml = head + "".join(f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())
                              for table, rows in told.items())
        first = self.export(toml, "first")
        if first is None:
            return False  # keys that contradict each other
        for file in first:
            text = (self.folder / "first" / file).read_text()
            found = make_import([(text, file), (json.dumps({**LLAMA, "num_hidden_layers": layers}), "config.json")], ranks)
            found.keys = {key: value for key, value in found.keys.items() if not key.startswith("model.")}
            for key in ("train.seq_len", "train.batch_per_rank"):
                found.keys.setdefault(key, keys[key])
            body = "".join(line + "\n" for line in profile_of(found).text.splitlines() if not line.startswith("#"))
            again = self.export(head + body, "again")
            assert again is not None, f"{file}: {body}"
            self.assertEqual(again[file], first[file], f"{file}\n{toml}\n{body}")
        return True

    def test_what_is_exported_comes_back(self) -> None:
        draw = random.Random(11)
        values: Dict[str, List[Any]] = {
            "fsdp.preset": ["fsdp1", "fsdp2"], "fsdp.strategy": ["full_shard", "shard_grad_op", "no_shard", "hybrid_shard"],
            "fsdp.backward_prefetch": ["pre", "post", "none"], "fsdp.wrap": ["block", "model", "size:100000"], "fsdp.param_dtype": ["bf16", "fp32"],
            "fsdp.reduce_dtype": ["bf16", "fp32"], "fsdp.activation_checkpointing": [True, False], "fsdp.cpu_offload": ["none", "all", "optimizer"],
            "fsdp.forward_prefetch": ["implicit", "explicit:1"], "fsdp.reduce_bucket": [0, 500000], "train.seq_len": [64, 128],
            "fsdp.gradient_scaling": ["average", "sum"], "fsdp.reduce_lane": ["reduce_scatter", "compute"],
            "train.batch_per_rank": [1, 2], "train.accumulate": [1, 2, 4], "train.learning_rate": [0.001, 3e-05], "train.beta2": [0.95, 0.999],
            "train.weight_decay": [0.0, 0.1], "train.clip_norm": [0.0, 1.0], "train.accumulate_mode": ["reduce_each", "no_sync"]}
        compared = 0
        for _ in range(20):
            keys = {key: draw.choice(choices) for key, choices in values.items()}
            if keys["fsdp.strategy"] == "hybrid_shard":
                keys.update({"mesh.shard": 4, "mesh.replicate": 2})
            compared += self.comes_back('[model]\npreset = "quickstart"\n', 8, 4, keys)
        self.assertGreater(compared, 7)

    def test_what_is_exported_of_each_preset_comes_back(self) -> None:
        known = program("help", "keys", "fsdp.preset").stdout + program("help", "keys", "fsdp").stdout
        presets = [word for word in ("fsdp1", "fsdp2", "deepspeed-z1", "deepspeed-z2", "deepspeed-z3", "deepspeed-z3-hpz",
                                     "megatron-v1", "megatron-v2", "simplefsdp", "xla", "torchtitan-moe") if f'"{word}"' in known]
        self.assertGreater(len(presets), 8)
        for preset in presets:
            keys = {"fsdp.preset": preset, "train.accumulate": 2, "train.seq_len": 128, "train.batch_per_rank": 2}
            head = '[model]\npreset = "quickstart"\n'
            if preset == "torchtitan-moe":
                head += "experts = 8\nactive_experts = 2\n"
                keys["mesh.expert"] = 4
            with self.subTest(preset):
                self.assertTrue(self.comes_back(head, 8, 4, keys))

    def imported(self, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = program("import", *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_the_command_writes_a_profile_that_loads(self) -> None:
        model, accelerate = self.folder / "config.json", self.folder / "a.yaml"
        model.write_text(json.dumps({**LLAMA, "tie_word_embeddings": True}))
        accelerate.write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nmixed_precision: bf16\nnum_processes: 8\n")
        done = self.imported(str(accelerate), str(model), "--set", "train.seq_len=2048", "--set", "train.batch_per_rank=1")
        profile = tomllib.loads(done.stdout)
        self.assertEqual((profile["mesh"]["ranks"], profile["fsdp"]["head_unit"], profile["train"]["seq_len"]), (8, False, 2048))
        self.assertEqual(done.stderr, "")
        out = self.folder / "profile.toml"
        self.imported(str(accelerate), "--model", "llama3.2-1b", "--out", str(out))
        self.assertEqual(tomllib.loads(out.read_text())["fsdp"]["head_unit"], False)
        self.assertEqual(program("explain", str(out)).returncode, 0)
        self.assertIn("--overwrite", self.imported(str(accelerate), "--model", "llama3-8b", "--out", str(out), code=2).stderr)
        self.assertIn("known are", self.imported(str(accelerate), "--model", "llama9", code=2).stderr)
        self.assertIn("no file has a model", self.imported(str(accelerate), code=2).stderr)
        self.assertIn("mesh.ranks", self.imported(str(accelerate), str(model), "--set", "mesh.tensor=3", code=2).stderr)
        self.assertIn("the nearest valid key is 'mesh.ranks'", self.imported(str(accelerate), str(model), "--set", "mesh.rank=3", code=2).stderr)
        self.assertIn("no such key", self.imported(str(accelerate), str(model), "--set", "mesh=3", code=2).stderr)
        self.assertIn("is no file", self.imported(str(self.folder), code=2).stderr)
        self.assertIn("No such file", self.imported(str(self.folder / "none"), code=2).stderr)

    def test_without_a_file_it_lists_the_systems(self) -> None:
        said = self.imported().stdout
        for each in IMPORTERS:
            self.assertIn(f"{each.system}: {each.files}", said)


if __name__ == "__main__":
    unittest.main()
