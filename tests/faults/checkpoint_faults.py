"""Kills at random moments of saving and of training: what is complete loads, is right, and the same command goes on."""

import signal
import time

import harness
import promises
from fault import Case, all_ended, fault
from harness import PATIENCE_S, TINY, sets, until

RANKS = 2
STEPS = 30  # in all
BASE = [*TINY, f"mesh.ranks={RANKS}", "train.warmup=1", f"train.steps={STEPS - 1}"]
STRATEGIES = ("full_shard", "shard_grad_op", "no_shard")


def complete(c: Case, folder: str = "saved") -> list[int]:
    """Steps of the checkpoints that are complete, the newest last."""
    return sorted(int(path.parent.name[5:]) for path in (c.folder / folder).glob("step-*/manifest.json"))


def state(c: Case, folder: str, steps: int) -> dict[str, bytes]:
    """Content of the ranks, by file."""
    return {file.name: file.read_bytes() for file in (c.folder / folder / f"step-{steps:09}").glob("rank-*.bin")}


def check_newest(c: Case, before: int) -> None:
    """Never less than there was, every byte as it was saved, and the state of a training that was never killed."""
    steps = complete(c)
    if not steps or steps[-1] < before:
        raise promises.Broken(f"after step {before} there was a checkpoint, and now there are {steps}")
    if state(c, "saved", steps[-1]) != state(c, "whole", steps[-1]):
        raise promises.Broken(f"the checkpoint after step {steps[-1]} is not that of a training which was never killed")


def saving(c: Case, every: int, out: str, more: tuple[str, ...]) -> list[str]:
    keys = [f"checkpoint.every={every}", f"checkpoint.keep={c.chance.choice((1, 2, 5))}"]
    return ["run", "quickstart", *sets(*BASE, *more, "checkpoint.folder=saved", *keys), "--resume", "saved", "--out", out,
            "--overwrite"]


def killed(c: Case, every: int, as_processes: bool, more: tuple[str, ...] = ()) -> None:
    more = (*more, f"fsdp.strategy={c.chance.choice(STRATEGIES)}")
    whole = c.bench.call("run", "quickstart", *sets(*BASE, *more, "checkpoint.folder=whole", "checkpoint.every=1",
                                                    f"checkpoint.keep={STEPS}"), "--out", "whole-out")
    if whole.popen.returncode:
        raise promises.Broken(f"a training that nobody disturbed failed: {whole.err[-600:]}")
    c.killed = True
    before = 0
    for attempt in range(2):
        arguments = saving(c, every, f"out-{attempt}", more)
        started = c.bench.torchrun(*arguments, ranks=RANKS) if as_processes else [c.bench.start(*arguments)]
        dead = c.chance.randrange(len(started))
        until(lambda: (complete(c) and complete(c)[-1] > before) or not started[dead].running(), "it has saved something")
        time.sleep(c.chance.uniform(0, 0.06) * PATIENCE_S / 60)
        before = (complete(c) or [0])[-1]
        started[dead].signal(signal.SIGKILL)
        all_ended(c, started, {dead: signal.SIGKILL})
        check_newest(c, before)
        before = complete(c)[-1]
        if before == STEPS:
            return
    rest = c.bench.start(*saving(c, every, "rest", more))
    if c.ended(rest) != harness.OK:
        raise promises.Broken(f"the same command does not go on: {rest.err[-600:]}")
    if state(c, "saved", STEPS) != state(c, "whole", STEPS):
        raise promises.Broken("a training that was killed and went on has ended elsewhere")


@fault(2)
def checkpoint_killed_saving(c: Case) -> None:
    """Nearly all of its time goes into saving."""
    killed(c, every=1, as_processes=False)


@fault(1)
def checkpoint_killed_split_layers(c: Case) -> None:
    """Four ranks, of which pairs split layers, and now and then the tokens."""
    tokens = c.chance.choice(("true", "false"))
    killed(c, every=c.chance.choice((1, 3)), as_processes=False,
           more=("mesh.ranks=4", "mesh.tensor=2", f"mesh.sequence_parallel={tokens}"))


@fault(1)
def checkpoint_killed_training(c: Case) -> None:
    killed(c, every=c.chance.choice((3, 7)), as_processes=False)


@fault(1)
def checkpoint_rank_killed(c: Case) -> None:
    """One of two processes; the other ends by itself."""
    killed(c, every=c.chance.choice((1, 3)), as_processes=True)
