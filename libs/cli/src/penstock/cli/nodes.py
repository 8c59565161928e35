"""`penstock nodes`: the machines of a cluster, and how one is emptied to be taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import terminal
from penstock.cli.asking import ApiOption, JsonOption, TokenOption, ask, print_json, show_time

if TYPE_CHECKING:
    from penstock.api.schemas import Node
    from penstock.cli.client import Client

_POLL_SECONDS: Final = 0.5

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's id, node_….")]

nodes = typer.Typer(help="List and drain the nodes of a running Penstock.", no_args_is_help=True)


@nodes.command("list")
def list_nodes(
    context: typer.Context, as_json: JsonOption = False, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """List nodes with their slots and jobs."""
    found = ask(context, api, token, lambda client: client.nodes())
    return print_json(found) if as_json else _print_nodes(found.data)


@nodes.command("drain")
def drain_node(
    context: typer.Context,
    node: NodeArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until nothing is left on it.")] = True,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Have a node's jobs move elsewhere, and place nothing on it."""
    found = ask(context, api, token, lambda client: _drain(client, node, wait=wait))
    if as_json:
        print_json(found)
    else:
        _print_nodes([found])
    if wait and found.state != "drained":
        terminal.say(f"{node} is no longer being drained")
        raise typer.Exit(terminal.FAILED)


@nodes.command("undrain")
def undrain_node(
    context: typer.Context,
    node: NodeArgument,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Let a node have jobs again; those that left stay where they are."""
    from penstock.api.schemas import UpdateNode

    found = ask(context, api, token, lambda client: client.update_node(node, UpdateNode(drain=False)))
    return print_json(found) if as_json else _print_nodes([found])


async def _drain(client: Client, node_id: str, *, wait: bool) -> Node:
    from penstock.api.schemas import UpdateNode

    node = await client.update_node(node_id, UpdateNode(drain=True))
    told = ""
    while wait and node.state == "draining":
        left = f"{node.id}: {len(node.jobs)} jobs and {node.slots_used} slots to go"
        if left != told:
            terminal.say(left)
        told = left
        await asyncio.sleep(_POLL_SECONDS)
        node = await client.node(node_id)
    return node


def _print_nodes(found: Sequence[Node]) -> None:
    rows = [
        (one.id, one.rpc_address, one.state, one.slots, one.slots_free, len(one.jobs), show_time(one.registered_at))
        for one in found
    ]
    terminal.show_table(("id", "address", "state", "slots", "free", "jobs", "registered"), rows)
