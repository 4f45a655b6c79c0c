#!/usr/bin/python3
"""profiles/recorded/engines/questions.csv, asked again: a line is what `simulate scaling-base` says with these keys on this
cluster, on 64 ranks if they name no others.

    engine_questions.py PROGRAM SOURCE_FOLDER [CSV]

writes what they are now to CSV; without it, in place.
"""

import csv
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

FIGURES = ("step_ms", "exposed_comm_ms", "peak_bytes")


def asked(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def answer(program: str, source: Path, row: dict[str, str]) -> dict[str, str]:
    """The row with the figures of today."""
    keys = ["mesh.ranks=64", f"simulate.cluster={row['cluster']}", *row["keys"].split()]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "simulate", str(source / "profiles/runs/scaling-base.toml"), "--quiet", "--out",
                        f"{folder}/run", *(word for key in keys for word in ("--set", key))],
                       check=True, stdout=subprocess.DEVNULL)
        result = json.loads(Path(folder, "run", "result.json").read_text(encoding="utf-8"))
    metrics = result["metrics"]
    return row | {"step_ms": f"{metrics['step_ms']['median']:.6f}",
                  "exposed_comm_ms": f"{metrics['exposed_comm_ms']:.6f}",
                  "peak_bytes": f"{result['memory']['peak_bytes']['total']:.0f}"}


def text_of(rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=["question", "cluster", "keys", *FIGURES], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def main() -> None:
    program, source = sys.argv[1], Path(sys.argv[2])
    path = source / "profiles/recorded/engines/questions.csv"
    out = Path(sys.argv[3]) if len(sys.argv) > 3 else path
    out.write_text(text_of([answer(program, source, row) for row in asked(path)]), encoding="utf-8")


if __name__ == "__main__":
    main()
