"""Gives the stored exports of tests/golden/export to those who will read them: `python parsers.py [NAME …]`.

Each system's own parser must take its file, and make of it what the file says. A system that is not installed is
skipped, with the reason; `make check-peer-parsers` installs all that PyPI has.
"""

import importlib.metadata
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

EXPORTS = pathlib.Path(__file__).parent.parent / "golden" / "export"


def run_script(path, **replaced):
    """A Python file, as a module; `replaced` stand for names that it imports."""
    module = types.ModuleType(path.stem)
    exec(compile(path.read_text(), path.name, "exec"), module.__dict__)
    module.__dict__.update(replaced)
    return module


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def pytorch(folder):
    import torch
    for name in ("pytorch_fsdp2.py", "pytorch_fsdp1.py"):
        module = run_script(folder / name)
        expect(callable(module.apply_fsdp) and callable(module.train_step), name)
        optimizer = module.make_optimizer(torch.nn.Linear(2, 2))
        expect(isinstance(optimizer, torch.optim.Optimizer), name)


def deepspeed(folder):
    from deepspeed.runtime.config import DeepSpeedConfig
    path = folder / "deepspeed.json"
    written = json.loads(path.read_text())
    read = DeepSpeedConfig(str(path))
    expect(read.train_micro_batch_size_per_gpu == written["train_micro_batch_size_per_gpu"], "micro-batch")
    expect(read.gradient_accumulation_steps == written["gradient_accumulation_steps"], "accumulation")
    expect(not {"optimizer", "gradient_clipping"} & set(written), "what decides about learning is the user's")
    fields = {field.alias or name: name for name, field in type(read.zero_config).model_fields.items()}
    for key, value in written["zero_optimization"].items():
        expect(key in fields, f"zero_optimization.{key} is no field of DeepSpeed's")
        was_read = getattr(read.zero_config, fields[key])
        if isinstance(value, dict):  # a configuration of its own, with fields that are not written
            was_read = {name: getattr(was_read, name) for name in value}
        expect(was_read == value, f"zero_optimization.{key}: {was_read} instead of {value}")


def megatron_fsdp(folder):
    from megatron_fsdp import fully_shard_model
    signature = inspect.signature(fully_shard_model)
    calls = []
    module = run_script(folder / "megatron_fsdp.py",
                        fully_shard_model=lambda *args, **kwargs: calls.append(signature.bind(*args, **kwargs)))
    module.apply_fsdp("model", "mesh", ["Block"])
    expect(calls[0].arguments["fsdp_unit_modules"] == ["Block"], "units")
    subprocess.run(["bash", "-n", folder / "megatron_lm.sh"], check=True)


def torchtitan(folder):
    import tomllib
    import torchtitan.config
    path = folder / "torchtitan.toml"
    written = tomllib.loads(path.read_text())
    if not hasattr(torchtitan.config, "JobConfig"):
        return torchtitan_arguments(folder)
    read = torchtitan.config.ConfigManager().parse_args(["--job.config_file", str(path)])
    for table, keys in written.items():
        for key, value in keys.items():
            expect(getattr(getattr(read, table), key) == value, f"{table}.{key}")


def torchtitan_arguments(folder):
    """Versions from 0.3 on: what their ConfigManager does with arguments, without a model's registry."""
    import dataclasses
    import tyro
    from torchtitan.config.configs import ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import ActivationCheckpointingConfig
    settings = dataclasses.make_dataclass("Settings", [
        ("training", TrainingConfig, dataclasses.field(default_factory=TrainingConfig)),
        ("parallelism", ParallelismConfig, dataclasses.field(default_factory=ParallelismConfig)),
        ("activation_checkpoint", ActivationCheckpointingConfig, dataclasses.field(default=None))])
    arguments = (folder / "torchtitan_0.3.args").read_text().split()
    arguments = [argument for argument in arguments if "symm_mem" not in argument]  # asks for a GPU
    read = tyro.cli(settings, args=arguments)
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if argument.startswith("--") and value:
            table, key = name.split(".")
            found = getattr(getattr(read, table), key)
            expect(found == type(found)(value), argument)


