"""updateSubGroup: creates or changes a consumer group on one broker or on every master of a cluster."""

from __future__ import annotations

import json
from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.calls import groups
from mqadmin.command import (
    I64_MAX,
    Argument,
    UsageWanted,
    admin_command,
    boolean,
    number,
    one_wanted,
    run,
)
from mqadmin.commands.update_topic import attribute_changes
from mqadmin.report import Report, java_map, java_text
from mqadmin.wanted import wanted_masters
from remoting.bodies.groups import SubscriptionGroupConfig

POLICY_HELP = (
    'the json string of retry policy ( exponential: {"type":"EXPONENTIAL","exponentialRetryPolicy":'
    '{"initial":5000,"max":7200000,"multiplier":2}} customized: {"type":"CUSTOMIZED","customizedRetryPolicy":'
    '{"next":[1000,5000,10000]}} )'
)


def format_created(address: str) -> str:
    return f"create subscription group to {address} success.\n"


def fields_of(group: SubscriptionGroupConfig) -> dict[str, Any]:
    """The fields of upstream's SubscriptionGroupConfig, in its order."""
    policy = group.group_retry_policy
    return {
        "groupName": group.group_name,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeMessageOrderly": group.consume_message_orderly,
        "retryQueueNums": group.retry_queue_nums,
        "retryMaxTimes": group.retry_max_times,
        "groupRetryPolicy": f"GroupRetryPolicy{{type={java_text(policy.get('type'))}, "
        f"exponentialRetryPolicy={java_text(policy.get('exponentialRetryPolicy'))}, "
        f"customizedRetryPolicy={java_text(policy.get('customizedRetryPolicy'))}}}",
        "brokerId": group.broker_id,
        "whichBrokerWhenConsumeSlowly": group.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": group.notify_consumer_ids_changed_enable,
        "groupSysFlag": group.group_sys_flag,
        "consumeTimeoutMinute": group.consume_timeout_minute,
        "subscriptionDataSet": group.subscription_data_set,
        "attributes": java_map(group.attributes),
    }


def format_group(group: SubscriptionGroupConfig) -> str:
    """The group as upstream's SubscriptionGroupConfig writes itself, without a line end, as upstream."""
    inside = ", ".join(f"{name}={java_text(value)}" for name, value in fields_of(group).items())
    return f"SubscriptionGroupConfig{{{inside}}}"


def retry_policy(text: str | None) -> dict[str, Any]:
    """The policy that -p gives. Raises `UsageWanted`."""
    if text is None:
        return {"type": "CUSTOMIZED"}
    try:
        policy = json.loads(text)
    except ValueError as error:
        raise UsageWanted(f"-p {text}: no JSON: {error}") from None
    if not isinstance(policy, dict) or policy.get("type") not in ("EXPONENTIAL", "CUSTOMIZED"):
        raise UsageWanted(f"-p {text}: the type is EXPONENTIAL or CUSTOMIZED")
    return policy


@admin_command(
    "updateSubGroup",
    Argument("a", "notifyConsumerIdsChanged", "notify consumerId changed"),
    Argument("b", "brokerAddr", "create subscription group to which broker"),
    Argument("c", "clusterName", "create subscription group to which cluster"),
    Argument("d", "consumeBroadcastEnable", "broadcast"),
    Argument("g", "groupName", "consumer group name", required=True),
    Argument("i", "brokerId", "consumer from which broker id"),
    Argument("m", "consumeFromMinEnable", "from min offset"),
    Argument("o", "consumeMessageOrderly", "consume message orderly"),
    Argument("p", "groupRetryPolicy", POLICY_HELP),
    Argument("q", "retryQueueNums", "retry queue nums"),
    Argument("r", "retryMaxTimes", "retry max times"),
    Argument("s", "consumeEnable", "consume enable"),
    Argument("w", "whichBrokerWhenConsumeSlowly", "which broker id when consume slowly"),
    Argument("attributes", "attributes", "attribute(+a=b,+c=d,-e)"),
)
def command(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, **given: str | None
) -> None:
    one_wanted(brokeraddr, clustername)
    group = SubscriptionGroupConfig(
        group_name=(given["groupname"] or "").strip(),
        consume_enable=boolean("-s", given["consumeenable"], True),
        consume_from_min_enable=boolean("-m", given["consumefromminenable"]),
        consume_broadcast_enable=boolean("-d", given["consumebroadcastenable"]),
        consume_message_orderly=boolean("-o", given["consumemessageorderly"]),
        retry_queue_nums=number("-q", given["retryqueuenums"], 1),
        retry_max_times=number("-r", given["retrymaxtimes"], 16, least=-1),
        group_retry_policy=retry_policy(given["groupretrypolicy"]),
        broker_id=number("-i", given["brokerid"], 0, most=I64_MAX),
        which_broker_when_consume_slowly=number("-w", given["whichbrokerwhenconsumeslowly"], 1, most=I64_MAX),
        notify_consumer_ids_changed_enable=boolean("-a", given["notifyconsumeridschanged"], True),
        attributes=attribute_changes("--attributes", given["attributes"]),
    )

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        for address in addresses:
            await groups.put(client, address, group)
            report.text(format_created(address))
            report.add("brokers", address)
        report.text(format_group(group))
        report.put(group=group)

    run(calls)
