"""torchtitan's own Trainer on CPU ranks: its llama3 debug model, its parallelize function, loss, optimizer and train_step,
on tokens that are drawn. Its device is the first accelerator or CUDA, so the CPU is made its accelerator before the
import; a monitor of GPU memory, CUDA graphs, tokenizer and data set are all that is left out.

Needs torchtitan 0.3 and what it imports, in an environment with PyTorch 2.15 that the exports' 0.2.2 is not in:
pip install --no-deps torchtitan==0.3.0 torch_checkpointing spmd_types==0.2.3; pip install 'datasets<4.8' tensorboard
tokenizers torchdata tyro wandb"""

import dataclasses

import torch
from torch.distributed.fsdp import FSDPModule

torch._utils._get_available_device_type = lambda: "cpu"

from torchtitan.components import loss, metrics  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.models.llama3 import config_registry, model_registry  # noqa: E402
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.config_utils import decoder_vocab_size  # noqa: E402
from torchtitan.tools import utils  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

SEQUENCE, BATCH = 64, 2


class Tokens(BaseDataLoader):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        vocabulary: int = 0

    def __init__(self, config, dp_rank=0, **_):
        self.vocabulary, self.generator = config.vocabulary, torch.Generator().manual_seed(dp_rank)

    def __iter__(self):
        while True:
            tokens = torch.randint(self.vocabulary, (BATCH, SEQUENCE + 1), generator=self.generator)
            yield {"input": tokens[:, :-1]}, tokens[:, 1:]

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class NoTokenizer(BaseTokenizer):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **_):
        super().__init__()

    def encode(self, *_, **__):
        return []

    def decode(self, *_, **__):
        return ""

    def get_vocab_size(self):
        return 0


class NoMemory:
    """Of a device that has no statistics of its memory."""
    device_name = "CPU"

    def get_peak_stats(self):
        return metrics.DeviceMemStats(*[0] * len(metrics.DeviceMemStats._fields))

    def reset_peak_stats(self):
        pass


def trainer_of(folder, accumulate, checkpoint, replicas):
    """Of the process group that there is; `accumulate` microbatches a step, full recomputation if `checkpoint`."""
    metrics.build_device_memory_monitor = NoMemory
    utils.get_local_device = lambda: torch.device("cpu")
    torch.cpu.empty_cache = lambda: None
    spec = model_registry("debugmodel")
    for _, attention, owner, name in list(spec.model.traverse(FlexAttention.Config)):
        setattr(owner, name, ScaledDotProductAttention.Config())  # the flexible one is compiled, for minutes
    config = config_registry.llama3_debugmodel()
    config.model_spec, config.dump_folder = spec, folder
    config.loss = loss.CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))
    config.tokenizer, config.dataloader = NoTokenizer.Config(), Tokens.Config(vocabulary=decoder_vocab_size(spec))
    ranks = torch.distributed.get_world_size()
    config.training = dataclasses.replace(config.training, local_batch_size=BATCH, seq_len=SEQUENCE, steps=10 ** 6,
                                          global_batch_size=BATCH * ranks * accumulate, disable_cuda_graphs=True)
    config.parallelism = dataclasses.replace(config.parallelism, data_parallel_replicate_degree=replicas,
                                             data_parallel_shard_degree=ranks // replicas)
    config.activation_checkpoint = FullAC.Config() if checkpoint else SelectiveAC.Config()
    config.validator.enable = config.checkpoint.enable = False
    config.metrics.log_freq = 1
    trainer = Trainer(config)
    for module in trainer.model_parts[0].modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # Gloo cannot scale while it sums
    return trainer
