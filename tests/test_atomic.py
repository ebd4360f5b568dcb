"""Files that are written completely or not at all."""

import os

import pytest

from farrier.atomic import replacing


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("fault", ["block", "fsync", "replace"])
def test_a_failed_write_changes_nothing(tmp_path, monkeypatch, old, fault):
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)

    def fail(*args):
        raise OSError("disk full")

    def write():
        with replacing(path) as file:
            file.write(b"new")
            if fault == "block":
                fail()

    if fault != "block":
        monkeypatch.setattr(os, fault, fail)
    with pytest.raises(OSError, match="disk full"):
        write()
    assert [p.read_bytes() for p in tmp_path.iterdir()] == (
        [] if old is None else [old]
    )


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [path]