def accelerate(folder):
    """The environment that `accelerate launch` gives a script, and the Accelerator that reads it."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.dataclasses import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env
    import yaml
    path = folder / "accelerate.yaml"
    written = yaml.safe_load(path.read_text())
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "--main_process_port", "0", "train.py"])
    arguments, _, _ = _validate_launch_command(arguments)
    expect(arguments.num_processes == written["num_processes"], "num_processes")
    keys = {key.removeprefix("fsdp_"): value for key, value in written["fsdp_config"].items()}
    environment = prepare_multi_gpu_env(arguments) | {"FSDP_SYNC_MODULE_STATES": "false"}  # on, it asks for a GPU
    with_environment(environment, lambda: check_plugin(FullyShardedDataParallelPlugin(), keys))


def with_environment(variables, call):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        call()
    finally:
        os.environ.clear()
        os.environ.update(before)


def check_plugin(plugin, written):
    """`written`: keys of fsdp_config, without "fsdp_" before them."""
    expect(plugin.fsdp_version == written["version"], "version")
    if plugin.fsdp_version == 2:
        expect(plugin.reshard_after_forward == written["reshard_after_forward"], "reshard_after_forward")
    else:
        # Which of the two counts is as Accelerator.prepare_model has it.
        strategy = plugin.sharding_strategy or plugin.reshard_after_forward
        expect(strategy.name.lstrip("_") == written["sharding_strategy"], f"sharding strategy {strategy.name}")
        word = "NO_PREFETCH" if plugin.backward_prefetch is None else plugin.backward_prefetch.name
        expect(word == written["backward_prefetch"], "backward_prefetch")
        expect(plugin.forward_prefetch == written["forward_prefetch"], "forward_prefetch")
    offloads = getattr(plugin.cpu_offload, "offload_params", type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy")
    expect(offloads == written["offload_params"], "offload_params")
    expect(plugin.activation_checkpointing == written["activation_checkpointing"], "activation checkpointing")


def hf_trainer(folder):
    """The Trainer's fsdp_config, and what the script puts into the environment for Accelerate."""
    import transformers  # noqa: F401: named first, so that a missing one is what is said
    module = run_script(folder / "hf_trainer.py")
    with_environment({}, lambda: check_trainer(module, folder))


def check_trainer(module, folder):
    from accelerate.utils.dataclasses import FullyShardedDataParallelPlugin
    with tempfile.TemporaryDirectory() as out:
        read = module.training_arguments(out, use_cpu=True)
    arguments = dict(read.fsdp_plugin_args)
    arguments.pop("sync_module_states", None)  # on by default, and asks for a GPU
    written = dict(module.FSDP_CONFIG)
    written["offload_params"] = written.pop("cpu_offload", False)
    if written["version"] == 1:  # Accelerate's file is of the same profile
        import yaml
        accelerate_file = yaml.safe_load((folder / "accelerate.yaml").read_text())
        written["sharding_strategy"] = accelerate_file["fsdp_config"]["fsdp_sharding_strategy"]
    check_plugin(FullyShardedDataParallelPlugin(**arguments), written)


def maxtext(folder):
    """MaxText is not on PyPI: its file is YAML. XLA ends a process that is given a flag it does not know."""
    import yaml
    import jax  # noqa: F401
    written = yaml.safe_load((folder / "maxtext.yml").read_text())
    expect(written["base_config"] == "base.yml" and written["ici_fsdp_parallelism"] != 0, "maxtext.yml")
    command = f". {folder / 'xla_flags.sh'} && {sys.executable} -c 'import jax; jax.devices()'"
    ran = subprocess.run(["bash", "-c", command], env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
                         capture_output=True, text=True)
    expect(ran.returncode == 0, ran.stderr[-500:])


CHECKS = {"pytorch": ("torch", pytorch), "deepspeed": ("deepspeed", deepspeed),
          "megatron-fsdp": ("megatron-fsdp", megatron_fsdp), "torchtitan": ("torchtitan", torchtitan),
          "accelerate": ("accelerate", accelerate), "hf-trainer": ("transformers", hf_trainer),
          "maxtext": ("jax", maxtext)}


def main():
    folders = sorted(path.parent for path in EXPORTS.glob("*/profile.toml"))
    failed = 0
    for name, (package, check) in CHECKS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: skipped, {package} is not installed (make check-peer-parsers)")
            continue
        for folder in folders:
            try:
                check(folder)
            except Exception as error:
                failed += 1
                print(f"{name} ({package} {version}): {folder.name}: {type(error).__name__}: {error}")
        print(f"{name}: {len(folders)} exports given to {package} {version}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
