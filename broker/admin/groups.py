"""Requests of administrators that create, show, list and delete groups, and requests of slaves that copy the tables of
offsets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from broker.admin.attributes import AttributesRefused, with_changes
from broker.admin.lists import named, why_not_deleted
from broker.neighbours.agreement import MetadataReplication
from broker.tables.consumeroffsets import TRANSACTIONS_GROUP
from broker.tables.subscriptiongroups import NAME_LENGTH_MAX, NAME_RULE, NEW_LENGTH_MAX, is_group_name
from broker.tables.tables import Tables
from mqruntime.slices import Steps
from remoting.bodies.body import LIST_BYTES_MAX
from remoting.bodies.groups import (
    DeleteGroupsBody,
    MessageRequestModes,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from remoting.bulk import BulkAnswers
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.header import Header
from remoting.headers.admin import DeleteSubscriptionGroupHeader, GroupHeader
from remoting.peer import Peer
from remoting.router import Router

CONFIGURATION_BYTES_MAX = 8 << 10
"""Limit of the size of one group with its attributes. Slaves copy all groups in one frame."""
BROKERS_OWN = f"{TRANSACTIONS_GROUP} is the broker's own: its offsets say which halves have ended"
NOT_FOLLOWED = "this master has just begun to lead, and no slave is known to hold its log: keep your offsets, and ask again"


class GroupRequests:
    """The handlers. A change of a group is on the members of the set before the request is answered."""

    def __init__(
        self,
        tables: Tables,
        agreement: MetadataReplication,
        bulk: BulkAnswers,
    ) -> None:
        self._bulk = bulk
        self._tables = tables
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._agreement = agreement

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self._create)
        router.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self._create_list)
        router.add(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self._show)
        router.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._list)
        router.add(RequestCode.DELETE_SUBSCRIPTIONGROUP, self._delete)
        router.add(RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, self._delete_list)
        router.add(RequestCode.GET_ALL_CONSUMER_OFFSET, self._offsets_of_all)
        router.add(RequestCode.GET_ALL_DELAY_OFFSET, self._delay_offsets)
        router.add(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._request_modes)

    async def _create(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return await self._put([SubscriptionGroupConfig.from_request(command.body)], command)

    async def _create_list(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return await self._put(
            SubscriptionGroupList.from_request(command.body, bytes_max=LIST_BYTES_MAX).group_config_list,
            command,
        )

    async def _put(self, asked: list[SubscriptionGroupConfig], command: RemotingCommand) -> RemotingCommand:
        """Create or change groups; attributes in `asked` are changes."""
        try:
            groups = [with_changes(group, self._groups.find(group.group_name)) for group in asked]
        except AttributesRefused as refused:
            return command.reply(ResponseCode.INVALID_PARAMETER, str(refused))
        for group in groups:
            why = _why_not(group, is_new=self._groups.find(group.group_name) is None)
            if why is not None:
                return command.reply(ResponseCode.INVALID_PARAMETER, why)

        def put() -> None:
            for group in groups:
                if self._groups.find(group.group_name) != group:
                    self._groups.put(group)

        what = f"group {named([group.group_name for group in groups])}"
        return await self._agreement.change(command, what, put)

    def _show(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = GroupHeader.from_ext(command.ext).group
        group = self._groups.find(name)
        if group is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}"
            )
        return command.reply(body=group.encode())

    def _list(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=self._groups.wrapper.encode())

    async def _delete(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = DeleteSubscriptionGroupHeader.from_ext(command.ext)
        return await self._deleted([header.group_name], header.clean_offset, command)

    async def _delete_list(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """DELETE_SUBSCRIPTION_GROUP_LIST (5003, from 5.5.1 on): delete all of the groups or none."""
        asked = DeleteGroupsBody.from_request(command.body)
        if (why := why_not_deleted("group", asked.group_name_list)) is not None:
            return command.reply(ResponseCode.INVALID_PARAMETER, why)
        return await self._deleted(asked.group_name_list, asked.clean_offset, command)

    async def _deleted(self, names: list[str], clean: bool, command: RemotingCommand) -> RemotingCommand:
        if TRANSACTIONS_GROUP in names:
            return command.reply(ResponseCode.NO_PERMISSION, BROKERS_OWN)
        steps = [partial(self._tables.delete_group, name, clean_offset=clean) for name in names]
        return await self._agreement.change_in_steps(command, f"the deletion of group {named(names)}", steps)

    async def _offsets_of_all(self, peer: Peer, command: RemotingCommand) -> None:
        """Answer with the offsets. The epoch comes first, so that a slave of another master skips them."""
        await self._bulk.answer(peer, command, command.code, self._offsets_and_version)

    def _offsets_and_version(self) -> Steps[tuple[bytes, Header | None]]:
        version = self._agreement.version_header()
        body, rests_on = yield from self._offsets.for_slaves()
        return body, replace(version, rests_on=rests_on)

    def _delay_offsets(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        self._agreement.asked_as_java(peer, command)
        given = self._tables.delays.for_slaves()
        if given is None:
            return command.reply(ResponseCode.SYSTEM_BUSY, NOT_FOLLOWED)
        body, rests_on = given
        return command.reply(header=self._agreement.version_header(rests_on), body=body)

    def _request_modes(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=MessageRequestModes().encode())


def _why_not(group: SubscriptionGroupConfig, *, is_new: bool) -> str | None:
    name = group.group_name
    if is_new and len(name) > NEW_LENGTH_MAX:
        return f"a new group's name has {NEW_LENGTH_MAX} characters at most; {name[:NAME_LENGTH_MAX]!r} has {len(name)}"
    if not is_group_name(name):
        return f"{NAME_RULE}; {name[:NAME_LENGTH_MAX]!r} has {len(name)}"
    if (size := len(group.encode())) > CONFIGURATION_BYTES_MAX:
        return f"a group with its attributes has {CONFIGURATION_BYTES_MAX} bytes at most, {name!r} has {size}"
    return None
