"""The table of commands. A command is found by name in upper or lower case, and imported only when it runs.

Invariant: listing the commands or asking for help imports no command, no event loop and no network code, so
that `mqadmin --help` answers at once.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any, NamedTuple

import click

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells count it."""


class CommandEntry(NamedTuple):
    """One command of the table. `place` is its module below mqadmin.commands, and its name in that module."""

    place: str
    summary: str


COMMANDS: dict[str, CommandEntry] = {
    "updateTopic": CommandEntry("topics.update_topic", "Update or create topic."),
    "updateTopicList": CommandEntry("topics.update_topic_list", "create or update topic in batch"),
    "deleteTopic": CommandEntry("topics.delete_topic", "Delete topic from broker and NameServer."),
    "updateSubGroup": CommandEntry("groups.update_sub_group", "Update or create subscription group."),
    "updateSubGroupList": CommandEntry(
        "groups.update_sub_group_list", "Update or create subscription group in batch"
    ),
    "deleteSubGroup": CommandEntry("groups.delete_sub_group", "Delete subscription group from broker."),
    "updateTopicPerm": CommandEntry("topics.update_topic_perm", "Update topic perm."),
    "topicRoute": CommandEntry("topics.topic_route", "Examine topic route info."),
    "topicStatus": CommandEntry("topics.topic_status", "Examine topic Status info."),
    "topicClusterList": CommandEntry("topics.topic_clusters", "Get cluster info for topic."),
    "topicList": CommandEntry("topics.topic_list", "Fetch all topic list from name server."),
    "clusterList": CommandEntry("brokers.cluster_list", "List cluster infos."),
    "brokerStatus": CommandEntry("brokers.broker_status", "Fetch broker runtime status data."),
    "getBrokerConfig": CommandEntry(
        "brokers.broker_config", "Get broker config by cluster or special broker."
    ),
    "updateBrokerConfig": CommandEntry("brokers.update_broker_config", "Update broker's config."),
    "queryMsgById": CommandEntry("messages.query_by_id", "Query Message by Id."),
    "queryMsgByKey": CommandEntry("messages.query_by_key", "Query Message by Key."),
    "queryMsgByUniqueKey": CommandEntry("messages.query_by_unique_key", "Query Message by Unique key."),
    "queryMsgByOffset": CommandEntry("messages.query_by_offset", "Query Message by offset."),
    "queryMsgTraceById": CommandEntry("messages.query_trace", "Query a message trace."),
    "printMsg": CommandEntry("messages.print_msg", "Print Message Detail."),
    "printMsgByQueue": CommandEntry("messages.print_msg_by_queue", "Print Message Detail by queueId."),
    "sendMsgStatus": CommandEntry("sending.send_msg_status", "Send msg to broker."),
    "brokerConsumeStats": CommandEntry("brokers.broker_consume_stats", "Fetch broker consume stats data."),
    "producerConnection": CommandEntry(
        "groups.producer_connection", "Query producer's socket connection and client version."
    ),
    "consumerConnection": CommandEntry(
        "groups.consumer_connection", "Query consumer's socket connection, client version and subscription."
    ),
    "sendMessage": CommandEntry("sending.send_message", "Send a message."),
    "consumeMessage": CommandEntry("messages.consume_message", "Consume message."),
    "consumerProgress": CommandEntry("groups.consumer_progress", "Query consumer's progress, speed."),
    "consumerStatus": CommandEntry("groups.consumer_status", "Query consumer's internal data structure."),
    "cloneGroupOffset": CommandEntry("offsets.clone_group_offset", "Clone offset from other group."),
    "producer": CommandEntry("groups.producers", "Query producer's instances, connection, status, etc."),
    "updateKvConfig": CommandEntry("nameservers.update_kv_config", "Create or update KV config."),
    "deleteKvConfig": CommandEntry("nameservers.delete_kv_config", "Delete KV config."),
    "wipeWritePerm": CommandEntry(
        "nameservers.wipe_write_perm",
        "Wipe write perm of broker in all name server you defined in the -n param.",
    ),
    "addWritePerm": CommandEntry(
        "nameservers.add_write_perm",
        "Add write perm of broker in all name server you defined in the -n param.",
    ),
    "resetOffsetByTime": CommandEntry(
        "offsets.reset_offset", "Reset consumer offset by timestamp(without client restart)."
    ),
    "skipAccumulatedMessage": CommandEntry(
        "offsets.skip_accumulated", "Skip all messages that are accumulated (not consumed) currently."
    ),
    "updateOrderConf": CommandEntry("topics.update_order_conf", "Create or update or delete order conf."),
    "cleanExpiredCQ": CommandEntry("brokers.clean_expired_cq", "Clean expired ConsumeQueue on broker."),
    "deleteExpiredCommitLog": CommandEntry(
        "brokers.delete_expired_commit_log", "Delete expired CommitLog files."
    ),
    "startMonitoring": CommandEntry("groups.start_monitoring", "Start Monitoring."),
    "statsAll": CommandEntry("brokers.stats_all", "Topic and Consumer tps stats."),
    "allocateMQ": CommandEntry("topics.allocate_mq", "Allocate MQ."),
    "checkMsgSendRT": CommandEntry("sending.check_msg_send_rt", "Check message send response time."),
    "clusterRT": CommandEntry("sending.cluster_rt", "List All clusters Message Send RT."),
    "getNamesrvConfig": CommandEntry("nameservers.namesrv_config", "Get configs of name server."),
    "updateNamesrvConfig": CommandEntry(
        "nameservers.update_namesrv_config", "Update configs of name server."
    ),
    "getConsumerConfig": CommandEntry(
        "groups.consumer_config", "Get consumer config by subscription group name."
    ),
    "queryCq": CommandEntry("messages.query_cq", "Query cq command."),
    "exportMetadata": CommandEntry("export.export_metadata", "Export metadata."),
    "exportConfigs": CommandEntry("export.export_configs", "Export configs."),
    "exportMetrics": CommandEntry("export.export_metrics", "Export metrics."),
    "watch": CommandEntry(
        "watch.watch", "Live view of broker sets: master, epochs, lag, controllers, elections."
    ),
    "haStatus": CommandEntry("brokers.ha_status", "Fetch ha runtime status data."),
    "getBrokerEpoch": CommandEntry("brokers.broker_epoch", "Fetch broker epoch entries."),
    "getSyncStateSet": CommandEntry("controllers.sync_state_set", "Fetch syncStateSet for target brokers."),
    "getControllerMetaData": CommandEntry(
        "controllers.controller_metadata", "Get controller cluster's metadata."
    ),
    "getControllerConfig": CommandEntry("controllers.controller_config", "Get controller config."),
    "updateControllerConfig": CommandEntry(
        "controllers.update_controller_config", "Update controller config."
    ),
    "electMaster": CommandEntry("controllers.elect_master", "Re-elect the specified broker as master."),
    "leadershipTransfer": CommandEntry("controllers.leadership_transfer", "Let another controller lead."),
    "addController": CommandEntry("controllers.add_controller", "Take a controller into the group."),
    "removeController": CommandEntry("controllers.remove_controller", "Take a controller out of the group."),
    "resyncBroker": CommandEntry("brokers.resync_broker", "Resync a replica: start it with an empty store."),
    "cleanBrokerMetadata": CommandEntry(
        "controllers.clean_broker_metadata", "Clean metadata of broker on controller."
    ),
    "createUser": CommandEntry("users.create_user", "Create user to cluster."),
    "updateUser": CommandEntry("users.update_user", "Update user to cluster."),
    "deleteUser": CommandEntry("users.delete_user", "Delete user from cluster."),
    "getUser": CommandEntry("users.get_user", "Get user from cluster."),
    "listUser": CommandEntry("users.list_user", "List user from cluster."),
    "copyUser": CommandEntry("users.copy_user", "Copy user to cluster."),
    "createAcl": CommandEntry("acls.create_acl", "Create acl to cluster."),
    "updateAcl": CommandEntry("acls.update_acl", "Update acl to cluster."),
    "deleteAcl": CommandEntry("acls.delete_acl", "Delete acl from cluster."),
    "getAcl": CommandEntry("acls.get_acl", "Get acl from cluster."),
    "listAcl": CommandEntry("acls.list_acl", "List acl from cluster."),
    "copyAcl": CommandEntry("acls.copy_acl", "Copy acl to cluster."),
    "importPlainAcl": CommandEntry(
        "accessmigration.import_plain_acl", "Create users and rights from files of ACL 1.0."
    ),
    "compareAcl": CommandEntry(
        "accessmigration.compare_acl", "Find users whose rights differ from what Java 5.3.3 decides."
    ),
}
"""Command name in upstream's spelling -> the command's place, in the order of upstream's list."""

