"""Stands for torch_fsdp2.py where there is no PyTorch: reads what that reads, trains nothing, and writes what it writes."""

import json
import sys
from pathlib import Path

script, *arguments = sys.argv[1:]
sys.path.insert(0, str(Path(script).parent))
from byte_text import batch_of, text_of  # noqa: E402

options = dict(zip(arguments[::2], arguments[1::2], strict=True))
config = json.loads(Path(options["--config"]).read_text(encoding="utf-8"))["config"]
length = config["train"]["seq_len"] + 1
rows = batch_of(text_of(config["data"]["path"]), 0, 0, 1, config["train"]["batch_per_rank"], length)
if [len(row) for row in rows] != [length] * config["train"]["batch_per_rank"] or options["--mode"] not in ("eager", "compiled"):
    sys.exit(f"{options} and {rows} are not what torch_fsdp2.py expects")
Path(options["--out"]).write_text(json.dumps({"median_ms": 1.0}), encoding="utf-8")
