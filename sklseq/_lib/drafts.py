"""Files that get their name when they are complete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any


@contextmanager
def draft(path: Any) -> Iterator[IO[bytes]]:
    """A binary file that replaces ``path`` when it is complete, with its permissions.

    ``path`` may be a symbolic link.
    """
    name = os.path.realpath(path)
    part = f"{name}.{os.urandom(4).hex()}.part"
    try:
        with open(part, "wb") as file:
            yield file
        with suppress(FileNotFoundError):
            shutil.copymode(name, part)
        os.replace(part, name)
    except OSError as error:
        # A full disk's error has no file name; the user does not know that of the part.
        if error.errno is not None and error.filename in (None, part):
            error.filename = os.fspath(path)
        raise
    finally:
        with suppress(FileNotFoundError):
            os.remove(part)