SPELLING = {name.lower(): name for name in COMMANDS}


class AdminGroup(click.Group):
    """`mqadmin COMMAND ARGS`, `mqadmin help COMMAND`; bare `mqadmin` lists the commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = SPELLING.get(cmd_name.lower())
        if name is None:
            return None
        entry = COMMANDS[name]
        module, attribute = entry.place.split(".")
        command: click.Command = getattr(import_module(f"mqadmin.commands.{module}"), attribute)
        command.help = entry.summary  # for a shell's completion
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].lower() == "help" and len(args) > 1:
            args = [args[1], "-h"]
        command = self.get_command(ctx, args[0])
        if command is None and ctx.resilient_parsing:  # a shell completes a half-typed line
            return None, None, args
        if command is None:
            from mqadmin.notbuilt import why_not

            click.echo(f"The sub command {args[0]} not exist.")
            click.echo(f"mqadmin: {why_not(args[0], COMMANDS)}", err=True)
            ctx.exit(1)
        return command.name, command, args[1:]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # output stops between two lines
            ctx.exit(INTERRUPTED)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("The most commonly used mqadmin commands are:\n")
        for name, entry in COMMANDS.items():
            formatter.write(f"   {name:<25} {entry.summary}\n")
        formatter.write("\nSee 'mqadmin help <command>' for more information on a specific command.\n")


@click.group(
    cls=AdminGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=lambda ctx, option, asked: _version(ctx, asked),
    help="Print the version and exit.",
)  # fmt: skip
@click.pass_context
def admin(ctx: click.Context) -> None:
    """Lists the commands if none is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _version(ctx: click.Context, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"mqadmin {version('autoswitch-mq')}")
        ctx.exit()


def main() -> None:
    """Run the tool on sys.argv and exit with 0 if the command is done, 1 if not (with the reason on stderr), 130 if it was
    interrupted."""
    logging.getLogger().addHandler(logging.NullHandler())  # the command itself prints the one line on stderr
    admin.main(prog_name="mqadmin")
