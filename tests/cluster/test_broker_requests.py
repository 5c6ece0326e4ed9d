"""What a broker reports about itself, and unknown requests; each request goes over the simulated network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.admin.configuration import CHANGEABLE, REASONS
from broker.settings.broker import BrokerSettings
from namesrv.server import NamesrvApp
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import ConsumerGroupHeader
from remoting.headers.group import ExchangeHAInfoHeader
from remoting.headers.pull import PullMessageHeader
from tests.cluster.served import Served


def test_an_unknown_request_is_answered_with_code_3(served: Served) -> None:
    for code, what in (
        (RequestCode.SET_MESSAGE_REQUEST_MODE, "; not built here: POP consumption"),
        (2001, "; not built here: control of cold reads"),
        (9999, ""),
    ):
        reply = served.ask(code)
        assert (reply.code, reply.remark) == (3, f" request type {int(code)} not supported{what}")


def test_each_unsupported_request_is_logged_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    for code in (RequestCode.RECALL_MESSAGE, RequestCode.RECALL_MESSAGE, 200_050, 9999, 9999):
        served.ask(code, ConsumerGroupHeader("CG"))
    permission = [record for record in caplog.records if record.name == "broker.unsupportedrequests"]
    assert [record.getMessage().rpartition(": ")[2] for record in permission] == [
        "timer messages",
        "POP consumption",
        "request 9999",
    ]
    assert all(getattr(record, "fields", {}).get("group") == "CG" for record in permission)


def test_a_header_without_a_required_field_is_answered_with_code_1(served: Served) -> None:
    reply = served.ask(RequestCode.GET_MAX_OFFSET)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (reply.remark or "")


def change(served: Served, text: str) -> tuple[int, str]:
    reply = served.ask(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
    return reply.code, reply.remark or ""


def test_changeable_settings_change_while_the_broker_runs(served: Served) -> None:
    settings = served.master.settings
    assert change(served, "minInSyncReplicas=1\nlongPollingEnable=false\n")[0] == 0
    assert (settings.min_in_sync_replicas, settings.long_polling_enable) == (1, False)
    shown = bytes(served.ask(RequestCode.GET_BROKER_CONFIG).body or b"").decode()
    assert "minInSyncReplicas=1\n" in shown
    assert change(served, "flushDiskType=ASYNC_FLUSH\n")[0] == 0, "unchanged value"
    code, remark = change(served, "minInSyncReplicas=2\nlistenPort=20000\n")
    assert (code, "listenPort" in remark) == (ResponseCode.NO_PERMISSION, True)
    assert change(served, "minInSyncReplicas=none\n")[0] == ResponseCode.SYSTEM_ERROR
    of_two_keys = change(served, "listenPort=1\n")
    assert of_two_keys[0] == ResponseCode.SYSTEM_ERROR
    assert of_two_keys[1].startswith("fastListenPort would be listenPort - 2 = 0")
    assert change(served, "noSuchKey=1\n")[0] == change(served, "")[0] == 0, "ignored, as upstream does"
    assert settings.min_in_sync_replicas == 1


def test_the_runtime_information_has_the_fields_that_cluster_list_parses(served: Served) -> None:
    table = served.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["msgPutTotalTodayNow"] == "3"
    assert table["brokerVersionDesc"] == "V5_3_3"
    assert table["commitLogMaxOffset"] == str(served.master.store.max_offset())
    assert (table["confirmOffset"], table["ranContractA"]) == (table["commitLogMaxOffset"], "false")
    assert (table["forwardedRequests"], table["forwardsTo"]) == ("0", "")
    assert table["replicaId"] == "1", "the id in the identity file of the store, in any role"
    assert served.json(RequestCode.GET_BROKER_RUNTIME_INFO, slave=True)["table"]["replicaId"] == "2"
    for key in ("putTps", "getTransferredTps"):
        assert len([float(word) for word in table[key].split(" ")]) == 3
    for key in (
        "timerCongestNum",
        "sendThreadPoolQueueSize",
        "pageCacheLockTimeMills",
        "msgPutTotalYesterdayMorning",
    ):
        assert float(table[key]) == 0
    assert "brokerName=broker-a\n" in bytes(served.ask(RequestCode.GET_BROKER_CONFIG).body or b"").decode()


def test_the_master_reports_its_ha_address_and_a_slave_does_not(served: Served) -> None:
    found = ExchangeHAInfoHeader.from_ext(served.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).ext)
    assert (found.master_ha_address, found.master_address) == (
        served.master.ha.address,
        served.master.address,
    )
    assert served.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, slave=True).code == ResponseCode.SYSTEM_ERROR
    push = ExchangeHAInfoHeader("10.9.9.9:1", 0, "10.9.9.9:2")
    assert served.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, push, slave=True).code == ResponseCode.SYSTEM_ERROR


def test_ha_status_and_epoch_cache_are_reported_in_upstreams_form(served: Served) -> None:
    status = served.json(RequestCode.GET_BROKER_HA_STATUS)
    assert (status["master"], status["inSyncSlaveNums"], len(status["haConnectionInfo"])) == (True, 1, 1)
    assert served.json(RequestCode.GET_BROKER_HA_STATUS, slave=True)["master"] is False
    epochs = served.json(RequestCode.GET_BROKER_EPOCH_CACHE)
    end = served.master.store.max_offset()
    assert epochs == {
        "brokerId": 0, "brokerName": "broker-a", "clusterName": "DefaultCluster", "maxOffset": end,
        "epochList": [{"endOffset": 2**63 - 1, "epoch": 1, "startOffset": 0}],
    }  # fmt: skip
    assert served.json(RequestCode.GET_BROKER_EPOCH_CACHE, slave=True)["brokerId"] == 2


def test_creation_of_topics_and_groups_can_be_switched_while_the_broker_runs(served: Served) -> None:
    topics, groups = served.master.tables.topics, served.master.tables.groups
    assert change(served, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n")[0] == 0
    assert topics.create_for_send("fresh", "TBW102", 4) is None
    assert groups.find_or_create("FreshGroup") is None
    before = topics.data_version
    assert change(served, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=2\n")[0] == 0
    assert topics.data_version != before, "name servers and slaves get the template topic"
    made = topics.create_for_send("fresh", "TBW102", 4)
    assert made is not None and made.write_queue_nums == 2


def test_read_and_write_permission_of_a_broker_change_while_it_runs(served: Served) -> None:
    def permission() -> int:
        served.world.run_for_ms(1_500)
        namesrv = served.world.nodes["namesrv"].app
        assert isinstance(namesrv, NamesrvApp)
        return int(namesrv.table.topics["orders"]["broker-a"].perm)

    assert permission() == 6
    assert change(served, "brokerPermission=4\n")[0] == 0
    assert permission() == 4
    assert change(served, "brokerPermission=2\n")[0] == 0
    assert permission() == 2
    pull = PullMessageHeader("CG", "orders", 1, 0, 1, 0, 0, 0, 0, "*", "TAG")
    assert served.ask(RequestCode.PULL_MESSAGE, pull).code == ResponseCode.NO_PERMISSION
    assert change(served, "brokerPermission=6\n")[0] == 0
    assert permission() == 6


def test_a_key_that_needs_a_restart_is_refused_with_the_reason(served: Served) -> None:
    code, remark = change(served, "listenPort=20000\nmessageDelayLevel=1s\n")
    assert code == ResponseCode.NO_PERMISSION
    assert (
        "listenPort (the port is open), messageDelayLevel (messages wait in a queue for each level)" in remark
    )
    assert remark.endswith(": change the properties file and restart")


def test_the_page_for_operators_names_each_key_that_can_change() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "change-a-setting.md").read_text()
    section = page.partition("change:\n\n")[2].partition("Every other key")[0]
    assert set(re.findall(r"`(\w+)`[,.]", section)) == CHANGEABLE
    assert not CHANGEABLE & REASONS.keys()
    assert CHANGEABLE | REASONS.keys() <= BrokerSettings.keys().keys()
