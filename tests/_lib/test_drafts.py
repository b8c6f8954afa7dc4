"""Files that replace others when they are complete."""

import os
import stat

import pytest

from sklseq._lib.drafts import draft


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_permissions_of_a_replaced_file_stay(mode, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(mode)
    with draft(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(os.stat(path).st_mode) == mode


def test_a_new_file_has_the_permissions_of_other_new_files(tmp_path):
    with draft(tmp_path / "one") as file:
        file.write(b"new")
    (tmp_path / "two").write_bytes(b"new")
    assert os.stat(tmp_path / "one").st_mode == os.stat(tmp_path / "two").st_mode
