"""Commands of access control by our mqadmin on a Java master and its slave: they print what upstream's mqadmin prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localcluster.layout import CLUSTER_NAME
from mqadmin.cli import admin
from scripts.peers.javapeer import broker_missing, missing
from tests.interop.javabroker import CHECKED, INNER, PASSWORD, USER, java_broker
from tests.interop.javaclient import JavaClient
from tests.support.realpair import RealPair
from tests.support.waiting import wait_until
from tests.unit.mqadmin.accessrows import REFUSED_HERE, ROWS, lines

pytestmark = [pytest.mark.skipif(why is not None, reason=str(why)) for why in (missing(), broker_missing())]

READS = ("getUser", "listUser", "getAcl", "listAcl")


class Tools:
    """Our mqadmin and upstream's, which sign as the same Super user."""

    def __init__(self, home: Path, java: JavaClient) -> None:
        self._environment = {"MQ_CREDENTIALS_FILE": "", "ROCKETMQ_HOME": str(home), "NAMESRV_ADDR": ""}
        self._java = java

    def ours(self, *arguments: str) -> Result:
        return CliRunner(env=self._environment).invoke(admin, arguments, prog_name="mqadmin")

    def upstreams(self, *arguments: str) -> str:
        return self._java.admin(*arguments)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RealPair]:
    with RealPair(tmp_path / "pair", [java_broker, java_broker]) as made:
        for number in (0, 1):
            made.start(number, **CHECKED, **INNER)
        yield made


@pytest.fixture
def tools(pair: RealPair, tmp_path: Path) -> Iterator[Tools]:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {USER}\nsecretKey: '{PASSWORD}'\n")
    with JavaClient(pair.namesrv, home, options=[f"-Drocketmq.home.dir={home}"]) as java:
        yield Tools(home, java)


def test_our_tool_prints_what_upstreams_tool_prints(pair: RealPair, tools: Tools) -> None:
    of_cluster = ("listUser", "-n", pair.namesrv, "-c", CLUSTER_NAME)
    wait_until("the master is registered", lambda: USER in tools.ours(*of_cluster).stdout)
    wait_until(
        "the slave is registered",
        lambda: pair.address(1) in tools.ours("clusterList", "-n", pair.namesrv).stdout,
    )
    for row in ROWS:
        if row.name in REFUSED_HERE:
            row = row.accepted_here()
            if row.error is not None:
                continue
        row = row.at(master=pair.address(0), slave=pair.address(1), namesrv=pair.namesrv)
        done = tools.ours(*row.arguments)
        assert done.exit_code == int(row.error is not None), (row.name, done.output)
        assert lines(done.stdout) == lines(row.stdout), row.name
        if row.error is not None:
            assert row.error[1] in done.stderr, row.name
        elif row.arguments[0] in READS:
            assert done.stdout == tools.upstreams(*row.arguments), row.name
