"""The commands that the quickstart suggests, as a shell parses them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import Mode
from localcluster.quickstartcli import invitations


@pytest.mark.parametrize("mode", list(Mode))
def test_each_printed_line_is_one_shell_command(tmp_path: Path, mode: Mode) -> None:
    with Cluster.create(tmp_path / "a folder", mode=mode) as cluster:
        lines = invitations(cluster)
    read = [[*shlex.shlex(line, posix=True, punctuation_chars=True)] for line in lines]
    assert not [word for words in read for word in words if set(word) <= set(";&|<>()")]
    assert [each for each in read if each[-1] == str(tmp_path / "a folder")]
    lists = [word for words in read for word in words if ";" in word]
    assert len(lists) >= 2
