"""`sessiondb tree`: the branches of a session."""

from __future__ import annotations

from typing import Any

import click

from sessiondb.cli.later_branch import later_branch_object, say_later_branch
from sessiondb.cli.options import PATH, Settings, as_of, reading, reads, takes_ndjson
from sessiondb.cli.output import put, put_json, say, width
from sessiondb.cli.tree_drawing import Drawn, drawn, tree_lines


@click.command("tree", short_help="Draw the branches of a session.")
@click.argument("ref", type=PATH)
@takes_ndjson
@reads
@click.pass_obj
def command(settings: Settings, ref: str, ndjson: bool, fresh: bool) -> None:
    """Draw the tree of a session's entries: a run without branches stays in its column, branches are indented.

    Each line has the entry's id, local time, kind, [label] and beginning; the leaf is marked. With --json one document
    {"session", "leaf", "later_branch", "nodes", "as_of"}: the nodes are a flat list in the order of drawing, each
    {"id", "parentId", "depth", "label" if there is one, "entry"}; parentId is what it is drawn under, null for a root,
    whose depth is 0.
    """
    with reading(settings, fresh=fresh) as store:
        info = store.session(ref)
        leaf = store.leaf_id(info)
        nodes = list(drawn(store.tree(info)))
        if ndjson:
            for node in nodes:
                put_json(_as_object(node))
        elif settings.json:
            objects = [_as_object(node) for node in nodes]
            later = later_branch_object(store.later_branch(info))
            about = {"session": info.id, "leaf": leaf, "later_branch": later}
            put_json({**about, "nodes": objects, "as_of": as_of(store)})
        elif nodes:
            put(tree_lines(nodes, leaf, width()))
            say_later_branch(store.later_branch(info))
        else:
            say(f"no entries in {info.id}")


def _as_object(node: Drawn) -> dict[str, Any]:
    label = {} if node.label is None else {"label": node.label}
    return {"id": node.id, "parentId": node.parent_id, "depth": node.depth, **label, "entry": node.entry}
