"""Files of a run as one archive that stays small enough to be brought home."""

import gzip
import shutil
import tarfile
from pathlib import Path

MOST_BYTES = 15 << 20  # of 16 MiB that one file may have
BLOCK = 512  # of a tar archive


class Archive:
    """A tar archive of the files below a folder, each compressed by itself, so that a renewal compresses only new ones."""

    def __init__(self, folder: Path, cache: Path, file: Path, most_bytes: int = MOST_BYTES):
        self.folder, self.cache, self.file, self.most_bytes = folder, cache, file, most_bytes

    def compressed(self, path: Path) -> Path:
        if path.suffix == ".gz":
            return path
        kept = self.cache / f"{path.relative_to(self.folder)}.gz"
        if not kept.exists() or kept.stat().st_mtime_ns < path.stat().st_mtime_ns:
            kept.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "rb") as source, gzip.open(kept, "wb", compresslevel=3) as target:
                shutil.copyfileobj(source, target)
        return kept

    def renew(self) -> list[str]:
        """Small files first, so that what does not fit is the large ones: their names."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        packed = sorted(((self.compressed(path), path) for path in files), key=lambda pair: (pair[0].stat().st_size, pair[1]))
        partial = self.file.with_name(f"{self.file.name}.partial")
        left_out, bytes_left = [], self.most_bytes - 20 * BLOCK  # tar rounds up to 20 blocks at its end
        with tarfile.open(partial, "w") as tar:
            for kept, path in packed:
                name = str(path.relative_to(self.folder))
                needs = 5 * BLOCK + kept.stat().st_size  # a long name takes three blocks of its own, beside the header
                if needs > bytes_left:
                    left_out.append(name)
                    continue
                bytes_left -= needs
                tar.add(kept, arcname=name if kept == path else f"{name}.gz", recursive=False)
        partial.rename(self.file)
        return sorted(left_out)
