"""`svcd analytics`: frequent queries, and queries without hits, from the query log (docs/guide/query-log.md)."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from svcd.commands import instance, output

# Options of a daemon for a folder: it must not delete what the daemon of that folder keeps.
_KEEPS_ALL = ("--query-log", "1 TiB", "--query-log-days", "36500")


@click.command("analytics", help="Show what was searched in the last days, on all indexes or on INDEX. Needs a daemon with "
                                 "--query-log.")
@click.argument("index", required=False)
@click.option("--days", default=7, show_default=True, type=click.IntRange(min=1, max=10_000), help="Length of the span.")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(min=0, max=1000), help="Length of the lists.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def command(context: click.Context, index: str | None, days: int, limit: int, url: str | None, key: str | None,
            folder: Path | None, is_json: bool) -> int:
    """Ask once and print."""
    wanted = {"from": (datetime.now(UTC) - timedelta(days=days)).isoformat(), "limit": limit,
              **({} if index is None else {"indexUid": index})}
    with instance.opened(context, url, key, folder, *_KEEPS_ALL) as source:
        found = source.call("GET", f"/analytics/searches?{urlencode(wanted)}")
    if is_json:
        output.print_json(found)
    else:
        print("\n".join(shown(found)))
    return 0


def shown(found: Mapping[str, Any]) -> Iterator[str]:
    """Format the figures as text."""
    latency, position = found["latencyMs"], found["averageClickPosition"]
    yield f"{found['searches']:,} searches, {found['withoutHits']:,} without hits, {found['clicked']:,} with a click" + (
        "" if position is None else f" at position {position:.1f} on average")
    if found["searches"]:
        yield f"latency: p50 {latency['p50']} ms, p95 {latency['p95']} ms, max {latency['max']} ms"
    for title, rows in (
        ("Frequent", [[f"{each['finished']:,}", each["query"], output.shortened(each["indexUid"]), f"{each['clicked']:,} clicked"]
                      for each in found["queries"]]),
        ("Without hits", [[f"{each['withoutHits']:,}", each["query"], output.shortened(each["indexUid"])]
                          for each in found["queriesWithoutHits"]]),
        ("Suggestions", [[f"{each['count']:,}", f"{each['words']} -> {each['instead']}", each["kind"],
                          output.shortened(each["indexUid"])] for each in found["suggestions"]]),
        ("Indexes", _figures(found["byIndex"].items())),
        ("Keys", _figures((each["key"] or "master key, or none", each) for each in found["byKey"] or ())),
    ):
        if rows:
            yield f"\n{output.styled(title, 'bold')}\n{output.table(rows)}"


def _figures(rows: Any) -> Sequence[Sequence[str]]:
    return [[output.shortened(name), f"{each['searches']:,} searches", f"{each['withoutHits']:,} without hits",
             f"p95 {each['latencyMs']['p95']} ms"] for name, each in rows]
