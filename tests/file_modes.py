"""What other users of the machine may do with the files of a test."""

from pathlib import Path


def exposed(folder: Path) -> list[str]:
    """Return what others can reach in a folder, or the group can change, with its mode."""
    modes = {path: path.lstat().st_mode for path in (folder, *folder.rglob("*"))}
    return [f"{path} {mode & 0o777:o}" for path, mode in modes.items() if mode & 0o027]
