"""fsdpbench.torch.profile_of without torch: what was seen of real models (tests/peer/profiles.py --models) as profiles."""

from __future__ import annotations

import copy
import json
import unittest
from typing import Any, Dict, List
from pathlib import Path

import support  # noqa: F401: finds the package

import fsdpbench as fb
from fsdpbench.torch.profile import Profile, differing_units, profile_from

MODELS = json.loads((Path(__file__).parent / "data/torch_models.json").read_text())["models"]
BATCH = {"train.seq_len": 128, "train.batch_per_rank": 1}


def seen(name: str) -> Dict[str, Any]:
    return copy.deepcopy(MODELS[name])


class OfAModel(unittest.TestCase):
    def profile(self, of: Dict[str, Any], **arguments: Any) -> Profile:
        return profile_from(of, set=BATCH, **arguments)

    def has(self, profile: Profile, **keys: Any) -> None:
        wanted = {key.replace("__", "."): value for key, value in keys.items()}
        self.assertEqual({key: profile.keys.get(key) for key in wanted}, wanted)

    def says(self, sentences: List[str], *words: str) -> None:
        self.assertEqual(len(sentences), len(words), sentences)
        for sentence, word in zip(sentences, words):
            self.assertIn(word, sentence)

    def test_a_sharded_llama_has_a_key_for_everything(self) -> None:
        model = seen("llama")
        profile = self.profile(model)
        self.has(profile, model__kind="decoder", model__layers=3, model__width=2048, model__heads=32, model__kv_heads=8,
                 model__ffn_width=8192, model__tied_head=False, mesh__ranks=8, mesh__shard=4, mesh__replicate=2,
                 fsdp__preset="fsdp2", fsdp__strategy="hybrid_shard", fsdp__wrap="block", fsdp__reshard_after_forward="auto",
                 fsdp__param_dtype="bf16", fsdp__reduce_dtype="fp32")
        self.assertEqual(profile.unread, [])
        self.assertEqual([name for name, _ in profile.units], ["", "model.layers.0", "model.layers.1", "model.layers.2"])
        self.assertEqual(differing_units(profile, model), [])

    def test_a_tied_head_checkpointing_and_offload(self) -> None:
        model = seen("tied, checkpointed, offloaded")
        profile = self.profile(model)
        self.has(profile, model__tied_head=True, fsdp__activation_checkpointing=True, fsdp__cpu_offload="all", mesh__ranks=8,
                 fsdp__param_dtype="fp32", fsdp__checkpoint_every=None)
        self.assertEqual(differing_units(profile, model), [])
        model["checkpointed"] = model["blocks"][::2]
        self.has(self.profile(model), fsdp__checkpoint_every=2)
        model["checkpointed"] = model["blocks"][1:]
        self.says(self.profile(model).unread, "2 of 3 blocks are checkpointed")

    def test_gpt2_with_blocks_that_are_no_units(self) -> None:
        model = seen("gpt2, every second block")
        profile = self.profile(model)
        self.has(profile, model__feed_forward="plain", model__norm="layer", model__bias=True, model__fused_projections=True,
                 model__learned_positions=1024, model__width=768, model__heads=12, model__ffn_width=3072)
        self.says(profile.unread, "2 of 4 blocks are in no unit of their own")
        self.says(differing_units(profile, model), "the model has 3 units, the profile's 5")

    def test_experts_of_a_model_that_is_not_wrapped(self) -> None:
        model = seen("gpt-oss")
        profile = self.profile(model, mesh={"dp_replicate": 2, "dp_shard": 8, "pp": 2})
        self.has(profile, model__experts=32, model__active_experts=4, model__attention_sinks=True, model__head_dim=64,
                 model__attention_window=128, model__full_attention_every=2, mesh__ranks=16, mesh__shard=8, mesh__replicate=2)
        self.says(profile.unread, "mesh dimension 'pp' of 2")
        self.assertEqual(differing_units(self.profile(model, mesh={"shard": 16}), model), [])
        self.says(self.profile(model).unread, "the model is not wrapped and mesh= was not given")

    def test_what_is_no_decoder_that_is_known_is_said(self) -> None:
        model = seen("deepseek")
        profile = self.profile(model)
        self.has(profile, model__layers=4, model__heads=1)
        self.says(profile.unread, "of 2 kinds", "not those of a decoder that is known here")
        self.assertIn("model.layers.3: 11,507,286,016 elements", differing_units(profile, model)[0])

    def test_a_head_that_is_a_unit_and_an_embedding_that_is_one(self) -> None:
        profile = self.profile(seen("qwen3, embedding and head apart"))
        self.has(profile, model__qk_norm=True, model__head_dim=128, fsdp__head_unit=True)
        self.says(profile.unread, "'model.embed_tokens' (1 parameters) is a unit of its own",
                  "reshard_after_forward is not the same in all units")

    def test_lists_to_prefetch(self) -> None:
        model = seen("llama")
        root, *units = model["units"]
        names = [unit["name"] for unit in units]
        for i, unit in enumerate(units):
            unit["forward"], unit["backward"] = names[i + 1:i + 3], names[:i][::-1][:2]
        root["forward"] = names[:1]
        self.has(self.profile(model), fsdp__forward_prefetch=2, fsdp__backward_prefetch=2)
        root["forward"] = []
        self.says(self.profile(model).unread, "the root prefetches 0 units in forward; the profile's one")
        units[0]["forward"] = names[2:3]
        units[2]["backward"] = [names[0]]
        self.says(self.profile(model).unread, "to prefetch in forward are not", "to prefetch in backward are not")
        for unit in units:
            unit["forward"], unit["backward"] = [], [unit["name"]]
        root["backward"] = [""]
        profile = self.profile(model)
        self.has(profile, fsdp__backward_prefetch="none", fsdp__forward_prefetch=None)
        self.assertEqual(profile.unread, [])

    def test_settings_that_differ_by_unit_and_flags_of_an_accumulation(self) -> None:
        model = seen("llama")
        model["units"][1].update(reduce_dtype="bf16", reduces=False)
        profile = self.profile(model)
        self.has(profile, fsdp__reduce_dtype="fp32")
        self.says(profile.unread, "reduce_dtype is not the same in all units", "between two microbatches")

    def test_the_batch_the_optimizer_and_a_frozen_part(self) -> None:
        model = seen("llama")
        model["optimizer"] = {"class": "AdamW", "groups": 2, "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "fused": True}
        model["parameters"]["model.norm.weight"]["frozen"] = True
        profile = profile_from(model)
        self.has(profile, train__optimizer="adamw", train__learning_rate=3e-4, train__beta2=0.95, train__weight_decay=0.1,
                 simulate__fused_optimizer=True)
        self.says(profile.unread, "2 groups of parameters", "2,048 elements are frozen", "say train.seq_len and train.batch_per_rank")

    def test_the_profile_is_a_file_that_the_program_takes(self) -> None:
        profile = self.profile(seen("llama"))
        run = fb.simulate(profile, cluster="dgx-h100", set={"train.steps": 2})
        self.assertEqual(run.setting("fsdp.strategy"), "hybrid_shard")
        self.assertGreater(run.step_ms, 0)
        profile.unread.append("something")
        self.assertIn("# Not in here: something\n", profile.text)
        profile.keys["fsdp.strategy"] = "sharded"
        with self.assertRaises(fb.ProgramError):
            fb.simulate(Profile(profile.keys), cluster="dgx-h100")


if __name__ == "__main__":
    unittest.main()
