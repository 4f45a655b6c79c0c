#pragma once

/// What --help says beside the options: of the program, and of each command.
namespace fsdpbench::app {

inline constexpr const char* kAbout =
    "fsdpbench measures how well the communication of Fully Sharded Data Parallel (FSDP) training hides behind\n"
    "computation. It trains a real model on CPU ranks, over real or emulated links, and says where time and memory "
    "go.\n";

inline constexpr const char* kExamples = R"(
Examples
  fsdpbench run quickstart
  fsdpbench run quickstart --set fsdp.backward_prefetch=none --out runs/no-prefetch
  fsdpbench run llama3-8b-emulated --set fsdp.strategy=shard_grad_op
  fsdpbench compare quickstart --b-set fsdp.backward_prefetch=none
  fsdpbench sweep prefetch-limit-link
  fsdpbench report runs/prefetch-limit-link
  fsdpbench report runs/first runs/no-prefetch
  fsdpbench explain llama3-8b-emulated --set mesh.ranks=64
  fsdpbench explain quickstart --format collectives
  fsdpbench explain --from runs/no-prefetch
  fsdpbench what-if runs/first --link-scale 2
  fsdpbench tune llama3-8b-emulated --memory 70GiB
  fsdpbench export llama3-8b-emulated --to pytorch-fsdp2,deepspeed
  fsdpbench accept cpu --set mesh.ranks=6
  fsdpbench baseline add runs/accepted
  fsdpbench gate runs/tonight --against baselines
  fsdpbench collectives all_gather reduce_scatter --ranks 4 -b 64K -e 64M -f 4
  fsdpbench trace check runs/*/trace.json
  fsdpbench doctor

Profiles are TOML files, looked up by name in profiles/runs here and where the program was built; a result folder is
the profile that it was made with. profiles/README.md lists all keys. The keys most people set:
  model.preset             quickstart, llama3-8b, gpt2-124m …: a file in profiles/models (profiles/README.md: which can be trained)
  mesh.ranks               how many ranks; mesh.shard and mesh.replicate for hybrid strategies
  train.steps              measured steps; train.seq_len and train.batch_per_rank set their size
  data.path                any file or folder, read as bytes
  fsdp.strategy            full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_grad_op
  fsdp.preset              fsdp1, fsdp2, deepspeed-z3, megatron-v2 …: all knobs as that engine has them
  fsdp.backward_prefetch   pre, post, none, or a depth
  fsdp.all_gather_limit    unlimited, fsdp1_queue:2, fsdp2_event, strict:2, bytes:64MiB
  fsdp.param_dtype         fp32 or bf16
  emulate.link_gb_per_s    bandwidth of a modelled link; "none" for the real one
  emulate.compute_tflops   modelled compute; "none" to compute

Exit codes
  0 done   1 failure   2 wrong profile, flag or data   3 memory or disk will not suffice   4 cannot write
  5 a rank failed   6 a measurement contradicts itself   7 slower: compare --fail-if-slower, gate
  8 training diverged: a loss or a final parameter is NaN or infinite
  9 a collective gave a wrong result   10 slower than demanded   11 accept or gate reached no verdict
  12 gate: not the machine, or not what the baseline measured
  130 stopped by Ctrl-C, SIGTERM or SIGHUP
)";

inline constexpr const char* kRunHelp = R"(
Writes into the result folder:
  result.json   every number, with the world it was measured in
  trace.json    a timeline of all ranks; open it at https://ui.perfetto.dev or chrome://tracing
  trace/        a file a rank, rank_0.json.gz …, for PyTorch's tools (HTA); `fsdpbench trace check` checks any of them
  config.toml   the complete resolved configuration; a profile itself
Ctrl-C stops after the current step and keeps what there is, marked as partial; a second Ctrl-C stops at once.
)";

inline constexpr const char* kSimulateHelp = R"(
The same schedules as `run` executes, walked on a computed clock: nothing runs, nothing sleeps, and the same seed gives
the same bytes. Writes what `run` writes, so compare, sweep, report and explain --from work on it; a profile with
device.backend = "virtual" is simulated by `run`, `sweep` and `compare`, too.
How fast ranks and links are
  --cluster NAME        a machine of profiles/clusters: GPUs, links, achieved rates, each with its source
  emulate.*             or plain rates, as `run` emulates them
Of many ranks the step times of all count, and trace.ranks of them are recorded: the first and the slowest among them.
Examples
  fsdpbench simulate llama3-8b-emulated --ranks 1024
  fsdpbench simulate llama3-8b-emulated --ranks 64 --cluster dgx-h100 --set train.seq_len=8192
  fsdpbench simulate quickstart --ranks 8 --set emulate.compute_tflops=0.02 --set simulate.jitter_pct=3
)";

inline constexpr const char* kExplainHelp = R"(
Formats
  table        plan, memory with and without FSDP, communication against data parallel, predicted step
  summary      one screen of it
  json         everything for programs, the schedule op by op; with --parameters also every piece of every parameter
  collectives  the order of collectives of a steady step on one line: AGR AG0 … | AG3* … RS3 …
               AG, RS, AR: all-gather, reduce-scatter, all-reduce; R: root unit; *: prefetched in backward
  issue        the order in which units are gathered (U), freed (S) and reduced (P)
Examples
  fsdpbench explain llama3-8b-emulated --format summary
  fsdpbench explain quickstart --parameters
  fsdpbench explain quickstart --schedule=blocks.2
  fsdpbench explain llama3-8b-emulated --set mesh.ranks=32 --compare-parallelism
  fsdpbench explain gpu-1b --tflops 400 --link-gb-per-s 100 --link-latency-us 5
)";

inline constexpr const char* kCalibrateHelp = R"(
Draws a line through the measured times of each kind of op, by its size: computation by FLOPs, collectives by bytes on
the wire and hops (from the arrival of the last rank, so that waiting for others is nobody's time), all else by bytes.
A simulation by the file says of how many ops the size was measured, lies between, or beyond.
With --beside what computation and collectives take of each other is taken out of the lines, and added where the simulated
step has them side by side.
Examples
  fsdpbench calibrate quickstart --set mesh.ranks=2 --out two-ranks.toml
  fsdpbench calibrate runs/a runs/b --out machine.toml
  fsdpbench collectives --ranks 2 -b 1M -e 64M -f 4 --beside --matrix 512,2048 -J beside.json
  fsdpbench calibrate runs/a runs/b --beside beside.json --out machine.toml
  fsdpbench simulate quickstart --ranks 2 --set simulate.calibration=two-ranks.toml --set fsdp.backward_prefetch=none
)";

inline constexpr const char* kWhatIfHelp = R"(
DIR is a finished run: a result folder of `run` or `simulate`. Nothing runs: its own measured op times (trace/rank_N)
are walked on a computed clock, once as it was, once as it would be. The first is shown beside the measured step, so
that its error says how far to trust the second.
What can be asked
  --set                 another policy: prefetch, limits, sharding, wrapping, accumulation, checkpointing
  --link-scale 2        bytes flow twice as fast; the latency of a hop stays
  --compute-scale 2     forward, backward and recomputation take half as long
  --without-straggler   the slowest rank computes as the median of the others
What a replay cannot know is refused: another model, machine or number of ranks. Collectives of other sizes and ops
that were never measured are fitted from those that were, and the answer says how many.
Examples
  fsdpbench what-if runs/first --set fsdp.backward_prefetch=none
  fsdpbench what-if runs/first --link-scale 0.5 --set fsdp.strategy=shard_grad_op
  fsdpbench what-if runs/monday --without-straggler --out runs/monday-even
)";

inline constexpr const char* kTuneHelp = R"(
What may be turned: strategy and mesh, resharding, wrapping, activation checkpointing, micro-batches at the same global
batch, prefetching, limits of all-gathers and reduce-scatters, communicators, and the presets of other engines.
Policies are walked on the computed clock (of --cluster, of a calibration, of emulated rates, or of the measured op times
of --from RESULT); bounds prune those that cannot be better. The configuration as it is is always among them.
Memory of a rank
  live       blocks in use, to the byte    reserved   what the allocator holds
  process    that, and what libraries and communicators take
Nothing is proposed that is predicted within its own error of the budget.
--from TRACE… are files of torch.profiler, one of each rank, or their folder: the job is recognised, its op times are the
machine's, and the answer says what to change in its own words (settings it has no word for are not proposed; batch and
activation checkpointing stay, since what activations take is not in a trace).
Files in DIR
  tuned.toml   a profile that run takes   tune.json, points.csv   every policy that was walked; report draws them
Examples
  fsdpbench tune llama3-8b-emulated --memory 70GiB
  fsdpbench tune llama3-8b-emulated --cluster dgx-h100 --memory 72GiB --memory-kind process --fix fsdp.preset
  fsdpbench tune --from runs/first --fix fsdp.strategy
  fsdpbench tune --from traces/ --memory 70GiB
  fsdpbench tune llama3-8b-emulated --memory 30GiB --verify 4 --export pytorch-fsdp2
)";

inline constexpr const char* kCheckpointHelp = R"(
`run --set checkpoint.folder=DIR` saves, `run --resume DIR` goes on. Safetensors files hold every parameter whole, in fp32
or bf16, in one file or in several with an index; transformers, PyTorch and JAX read them.
Examples
  fsdpbench checkpoint show saved --verify
  fsdpbench checkpoint export saved model.safetensors --names hugging-face
  fsdpbench checkpoint export saved model --names hugging-face --dtype bf16 --split 5GiB
  fsdpbench checkpoint import model.safetensors quickstart --into begun && fsdpbench run quickstart --resume begun
)";

inline constexpr const char* kTraceCheckHelp = R"(
Any Chrome trace, .json or .json.gz, from whatever program. What is checked: JSON, events, tracks, nesting of slices,
pairs of arrows, counters; and what PyTorch's tools (HTA) need of a rank's file: its rank, one launch for every kernel,
streams, names, the fields of collectives. src/trace/FORMAT.md lists the rules.
Exit codes
  0 all files keep to all rules   2 findings, each with its event and a sentence, or a file that cannot be read
)";

inline constexpr const char* kTraceExplainHelp = R"(
TRACE is what torch.profiler wrote (.json, .json.gz), one file a rank, or a folder of them; or what `nsys export --type
sqlite` made of a report of Nsight Systems; or trace/ of a run of this program. Nothing runs. It says what the job is (FSDP1, FSDP2, DeepSpeed, DDP, inference …) with the evidence, which
schedule it follows and where it does not, where a step's time went, which collectives were exposed and why, and what
would help, in that program's own words. What nothing in the files tells is said, too. With all ranks' files it also
tells who waited for whom; one rank's file is enough for the rest.
Files in DIR
  report/report.html   the page, drawn by the Python package as for `report`   explain.json   all numbers
  trace.json           all ranks on one timeline, with why nothing was computed, for ui.perfetto.dev
  fsdpbench trace explain traces/
  fsdpbench trace explain rank0.pt.trace.json.gz rank1.pt.trace.json.gz --out explained
Worth recording: with_stack is not needed, record_shapes neither; schedule(wait=2, warmup=2, active=3) gives steps.
Exit codes
  0 explained   2 a file that cannot be read, or no trace   6 times that do not add up
)";

inline constexpr const char* kTraceToProfileHelp = R"(
Prints a profile whose simulation repeats the traced job: its units, mesh, dtypes and schedule, and a calibration of
what its ops took. The job must be sharded training, with a file of every rank, whose order of collectives is one of the
schedules that are known here (trace explain says so).
  fsdpbench trace to-profile runs/one/trace > profile.toml
  fsdpbench simulate profile.toml
  fsdpbench tune --from traces/             all in one: what to change in the traced program
Exit codes
  0 printed   2 no such job, or a file that cannot be read   4 the calibration cannot be written
)";

inline constexpr const char* kCompareHelp = R"(
A and B run in turns (A B, B A, A B, ...), each time a short run, so that what the machine does meanwhile hits both
alike. Their trials, not their steps, are compared: the median ratio with its 99 % interval, and a verdict in words.
compare.json gets all values and the keys that differ, trials.jsonl each finished trial, at once: the same command with
--out of that folder goes on after a kill or Ctrl-C. The exit code is 0 whatever the verdict, or 7 for "slower" with
--fail-if-slower.
Two results of finished runs are compared as they are, and nothing runs, unless --rerun, --trials or a --set asks for
it. They did not take turns, so such a verdict is about two runs, not about two configurations.
Examples
  fsdpbench compare a.toml b.toml
  fsdpbench compare quickstart --b-set fsdp.backward_prefetch=none
  fsdpbench compare runs/monday runs/tuesday                  (their results)
  fsdpbench compare runs/monday runs/tuesday --trials 20      (their config.toml, run anew)
)";

inline constexpr const char* kAcceptHelp = R"(
Under mpirun, torchrun or srun one rank a process, else threads (--set mesh.ranks=N). What is measured, in this order:
  inventory    every rank's program, processor, kernel, libraries and GPU: who differs from the majority is named
  rendezvous   as many ranks as the profile expects
  devices      matrix products on all ranks at once, in 15 rounds: a slow rank
  GPUs         their clocks, what holds them down, errors and PCIe lanes meanwhile: who throttles
  pairs        one way and both ways, everybody with everybody up to 64 ends: a slow NIC, link or switch
  collectives  all-gather and reduce-scatter of the sizes of the run's own units, every element checked
  scales       the same in groups of 2, 4, ... all ranks; shard groups beside replicate groups
  steps        the run that the profile names: how much communication is exposed, who is late
  parts        a step's computation alone, its communication alone, and both, in turns
  soak         with --full: the parts again and again, for what is left of the budget: who grows slower
A verdict for each rule, with figure, interval and reason: pass, fail, inconclusive, unrated (no reference to hold it
against). What was not measured is never a pass. Written into the folder: result.json, junit.xml, summary.md,
metrics.prom (for Prometheus' textfile collector), worst_step.json (timeline of the slowest step). `fsdpbench report DIR`
draws them as one page.
Examples
  fsdpbench accept cpu --set mesh.ranks=6
  fsdpbench accept cpu --set mesh.ranks=4 --full --budget 10m
  srun -n 8 fsdpbench accept hgx-h100
  fsdpbench accept cpu --set mesh.ranks=6 --set emulate.link_gb_per_s=0.1 --set inject.slow_link_rank=2
Exit codes
  0 pass   9 a collective gave a wrong result   10 fail   11 inconclusive or unrated   others as fsdpbench --help
)";

inline constexpr const char* kBaselineHelp = R"(
A baseline is a file of accepted results of one machine that measured the same. Only what passed is taken: an accept
whose verdict is pass, a run or sweep that is complete and rated. From three results on it is known how much results of
this machine scatter; a result whose figure is off the others' is left out of that figure, and named.
Examples
  fsdpbench baseline add runs/accept-monday
  fsdpbench baseline add runs/accept-* --in /shared/baselines
  fsdpbench baseline add runs/odd --anyway "no reference for this fabric yet"
  fsdpbench baseline list
  fsdpbench baseline show acceptance-1f2e3d4c
)";

inline constexpr const char* kGateHelp = R"(
Every figure of the result is held against the baseline: worse, better, or no more than results of this machine differ
anyway, with the interval and what it rests on. The machines must be the same by processor, GPUs, memory, ranks, kernel,
drivers and libraries; differences are listed. The revision of fsdpbench may differ: that is what a CI asks about.
With --out: gate.json (fsdpbench report draws both sides), junit.xml, summary.md (as a job's summary).
Examples
  fsdpbench gate runs/tonight --against baselines
  fsdpbench gate runs/tonight --against acceptance-1f2e3d4c --out gate
  fsdpbench gate runs/driver-580 --against runs/driver-570 --other-software --out two-drivers
  fsdpbench report two-drivers
Exit codes
  0 nothing is worse   7 worse   11 inconclusive   12 another machine, or measured otherwise   others as fsdpbench --help
)";

inline constexpr const char* kSweepHelp = R"(
A sweep file names a base profile and axes: keys with lists of values. Every combination is a cell. Trials are
interleaved: a round runs one trial of every cell. Two files in DIR:
  trials.jsonl   each finished trial, at once: the same command goes on after a kill or Ctrl-C
  sweep.json     every cell with its medians, or why it failed
)";

}  // namespace fsdpbench::app
