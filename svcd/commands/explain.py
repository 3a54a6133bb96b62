"""`svcd explain`: show why a document is at its place in a search, or why the search does not show it."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from svcd.commands import instance, output
from svcd.commands.instance import index_path
from svcd.commands.search import rule_lines


@click.command("explain", help="Explain the document with the identifier DOCUMENT in a search of INDEX for QUERY.")
@click.argument("index")
@click.argument("document")
@click.argument("query", nargs=-1)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=0), help="Number of hits on the page.")
@click.option("--offset", default=0, type=click.IntRange(min=0), help="Number of hits before the page.")
@click.option("--filter", "filter_text", help="The filter of the search.")
@click.option("--tenant-filter", help="The filter of a tenant token; the cause tells it apart.")
@click.option("--sort", help="For example: year:desc,title:asc")
@click.option("--strategy", help="The matching strategy: last, all, frequency or bm25.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the answer as JSON.")
@click.pass_context
def explain_command(context: click.Context, index: str, document: str, query: tuple[str, ...], limit: int, offset: int,
                    filter_text: str | None, tenant_filter: str | None, sort: str | None, strategy: str | None, url: str | None,
                    key: str | None, folder: Path | None, is_json: bool) -> int:
    """Ask once and print."""
    asked = {"documentId": document, "q": " ".join(query) or None, "limit": limit, "offset": offset, "filter": filter_text,
             "tenantFilter": tenant_filter, "matchingStrategy": strategy,
             "sort": None if sort is None else [each.strip() for each in sort.split(",")]}
    with instance.opened(context, url, key, folder) as source:
        told = source.call("POST", f"{index_path(index)}/explain",
                           {name: value for name, value in asked.items() if value is not None})
    if is_json:
        output.print_json(told)
    else:
        print(shown(told))
    return 0


def shown(told: Mapping[str, Any]) -> str:
    """Format an explanation."""
    if told["isHit"]:
        lines = [output.styled(f"hit at place {told['place']}, score {told['score']:.3f}", "good")]
    else:
        lines = [output.styled(f"not shown: {told['cause']['kind']}", "bad"), told["cause"]["text"]]
    for word in told["words"]:
        found = (f"{match['text']} ({match['kind']}{', typos ' + str(match['typos']) if match['typos'] else ''}) in "
                 f"{', '.join(match['fields'])}" for match in word["matches"])
        lines.append(f"  {output.styled(word['word'], 'name')}: {'; '.join(found) or 'no match'}")
    lines += rule_lines(told["rules"])
    if told["next"] is not None:
        lines.append(f"{told['next']['documents']:,} just before it: {told['next']['text']}")
    return "\n".join(lines)
