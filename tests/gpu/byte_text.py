"""What src/engine/byte_dataset.h reads, in Python: the same text of a file or folder, and the same samples of it."""

from pathlib import Path

MASK = 2**64 - 1


def left_out(path: Path) -> bool:
    hidden = path.name.startswith(".") or path.is_symlink()
    return hidden or (path.is_dir() and (path.name.startswith("build") or path.name in ("runs", "__pycache__")))


def files_below(folder: Path) -> list[Path]:
    files = []
    for path in folder.iterdir():
        if left_out(path):
            continue
        if path.is_dir():
            files += files_below(path)
        elif path.is_file():
            files.append(path)
    return sorted(files, key=lambda path: path.parts)


def text_of(path: Path | str) -> bytes:
    """Of a file, or of all text files below a folder in the order of their paths. (Not for texts above 256 MiB, of which
    the program reads a part.)"""
    path = Path(path)
    texts = [file.read_bytes() for file in (files_below(path) if path.is_dir() else [path])]
    return b"".join(text for text in texts if b"\0" not in text)


def sample(text: bytes, index: int, length: int) -> bytes:
    """`length` neighbouring bytes, from a place that depends on `index` alone."""
    z = (index + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    begin = (z ^ (z >> 31)) % (len(text) - length + 1)
    return text[begin:begin + length]


def batch_of(text: bytes, step: int, rank: int, ranks: int, batch: int, length: int) -> list[bytes]:
    """The samples of a rank in a step without accumulation: ranks take consecutive ones, also in the warm-up."""
    first = (step * ranks + rank) * batch
    return [sample(text, first + i, length) for i in range(batch)]
